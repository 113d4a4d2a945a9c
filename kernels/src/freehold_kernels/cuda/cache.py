"""Where is compiled machine code kept between runs?

One file per kernel, architecture, compiler version and set of shapes; the name is a hash of all of them. A file is
written under another name first and renamed, so that two processes never read half of one.

Read first: ``CubinCache``.
Does not do: delete old entries; the folder can be removed at any time.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CubinCache"]

_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinCache:
    """A folder of cubins.

    Attributes:
        folder: Where the files lie; created at the first write.
    """

    folder: Path

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the cubin of that key, from disk or newly made.

        A file that is not an ELF image counts as absent. A folder that cannot be written costs speed, not results.
        """
        path = self.folder / f"{key}.cubin"
        with contextlib.suppress(OSError):
            cubin = path.read_bytes()
            if cubin.startswith(_ELF):
                return cubin
        cubin = make()
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=f".{key}-")
            with os.fdopen(handle, "wb") as file:
                file.write(cubin)
            Path(temporary).replace(path)
        return cubin
