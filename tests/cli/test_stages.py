"""Progress on a terminal and anywhere else."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from freehold.cli.stages import StageDisplay
from freehold.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def terminal() -> Iterator[tuple[io.TextIOWrapper, list[bytes]]]:
    """A real pseudo-terminal: something to write on, and what arrived at its other end once it is closed."""
    outside, inside = os.openpty()
    received: list[bytes] = []
    stream = os.fdopen(inside, "w", encoding="utf-8")
    try:
        yield stream, received
        stream.flush()
        os.set_blocking(outside, False)
        with suppress(OSError):
            while True:
                received.append(os.read(outside, 65536))
    finally:
        stream.close()
        os.close(outside)


def test_one_plain_line_per_stage_where_nothing_can_be_redrawn() -> None:
    stream, clock = io.StringIO(), Clock()
    with StageDisplay(stream=stream, clock=clock) as display:
        display(Progress(stage="plan", message="reading headers"))
        clock.now_s += 0.041
        display(Progress(stage="plan", message="fits: 0.3 of 9.8 GiB", is_final=True))
        display(Progress(stage="bench", message="prose", done=1, total=30, unit="requests"))
        clock.now_s += 185
        display(Progress(stage="bench", message="24.1 tok/s", is_final=True))
        display(Progress(stage="report", message="", is_final=True, is_failed=True))
    assert stream.getvalue().splitlines() == [
        "✓ plan       fits: 0.3 of 9.8 GiB (41.0 ms)",
        "✓ bench      24.1 tok/s (3 min 05 s)",
        "✗ report      (0 µs)",
    ]


def test_a_stage_that_an_error_ended_is_marked() -> None:
    stream = io.StringIO()
    with suppress(ZeroDivisionError), StageDisplay(stream=stream, clock=Clock()) as display:
        display(Progress(stage="launch", message="loading", done=1, total=2, unit="bytes"))
        1 / 0  # noqa: B018
    assert stream.getvalue() == "✗ launch     loading (0 µs)\n"


def test_a_stage_that_did_not_say_it_was_over_ends_with_the_next() -> None:
    stream = io.StringIO()
    with StageDisplay(stream=stream, clock=Clock()) as display:
        display(Progress(stage="a", message="one"))
        display(Progress(stage="b", message="two"))
    assert stream.getvalue() == "✓ a          one (0 µs)\n✓ b          two (0 µs)\n"


def test_quiet_is_quiet() -> None:
    stream = io.StringIO()
    with StageDisplay(stream=stream, is_quiet=True) as display:
        display(Progress(stage="a", message="one"))
        display(Progress(stage="a", message="two", is_final=True))
    assert stream.getvalue() == ""


def test_messages_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    with StageDisplay(stream=stream, clock=Clock()) as display:
        display(Progress(stage="a", message="tensor \x1b[2J\nnext", is_final=True))
    assert stream.getvalue() == "✓ a          tensor \\x1b[2J next (0 µs)\n"


def test_a_terminal_gets_a_bar_with_amounts_and_then_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    clock = Clock()
    with terminal() as (stream, received):
        with StageDisplay(stream=stream, clock=clock) as display:
            display(Progress(stage="launch", message="loading [weights]", done=2**30, total=2**31, unit="bytes"))
            clock.now_s += 2
            display(Progress(stage="launch", message="answers [ok]", is_final=True))
        stream.flush()
    text = b"".join(received).decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "loading [weights]" in plain
    assert "1.0 GiB of 2.0 GiB" in plain
    assert "✓ launch     answers [ok] (2.00 s)" in plain


def test_no_color_and_a_dumb_terminal_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm-256color")
            patch.setenv(name, value)
            with terminal() as (stream, received), StageDisplay(stream=stream, clock=Clock()) as display:
                display(Progress(stage="plan", message="fits", is_final=True))
            text = b"".join(received).decode()
            assert "✓ plan       fits" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
            assert "\x1b[32m" not in text, "no green"
            if name == "TERM":
                assert "\x1b" not in text


@pytest.mark.parametrize(
    ("event", "amount"),
    [
        (Progress(stage="s", message="m", done=41.2 * 2**30, total=78.5 * 2**30, unit="bytes"), "41.2 GiB of 78.5 GiB"),
        (Progress(stage="s", message="m", done=5e6, total=98e6, unit="bytes_disk"), "5.0 MB of 98.0 MB"),
        (Progress(stage="s", message="m", done=3, total=30, unit="requests"), "3 of 30 requests"),
        (Progress(stage="s", message="m", done=3), "3"),
    ],
)
def test_amounts(event: Progress, amount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with terminal() as (stream, received), StageDisplay(stream=stream) as display:
        display(event)
    assert amount in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(received).decode())
