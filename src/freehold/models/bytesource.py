"""Where header bytes come from: a small protocol with two ends, a local file here and HTTP ranges in ``hub.py``.

A reader asks for a piece by offset and length and gets exactly that, or an error that names what was missing.
Read :class:`ByteSource`, then :class:`FileSource`.

Does not do: knowing any file format, or mapping files into memory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from freehold.errors import CheckpointError, InputError, PrerequisiteError

__all__ = ["ByteSource", "FileSource", "is_utf8", "read_whole", "shown"]


class ByteSource(Protocol):
    """A file that can be read in pieces."""

    @property
    def name(self) -> str:
        """What to call it in an error: a path or an address."""
        ...

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        ...

    @property
    def chunk_bytes(self) -> int:
        """How much is worth asking for at once."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``.

        Raises:
            CheckpointError: The file ends before.
            PrerequisiteError: It cannot be read at all.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class FileSource:
    """A local file, read with positioned reads; never mapped, so a file that shrinks is an error and no crash.

    Args:
        path: The file.

    Raises:
        InputError: It is not a regular file.
        PrerequisiteError: It cannot be opened.
    """

    chunk_bytes = 256 * 1024

    def __init__(self, path: Path) -> None:
        self.name = str(path.absolute())
        try:
            # Without O_NONBLOCK the open of a named pipe would wait for ever for a writer.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _cannot_read(self.name, error) from None
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise InputError(
                f"{shown(self.name)} is not a regular file",
                why="a checkpoint is read at many places, which a folder, pipe or device does not allow",
                fix="name the checkpoint's file, or the folder that holds it",
            )
        self.size_bytes = status.st_size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``."""
        try:
            data = os.pread(self._descriptor, length, offset)
            while len(data) < length:
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
                if not more:
                    raise CheckpointError(
                        f"{shown(self.name)} became shorter while it was read",
                        why=f"found {len(data):,} bytes at offset {offset:,}, expected {length:,}",
                        fix="wait until the download or copy has ended, then try again",
                    )
                data += more
        except OSError as error:
            raise _cannot_read(self.name, error) from None
        return data

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_whole(source: ByteSource, *, limit_bytes: int) -> bytes:
    """All bytes of a small file.

    Args:
        source: The file.
        limit_bytes: Refuse anything longer.

    Raises:
        CheckpointError: It is longer than the limit.
    """
    if source.size_bytes > limit_bytes:
        raise CheckpointError(
            f"{shown(source.name)} is {source.size_bytes:,} bytes long, at most {limit_bytes:,} were expected",
            why="files of this kind are small; this one is probably something else under that name",
            fix="check where it came from",
        )
    return source.read(0, source.size_bytes) if source.size_bytes else b""


def shown(text: str) -> str:
    """Text from outside as it can be shown: control characters and lone surrogates are escaped, length is bounded."""
    if len(text) > 200:
        text = text[:197] + "…"
    return text if text.isprintable() else ascii(text)[1:-1]


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8; half a surrogate pair, or a file name of other bytes, cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cannot_read(name: str, error: OSError) -> PrerequisiteError | InputError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return InputError(
            f"{shown(name)} does not exist",
            why="there is nothing of that name",
            fix="check the spelling, or name the folder that holds the checkpoint",
        )
    return PrerequisiteError(
        f"cannot read {shown(name)}",
        why=error.strerror or str(error),
        fix="check its permissions and the disk or mount that holds it",
    )
