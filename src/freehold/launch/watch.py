"""Follows a log file that another process writes, line by line.

Does not do: understanding a line (``Engine.read_line``).
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["LogFollower"]

_LONGEST_LINE_BYTES = 64 * 1024
_TAIL_BYTES = 256 * 1024
_PIECE_BYTES = 1024 * 1024
"""Most that is read at once: a process that writes faster than it is read must hold up nobody."""


class LogFollower:
    """What a process has written since it was started.

    Args:
        path: The log; it may not exist yet.
        start: Offset of the first byte that is of interest; what an earlier process wrote lies before it.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self._start = start
        self._offset = start
        self._rest = b""
        self.last_line = ""
        """The last line that was not empty."""

    @property
    def num_bytes(self) -> int:
        """How much the process has written."""
        try:
            return max(0, self.path.stat().st_size - self._start)
        except OSError:
            return 0

    def new_lines(self) -> list[str]:
        """Complete lines of the next MiB since the last call; what is no UTF-8 is replaced, endless lines are cut."""
        try:
            with self.path.open("rb") as source:
                source.seek(self._offset)
                data = source.read(_PIECE_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > _LONGEST_LINE_BYTES:
            whole.append(self._rest[:_LONGEST_LINE_BYTES])
            self._rest = self._rest[_LONGEST_LINE_BYTES:]
        lines = [line[:_LONGEST_LINE_BYTES].decode("utf-8", "replace").rstrip("\r") for line in whole]
        self.last_line = next((line for line in reversed(lines) if line.strip()), self.last_line)
        return lines

    def tail(self) -> str:
        """The end of what the process has written, at most 256 KiB."""
        try:
            with self.path.open("rb") as source:
                size = source.seek(0, 2)
                source.seek(max(self._start, size - _TAIL_BYTES))
                return source.read().decode("utf-8", "replace")
        except OSError:
            return ""
