"""A checkpoint from a hub, downloaded through huggingface_hub: only the files that are needed, at one commit.

The commit is recorded beside the files, so a model that was fetched once is found again without network. Read
:func:`fetch_snapshot`.

Does not do: transferring bytes; huggingface_hub resumes, verifies and stores them in its own layout.
"""

from __future__ import annotations

import glob
import json
import re
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freehold.errors import CheckpointError, PrerequisiteError
from freehold.models.bytesource import read_whole, shown
from freehold.models.cache import cache_error, hold, load_note, require_space
from freehold.models.checkpoint import CheckpointFiles, find_checkpoint
from freehold.models.hub import FolderView, HubStore, Token, hub_errors
from freehold.models.shards import parse_index, require_shards
from freehold.progress import Listener, Progress
from freehold.records.folder import write_whole
from freehold.world import World, utc_text

if TYPE_CHECKING:
    from freehold.models.source import FetchedModel, ModelSource

__all__ = ["fetch_snapshot"]

_SCHEMA = "cache.snapshot/1"
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_MAX_INDEX_BYTES = 64 * 2**20
# What engines read beside safetensors weights: configuration, tokenizer, template, and code that some models bring.
_COMPANIONS = (".json", ".jinja", ".model", ".tiktoken", ".txt", ".py")
_MAX_COMPANION_BYTES = 256 * 2**20


def fetch_snapshot(
    source: ModelSource, *, cache: Path, world: World, listener: Listener, endpoint: str | None, token: Token
) -> FetchedModel:
    """Make sure that a repository's checkpoint is in the cache.

    Args:
        source: The repository.
        cache: The cache folder.
        world: Its clock.
        listener: Told how far it is.
        endpoint: Address of the hub, None for the one huggingface_hub is configured for.
        token: Access token, None for the one huggingface_hub knows, False for none.

    Raises:
        InputError: There is no such repository, or not exactly one checkpoint in it.
        CheckpointError: What was fetched is not what the hub listed.
        PrerequisiteError: No network and nothing in the cache, no space, or a cache that cannot be written.
    """
    assert source.repo is not None
    folder = cache / "models" / "hub"
    note_path = folder / f"freehold-{re.sub(r'[^A-Za-z0-9._-]+', '--', source.text.removeprefix('hf:'))}.json"
    note = load_note(note_path, _SCHEMA)
    if note is not None and _COMMIT.match(source.revision or "") and _is_whole(note):
        return _fetched(source, note, ())  # a commit never changes
    try:
        hub = HubStore.connect(source.repo, source.revision, endpoint=endpoint, token=token)
    except PrerequisiteError as error:
        if note is None or not _is_whole(note):
            raise
        return _fetched(source, note, (f"{error.what}; commit {note['commit'][:12]} from the cache is used",))
    with closing(hub):
        view, pick = hub.narrow(source.file)
        files = find_checkpoint(view.size_by_name, view.place, pick)
        weights = files.shards or _indexed(view, files)
        wanted = [view.prefix + name for name in (*weights, *_companions(view, files, weights))]
        with hold(folder, world, listener):
            place = _download(hub, wanted, folder, listener)
            note = {
                "schema": _SCHEMA,
                "source": source.text,
                "commit": hub.commit,
                "folder": str(place / view.prefix) if view.prefix else str(place),
                "files": [{"name": name, "bytes": view.size_by_name[name]} for name in weights],
                "fetched_at": utc_text(world.now()),
            }
            if not _is_whole(note):
                raise CheckpointError(
                    f"what was fetched of {shown(source.text)} is not what the hub listed",
                    why="a file is missing or has another size",
                    fix="delete its folder from the cache and try again",
                    facts={"folder": note["folder"]},
                )
            write_whole(note_path, (json.dumps(note, indent=1) + "\n").encode())
    return _fetched(source, note, files.notes)


def _indexed(view: FolderView, files: CheckpointFiles) -> tuple[str, ...]:
    assert files.index is not None
    with closing(view.open(files.index)) as file:
        index = parse_index(files.index, read_whole(file, limit_bytes=_MAX_INDEX_BYTES))
    require_shards(index, view.size_by_name, view.place)
    return index.shards


def _companions(view: FolderView, files: CheckpointFiles, weights: tuple[str, ...]) -> list[str]:
    if files.format == "gguf":
        return []  # a GGUF holds its configuration and tokenizer
    return [
        name
        for name, size in sorted(view.size_by_name.items())
        if name.endswith(_COMPANIONS) and name not in weights and size <= _MAX_COMPANION_BYTES
    ]


def _download(hub: HubStore, wanted: list[str], folder: Path, listener: Listener) -> Path:
    from huggingface_hub import snapshot_download

    total = sum(hub.size_by_name[name] for name in wanted)
    here = folder / f"models--{hub.repo.replace('/', '--')}" / "snapshots" / hub.commit
    missing = [name for name in wanted if not (here / name).is_file()]
    require_space(folder, sum(hub.size_by_name[name] for name in missing), f"hf:{hub.repo}")
    with hub_errors(hub.repo, hub.commit):
        try:
            place = snapshot_download(
                hub.repo,
                revision=hub.commit,
                cache_dir=folder,
                allow_patterns=[glob.escape(name) for name in wanted],
                endpoint=hub.endpoint,
                token=hub.token if hub.token is None or hub.token is False else hub.token.reveal(),
                tqdm_class=_reporting_tqdm(listener, total),
            )
        except OSError as error:
            if error.errno is None:
                raise
            raise cache_error(folder, error) from None
    return Path(place)


def _reporting_tqdm(listener: Listener, total: int) -> Any:
    """A progress bar class for huggingface_hub that draws nothing and tells the listener how many bytes came."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    lock = threading.Lock()

    class Reporter(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Of its bars, the one over all files' bytes says that its total is still incomplete.
            self._counts_bytes = kwargs.get("unit") == "B" and "incomplete" in str(kwargs.get("desc"))
            self._done = 0
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if self._counts_bytes:
                with lock:
                    self._done += int(n or 0)
                    listener(Progress(stage="model", message="downloading", done=self._done, total=total, unit="bytes"))
            return None

    return Reporter


def _is_whole(note: Mapping[str, Any]) -> bool:
    """Whether every file of a note is there with its size."""
    try:
        folder = Path(note["folder"])
        return bool(note["files"]) and all((folder / f["name"]).stat().st_size == f["bytes"] for f in note["files"])
    except (OSError, KeyError, TypeError):
        return False


def _fetched(source: ModelSource, note: Mapping[str, Any], notes: tuple[str, ...]) -> FetchedModel:
    from freehold.models.source import FetchedModel

    folder = Path(note["folder"])
    suffix = f":{source.file}" if source.file else ""
    return FetchedModel(
        source=f"hf:{source.repo}@{note['commit']}{suffix}",
        files=tuple(folder / f["name"] for f in note["files"]),
        folder=folder,
        revision=note["commit"],
        notes=notes,
    )
