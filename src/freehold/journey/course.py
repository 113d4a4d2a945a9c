"""Keeps the book of a journey: which stage ran, how it ended, how long it took, what it left.

Read :class:`Course`. A stage that fails or is interrupted is written down before its error goes on.

Does not do: running anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from freehold.errors import FreeholdError, Interrupted
from freehold.progress import Listener, Progress
from freehold.records.base import Record
from freehold.records.folder import RunFolder
from freehold.records.journey import StageResult, StageStatus
from freehold.world import World

__all__ = ["Course", "StageNote", "staged"]


def staged(listener: Listener, stage: str) -> Listener:
    """A listener that files every event under one stage of the journey, whatever the library called it."""

    def pass_on(event: Progress) -> None:
        listener(replace(event, stage=stage, is_final=False))

    return pass_on


class StageNote:
    """What a running stage may say about itself."""

    def __init__(self) -> None:
        self.summary = ""
        """One line for the person who watches."""
        self.saved: type[Record] | None = None
        """Type of the record the stage left in the run folder."""
        self.file: str | None = None
        """Name of a file it left that is no record."""
        self.is_cut_short = False
        """Whether it was interrupted but kept what it had."""


class Course:
    """The stages of one journey, in order.

    Args:
        stages: All stage names; those that never ran are reported as not run, with the reason.
        folder: Where records go.
        world: For the clock.
        listener: Gets one final event per stage.
        before: Results of stages that ran earlier, for a journey that runs one of them again.
    """

    def __init__(
        self,
        stages: Sequence[str],
        *,
        folder: RunFolder,
        world: World,
        listener: Listener,
        before: Sequence[StageResult] = (),
    ) -> None:
        self._stages = tuple(stages)
        self._folder = folder
        self._world = world
        self._listener = listener
        self._results = {result.stage: result for result in before}
        self._blocked_by = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[StageNote]:
        """Run one stage's body and write down how it ended.

        Raises:
            FreeholdError: Whatever the body raises, after it was written down.
            Interrupted: The body was interrupted by Ctrl-C.
        """
        note = StageNote()
        started = self._world.monotonic()
        self._listener(Progress(stage=name, message="starting"))
        try:
            yield note
        except KeyboardInterrupt:
            self._write_down(name, note, StageStatus.INTERRUPTED, "Ctrl-C was pressed", started)
            raise Interrupted(f"interrupted during {name}") from None
        except Interrupted as error:
            self._write_down(name, note, StageStatus.INTERRUPTED, error.why, started)
            raise
        except FreeholdError as error:
            self._write_down(name, note, StageStatus.FAILED, error.what, started)
            raise
        except Exception as error:
            self._write_down(name, note, StageStatus.FAILED, f"{type(error).__name__}: {error}", started)
            raise
        if note.is_cut_short:
            self._write_down(name, note, StageStatus.INTERRUPTED, "Ctrl-C was pressed", started)
        else:
            self._write_down(name, note, StageStatus.DONE, "", started)

    def skip(self, name: str, reason: str) -> None:
        """Say that a stage is not run, and why."""
        self._results[name] = StageResult(stage=name, status=StageStatus.NOT_RUN, reason=reason)

    def results(self) -> tuple[StageResult, ...]:
        """One result per stage, in order."""
        reason = f"{self._blocked_by} did not finish" if self._blocked_by else "the journey ended before it"
        return tuple(
            self._results.get(name) or StageResult(stage=name, status=StageStatus.NOT_RUN, reason=reason)
            for name in self._stages
        )

    def _write_down(self, name: str, note: StageNote, status: StageStatus, reason: str, started: float) -> None:
        is_saved = note.saved is not None and (self._folder.path / RunFolder.file_name(note.saved)).is_file()
        self._results[name] = StageResult(
            stage=name,
            status=status,
            reason=reason,
            seconds=round(self._world.monotonic() - started, 3),
            record=RunFolder.file_name(note.saved) if note.saved and is_saved else note.file,
            sha256=self._folder.sha256(note.saved) if note.saved and is_saved else None,
        )
        if status is not StageStatus.DONE and not self._blocked_by:
            self._blocked_by = name
        message = note.summary if status is StageStatus.DONE else reason
        self._listener(Progress(stage=name, message=message, is_final=True, is_failed=status is not StageStatus.DONE))
