"""Holds Ctrl-C back for a few steps that have to happen together, such as starting a process and writing it down.

Does not do: anything outside the main thread, where no signal is handled anyway.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts_held"]


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Run a block without interruption; a signal that came meanwhile is delivered when the block ends.

    A handler is set instead of a mask, because a child inherits the mask but not the handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before_int = signal.signal(signal.SIGINT, note)
    before_term = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        # Whatever handler is back may raise at once, so the other one is restored on every way out.
        try:
            signal.signal(signal.SIGTERM, before_term or signal.SIG_DFL)
        finally:
            signal.signal(signal.SIGINT, before_int or signal.SIG_DFL)
        for late in dict.fromkeys(came):
            signal.raise_signal(signal.Signals(late))
