"""Shows how far each stage is: a bar with an estimate on a terminal, one plain line per stage anywhere else.

:class:`StageDisplay` is a :data:`~freehold.progress.Listener`. Everything goes to stderr; a mark (✓ ✗) and words
carry the meaning, colour only repeats it.

Does not do: results; they are data and go to stdout when the display is closed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from freehold.cli.render import sanitize
from freehold.progress import Progress
from freehold.units import format_duration, format_number

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

__all__ = ["StageDisplay"]


class StageDisplay:
    """Draws the progress events of a journey; use it as a context manager and hand it to a stage as its listener.

    Args:
        stream: Where to draw; stderr by default.
        is_quiet: Draw nothing at all.
        clock: Seconds on a clock that never jumps.
    """

    def __init__(
        self,
        *,
        stream: TextIO | None = None,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_quiet = is_quiet
        self._clock = clock
        self._open_stage: str | None = None
        self._last_message = ""
        self._began_at_s = 0.0
        self._bars: Bars | None = None
        self._task_by_stage: dict[str, int] = {}

    def __enter__(self) -> Self:
        if not self._is_quiet and _can_redraw(self._stream):
            self._bars = _make_bars(self._stream)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._open_stage is not None:
                if kind is not None:
                    self._close("✗", self._last_message)
                else:
                    self._close("✓", self._last_message)
        finally:
            if self._bars is not None:
                self._bars.stop()
                self._bars = None

    def __call__(self, event: Progress) -> None:
        """Take one event."""
        if event.stage != self._open_stage:
            if self._open_stage is not None:
                self._close("✓", self._last_message)
            self._open_stage = event.stage
            self._began_at_s = self._clock()
        self._last_message = event.message
        if event.is_final:
            self._close("✗" if event.is_failed else "✓", event.message)
        elif self._bars is not None:
            self._draw(event)

    def _draw(self, event: Progress) -> None:
        assert self._bars is not None
        from rich.progress import TaskID

        message = sanitize(event.message).replace("\n", " ")
        completed = round(event.done or 0)
        task = self._task_by_stage.get(event.stage)
        if task is None:
            self._task_by_stage[event.stage] = self._bars.add_task(
                event.stage, total=event.total, completed=completed, message=message, amount=_amount(event)
            )
        else:
            self._bars.update(
                TaskID(task), total=event.total, completed=completed, message=message, amount=_amount(event)
            )

    def _close(self, mark: str, message: str) -> None:
        stage = self._open_stage
        assert stage is not None
        self._open_stage = None
        elapsed = format_duration(max(0.0, self._clock() - self._began_at_s))
        line = f"{mark} {stage:<10} {sanitize(message).replace(chr(10), ' ')} ({elapsed})"
        if self._is_quiet:
            return
        if self._bars is None:
            print(line, file=self._stream, flush=True)
            return
        from rich.progress import TaskID
        from rich.text import Text

        task = self._task_by_stage.pop(stage, None)
        if task is not None:
            self._bars.remove_task(TaskID(task))
        text = Text(line)
        text.stylize("green" if mark == "✓" else "bold red", 0, 1)
        text.stylize("bold", 2, 2 + len(stage))
        self._bars.console.print(text, soft_wrap=True)


def _amount(event: Progress) -> str:
    if event.done is None:
        return ""
    is_bytes = event.unit.startswith("bytes")
    done, total = (
        None if count is None else format_number(round(count), event.unit if is_bytes else "")
        for count in (event.done, event.total)
    )
    return f"{done}{f' of {total}' if total else ''}{'' if is_bytes else f' {event.unit}'}".rstrip()


def _can_redraw(stream: TextIO) -> bool:
    if not stream.isatty():
        return False
    from rich.console import Console

    return not Console(file=stream).is_dumb_terminal


def _make_bars(stream: TextIO) -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    return Bars(
        SpinnerColumn(),
        TextColumn("[bold]{task.description}", markup=True),
        TextColumn("{task.fields[message]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(file=stream, highlight=False),
        transient=True,
        expand=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
