"""What a checkpoint is made of, exactly, from its headers alone: here, or on a hub without downloading it.

Read :func:`read_inventory` first. The steps are: choose the files (``checkpoint.py``), read their headers
(``gguf.py``, ``safetensors.py``), see whether they agree (``shards.py``), assign roles (``roles.py``), add up.

Does not do: reading weights (only :func:`hash_checkpoint` does), or estimating anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from freehold.errors import InputError
from freehold.models.assembly import read_store
from freehold.models.bytesource import FileSource, is_utf8, shown
from freehold.models.checkpoint import find_checkpoint
from freehold.models.document import inventory_document, inventory_json
from freehold.models.gguf import MAGIC
from freehold.models.hashing import hash_checkpoint
from freehold.progress import Listener, Progress, ignore
from freehold.records.inventory import Inventory
from freehold.units import format_disk

if TYPE_CHECKING:
    from freehold.secret import Secret

__all__ = [
    "LocalStore",
    "hash_checkpoint",
    "inventory_document",
    "inventory_json",
    "read_inventory",
    "read_remote_inventory",
]


class LocalStore:
    """A folder on this machine.

    Args:
        folder: The folder.

    Raises:
        InputError: It does not exist or cannot be listed.
    """

    max_parallel = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder.absolute())
        try:
            with os.scandir(folder) as entries:
                self.size_by_name: Mapping[str, int] = dict(_sizes(entries))
        except OSError as error:
            raise InputError(
                f"cannot list {shown(self.place)}",
                why=error.strerror or str(error),
                fix="check the spelling and its permissions",
            ) from None

    def open(self, name: str) -> FileSource:
        """One of its files."""
        return FileSource(self.folder / name)


def read_inventory(path: Path, *, source: str | None = None) -> Inventory:
    """Read what a local checkpoint is made of.

    Args:
        path: A folder that holds one checkpoint, or one of its files; any shard stands for its whole set.
        source: What to record as its source; the path's base name by default.

    Returns:
        The inventory, its tensors in the files' order; contents are not hashed.

    Raises:
        InputError: There is no checkpoint, or more than one.
        CheckpointError: A file is truncated, lies, or does not fit the others.
        PrerequisiteError: A file cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        store, pick = LocalStore(path), None
    else:
        with FileSource(path) as file:  # also says what is wrong with a path that is no file
            if not path.name.endswith((".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth", ".ckpt")):
                _check_magic(file)
        store, pick = LocalStore(path.parent), path.name
    files = find_checkpoint(store.size_by_name, store.place, pick)
    name = source or path.resolve().name or str(path)
    for text in (name, *files.shards):
        if not is_utf8(text):
            raise InputError(
                f"the name of {shown(text)} is not UTF-8",
                why="names go into records, which are UTF-8",
                fix="rename it",
            )
    return read_store(store, files, source=name)


def read_remote_inventory(
    repo: str,
    revision: str | None = None,
    *,
    file: str | None = None,
    endpoint: str | None = None,
    token: Secret | Literal[False] | None = None,
    listener: Listener = ignore,
) -> Inventory:
    """Read what a checkpoint on a hub is made of, by ranges of its headers; no weights are downloaded.

    Args:
        repo: ``owner/name``.
        revision: Branch, tag or commit; the default branch by default. The commit it names is recorded.
        file: File or folder inside the repository, where it holds more than one checkpoint.
        endpoint: Address of the hub; the one huggingface_hub is configured for by default.
        token: Access token; None for the one huggingface_hub knows, False for none.
        listener: Told which file is read.

    Raises:
        InputError: No such repository, or not exactly one checkpoint in it.
        CheckpointError: A file is truncated, lies, or does not fit the others.
        PrerequisiteError: The hub does not answer, refuses, or does not serve ranges.
    """
    from freehold.models.hub import HubStore

    with closing(HubStore.connect(repo, revision, endpoint=endpoint, token=token)) as hub:
        store, pick = hub.narrow(file)
        files = find_checkpoint(store.size_by_name, store.place, pick)
        suffix = f":{file}" if file else ""
        inventory = read_store(store, files, source=f"hf:{repo}@{hub.commit}{suffix}", listener=listener)
        summary = f"{format_disk(hub.bytes_received)} of {format_disk(inventory.file_bytes)} transferred"
        listener(Progress(stage="inspect", message=summary, is_final=True))
        return inventory


def _sizes(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, int]]:
    """Name and size of every file; what leads nowhere, such as a link to itself, is none."""
    for entry in entries:
        with suppress(OSError):
            if entry.is_file():
                yield entry.name, entry.stat().st_size


def _check_magic(file: FileSource) -> None:
    found = file.read(0, min(4, file.size_bytes))
    if found != MAGIC:
        raise InputError(
            f"{shown(file.name)} is no checkpoint that is known",
            why=f"its name ends neither in .gguf nor in .safetensors, and it begins with {found!r}",
            fix="name a .gguf or .safetensors file, or the folder that holds one",
        )
