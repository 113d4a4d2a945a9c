"""The hash of a checkpoint's content, which binds every later result to exactly these weights.

Hashing reads everything once; the result is remembered by a file's size, modification time and inode, so that the
next run is instant. Read :func:`hash_checkpoint`.

Does not do: comparing with a pin; whoever has one does.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from freehold.errors import CheckpointError, PrerequisiteError
from freehold.models.bytesource import shown
from freehold.progress import Listener, Progress, ignore
from freehold.records.inventory import FileEntry, Inventory

__all__ = ["combine_hashes", "hash_checkpoint", "hash_file"]

_PIECE_BYTES = 4 * 2**20
_MAX_PARALLEL = 4  # more readers than that do not make a disk quicker
_CACHE_SCHEMA = "cache.hashes/1"


def hash_checkpoint(
    inventory: Inventory, folder: Path, *, listener: Listener = ignore, cache_path: Path | None = None
) -> Inventory:
    """Hash the content of every file of a checkpoint.

    Args:
        inventory: What :func:`~freehold.models.inventory.read_inventory` found.
        folder: Where its files are; one of the files stands for its folder.
        listener: Told how far it is, in bytes.
        cache_path: Where hashes are remembered; None to always read. A cache that cannot be used is no error.

    Returns:
        The inventory with the hash of each file and of the checkpoint: a single file's own, else that of the lines
        ``sha256  bytes`` of all files in order.

    Raises:
        CheckpointError: A file is not the one that was read, or changes while it is hashed.
        PrerequisiteError: A file cannot be read.
    """
    from concurrent.futures import ThreadPoolExecutor

    folder = folder if folder.is_dir() else folder.parent
    remembered = _load(cache_path)
    meter = _Meter(listener, sum(entry.bytes for entry in inventory.files))

    def hash_one(entry: FileEntry) -> tuple[str, str]:
        path = folder / entry.name
        key, size = _identity(path)
        if size != entry.bytes:
            raise CheckpointError(
                f"{shown(str(path))} changed since its header was read",
                why=f"found {size:,} bytes, expected {entry.bytes:,}",
                fix="wait until the download or copy has ended, then try again",
            )
        known = remembered.get(key)
        if known is not None:
            meter.add(size)
            return key, known
        digest = hash_file(path, on_bytes=meter.add)
        if _identity(path)[0] != key:
            raise CheckpointError(
                f"{shown(str(path))} was changed while it was hashed",
                why="its size or modification time is another than before",
                fix="wait until the download or copy has ended, then try again",
            )
        return key, digest

    with ThreadPoolExecutor(min(_MAX_PARALLEL, os.cpu_count() or 1, len(inventory.files))) as pool:
        try:
            results = list(pool.map(hash_one, inventory.files))
        except BaseException:
            meter.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    new = {key: digest for key, digest in results if remembered.get(key) != digest}
    if cache_path is not None and new:
        _save(cache_path, {**remembered, **new})
    files = tuple(replace(entry, sha256=digest) for entry, (_, digest) in zip(inventory.files, results, strict=True))
    return replace(inventory, files=files, checkpoint_sha256=combine_hashes(files))


def combine_hashes(files: tuple[FileEntry, ...]) -> str:
    """The checkpoint's hash from the hashes of its files."""
    if len(files) == 1 and files[0].sha256 is not None:
        return files[0].sha256
    return hashlib.sha256("".join(f"{f.sha256}  {f.bytes}\n" for f in files).encode()).hexdigest()


class _Stopped(Exception):
    """Another file failed, or the user interrupted; the rest need not be read."""


class _Meter:
    """Adds up what several threads have read and tells one listener."""

    def __init__(self, listener: Listener, total: int) -> None:
        self._listener, self._total = listener, total
        self._lock = threading.Lock()
        self._done = 0
        self._is_stopped = False

    def add(self, size_bytes: int) -> None:
        if self._is_stopped:
            raise _Stopped
        with self._lock:
            self._done += size_bytes
            self._listener(
                Progress(stage="hash", message="hashing weights", done=self._done, total=self._total, unit="bytes")
            )

    def stop(self) -> None:
        self._is_stopped = True


def hash_file(path: Path, *, on_bytes: Any = None) -> str:
    """Hash of one file's content.

    Args:
        path: The file.
        on_bytes: Called with the length of every piece that was read.

    Raises:
        PrerequisiteError: It cannot be read.
    """
    digest = hashlib.sha256()
    piece = bytearray(_PIECE_BYTES)
    view = memoryview(piece)
    try:
        with path.open("rb", buffering=0) as file:
            while length := file.readinto(piece):
                digest.update(view[:length])
                if on_bytes is not None:
                    on_bytes(length)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot read {shown(str(path))}",
            why=error.strerror or str(error),
            fix="check its permissions and the disk or mount that holds it",
        ) from None
    return digest.hexdigest()


def _identity(path: Path) -> tuple[str, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise PrerequisiteError(
            f"cannot read {shown(str(path))}",
            why=error.strerror or str(error),
            fix="name the folder that holds the checkpoint's files",
        ) from None
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}", status.st_size


def _load(path: Path | None) -> dict[str, str]:
    """Remembered hashes; an unreadable or damaged cache counts as empty."""
    if path is None:
        return {}
    try:
        document: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or document.get("schema") != _CACHE_SCHEMA:
        return {}
    hashes = document.get("hashes")
    if not isinstance(hashes, dict):
        return {}
    return {k: v for k, v in hashes.items() if isinstance(v, str) and len(v) == 64}


def _save(path: Path, hashes: Mapping[str, str]) -> None:
    from freehold.records.folder import write_whole

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps({"schema": _CACHE_SCHEMA, "hashes": hashes}, indent=1) + "\n").encode())
    except (OSError, PrerequisiteError):
        return  # the cache only saves time
