"""Where the user's own catalogue files are: a folder that is named, or the usual place for configuration.

The folder may hold ``hardware.toml`` and ``models/*.toml``. A folder that was named must exist, the usual place
need not.

Does not do: reading them (``hardware/catalogue.py``, ``models/catalogue.py``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["UserFiles", "user_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFiles:
    """Files that lie over the catalogue.

    Args:
        hardware: At most one ``hardware.toml``.
        models: One file per model, by name.
    """

    hardware: tuple[Path, ...] = ()
    models: tuple[Path, ...] = ()


def user_files(folder: Path | None) -> UserFiles:
    """The user's catalogue files.

    Args:
        folder: Folder that was named; None for ``freehold/catalogue`` under the place for configuration.

    Raises:
        InputError: A folder was named and does not exist.
    """
    from freehold.errors import InputError

    if folder is None:
        base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        place = Path(base) / "freehold" / "catalogue"
    else:
        place = folder
        if not place.is_dir():
            raise InputError(
                f"{place} is no folder",
                why="a catalogue of your own is a folder with `hardware.toml` and `models/*.toml`",
                fix="check the spelling",
            )
    hardware = place / "hardware.toml"
    return UserFiles(
        hardware=(hardware,) if hardware.is_file() else (), models=tuple(sorted((place / "models").glob("*.toml")))
    )
