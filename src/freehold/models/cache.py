"""The folder where fetched checkpoints are kept: one writer at a time, files whole or not at all.

Read :func:`hold`.

Does not do: knowing where files come from, or deleting what others put there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freehold.errors import PrerequisiteError
from freehold.models.bytesource import shown
from freehold.progress import Listener, Progress
from freehold.units import format_disk
from freehold.world import World

__all__ = ["cache_error", "hold", "load_note", "require_space", "scratch"]

_LOCK = ".lock"
_SCRATCH = ".partial-"
_POLL_S = 0.2
_PATIENCE_S = 3600.0


def cache_error(folder: Path, error: OSError) -> PrerequisiteError:
    """What to say when the cache cannot be written."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return PrerequisiteError(
        f"cannot write to the model cache {shown(str(folder))}",
        why=error.strerror or str(error),
        fix="free some space, or choose another cache folder" if is_full else "choose a cache folder you may write to",
        facts={"folder": str(folder), "errno": error.errno},
    )


@contextmanager
def hold(folder: Path, world: World, listener: Listener, *, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Make a folder and be its only writer; another freehold that fetches the same model is waited for.

    Args:
        folder: The folder.
        world: Its clock is waited on.
        listener: Told when there is something to wait for.
        patience_s: How long to wait.

    Raises:
        PrerequisiteError: It cannot be made or written, or the other one does not end.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / _LOCK).open("a")
    except OSError as error:
        raise cache_error(folder, error) from None
    with handle:
        deadline, has_told = world.monotonic() + patience_s, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if world.monotonic() >= deadline:
                    raise PrerequisiteError(
                        f"another freehold has been fetching into {shown(str(folder))} for {patience_s / 60:.0f} min",
                        why="two writers would overwrite each other's files",
                        fix="end it, or wait until it has finished",
                    ) from None
                if not has_told:
                    listener(Progress(stage="model", message="waiting for another freehold that fetches this model"))
                    has_told = True
                world.sleep(_POLL_S)
            except OSError as error:
                raise cache_error(folder, error) from None
        for left in folder.glob(f"{_SCRATCH}*"):  # of a run that was killed; nobody else writes here now
            shutil.rmtree(left, ignore_errors=True)
        yield


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder inside the cache for what is not finished; it is gone afterwards, whatever happens."""
    try:
        made = tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH, ignore_cleanup_errors=True)
    except OSError as error:
        raise cache_error(folder, error) from None
    with made as path:
        yield Path(path)


def require_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Refuse to start what cannot fit on the disk.

    Raises:
        PrerequisiteError: Too little is free.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise PrerequisiteError(
            f"{what} needs {format_disk(needed_bytes)}, {format_disk(free)} are free",
            why=f"the model cache is in {shown(str(folder))}",
            fix="free some space, or choose another cache folder",
            facts={"needed_bytes": needed_bytes, "free_bytes": free},
        )


def load_note(path: Path, schema: str) -> Mapping[str, Any] | None:
    """A small JSON file of the cache; None when it is missing, damaged or of another kind."""
    try:
        document: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and document.get("schema") == schema else None
