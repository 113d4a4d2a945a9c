"""Holds Ctrl-C back for a few steps that have to happen together, such as starting a process and writing it down.

Does not do: anything outside the main thread, where no signal is handled anyway.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    # A signal that is ignored, as nohup and a journey's ending ask for, stays ignored.
    before = {number: signal.getsignal(number) for number in numbers}
    held = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    try:
        with ExitStack() as stack:
            for number in held:
                # Whatever handler is back may raise at once, so the others are restored on every way out.
                stack.callback(signal.signal, number, before[number] or signal.SIG_DFL)
                signal.signal(number, note)
            yield
    finally:
        for late in dict.fromkeys(came):
            signal.raise_signal(signal.Signals(late))
