"""A window that moves forward over the header of one file, hashes what it passes, and refuses lengths that lie.

Read :class:`HeaderWindow`. Nothing is read or allocated for a length before :meth:`HeaderWindow.claim` has compared it
with the file's size and with the most a sane header can have.

Does not do: knowing what the bytes mean.
"""

from __future__ import annotations

import hashlib

from freehold.errors import CheckpointError
from freehold.models.bytesource import ByteSource, shown

__all__ = ["HeaderWindow"]

_MAX_GROWTH = 16  # a piece grows up to this multiple of the source's own


class HeaderWindow:
    """The part of a header that is in memory.

    Args:
        source: The file.
        max_bytes: Where no header reaches to.

    Attributes:
        data: The bytes in memory.
        position: Where in ``data`` reading goes on.
    """

    def __init__(self, source: ByteSource, *, max_bytes: int) -> None:
        self.data = b""
        self.position = 0
        self._base = 0  # offset in the file of the first byte in memory
        self._source = source
        self._size = source.size_bytes
        self._max = max_bytes
        self._piece = source.chunk_bytes
        self._digest = hashlib.sha256()

    @property
    def offset(self) -> int:
        """Offset in the file where reading goes on."""
        return self._base + self.position

    def sha256(self) -> str:
        """Hash of everything before the position."""
        digest = self._digest.copy()
        digest.update(memoryview(self.data)[: self.position])
        return digest.hexdigest()

    def claim(self, length: int, what: str = "the header") -> None:
        """Refuse a length from the position on that the file or a sane header cannot hold.

        Raises:
            CheckpointError: The file or any header ends before.
        """
        end = self.offset + length
        if end <= self._size and end <= self._max:
            return
        name = shown(self._source.name)
        if end > self._size:
            problem = f"{name} is truncated, or its header lies"
            why = f"{what} needs {length:,} bytes at offset {self.offset:,}, the file ends at {self._size:,}"
        else:
            problem = f"the header of {name} is absurdly long"
            why = f"{what} reaches to offset {end:,}; headers end long before {self._max:,}"
        raise CheckpointError(
            problem, why=why, fix="download or copy the file again", facts={"file": name, "size_bytes": self._size}
        )

    def refill(self, wanted: int) -> None:
        """Have ``wanted`` bytes in memory from the position on, or as many as the file has."""
        self._digest.update(memoryview(self.data)[: self.position])
        rest = self.data[self.position :]
        self._base += self.position
        self.position = 0
        start = self._base + len(rest)
        length = min(max(wanted - len(rest), self._piece), self._size - start)
        self.data = rest + self._source.read(start, length) if length > 0 else rest
        # Headers of some MB are common; over a network fewer and larger pieces are quicker.
        self._piece = min(self._piece * 2, _MAX_GROWTH * self._source.chunk_bytes)

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        self.claim(length)
        if self.position + length > len(self.data):
            self.refill(length)
        data = self.data[self.position : self.position + length]
        self.position += length
        return data

    def skip(self, length: int) -> None:
        """Move over ``length`` bytes without keeping them."""
        self.claim(length)
        while length > len(self.data) - self.position:
            length -= len(self.data) - self.position
            self.position = len(self.data)
            self.refill(1)
        self.position += length
