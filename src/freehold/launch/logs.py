"""Reads the end of a log, and what is added to it.

Does not do: understanding lines (``engines/``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from freehold.errors import PrerequisiteError
from freehold.world import World

__all__ = ["follow_log", "last_lines"]

_POLL_S = 0.2


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log; all of them for 0. Bytes that are no UTF-8 are replaced.

    Raises:
        PrerequisiteError: It cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as source:
            return [line.rstrip("\n") for line in deque(source, maxlen=count or None)]
    except OSError as error:
        raise PrerequisiteError(
            f"cannot read {path}", why=error.strerror or str(error), fix="check its permissions"
        ) from None


def follow_log(path: Path, world: World) -> Iterator[str]:
    """Every line that is added from now on, for ever; a line counts when its end was written."""
    with path.open(encoding="utf-8", errors="replace") as source:
        source.seek(0, 2)
        started = ""
        while True:
            started += source.readline()
            if started.endswith("\n"):
                yield started.rstrip("\n")
                started = ""
            else:
                world.sleep(_POLL_S)
