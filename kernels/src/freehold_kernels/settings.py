"""What can a user set from outside? The only module that reads the environment.

- ``FREEHOLD_KERNELS_CACHE``: folder for compiled kernels (default: ``freehold-kernels`` in the user's cache folder).

Read first: ``cache_folder``.
Does not do: change how anything is computed.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return the folder for compiled kernels; it may not exist yet."""
    named = os.environ.get("FREEHOLD_KERNELS_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "freehold-kernels"
