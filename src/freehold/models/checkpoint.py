"""Which files of a folder form a checkpoint, decided from their names alone.

A folder may be local or a repository on a hub; both are a :class:`Store`. One folder holds one checkpoint, or the
question is given back: two unrelated ones are never merged, and none is never an empty answer. Read
:func:`find_checkpoint`.

Does not do: opening files; whether the shards agree with one another is judged in ``shards.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from freehold.errors import CheckpointError, InputError
from freehold.models.bytesource import ByteSource, shown

__all__ = ["CheckpointFiles", "Split", "Store", "find_checkpoint", "split_of"]

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})(?P<suffix>\.gguf|\.safetensors)\Z")
_INDEX = ".safetensors.index.json"
_MAX_SHARDS = 4096  # guess: ten times the largest seen
_STANDARD = ("model.safetensors.index.json", "model.safetensors")  # the names that transformers and vLLM look for
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


class Store(Protocol):
    """A folder of files, here or elsewhere."""

    @property
    def place(self) -> str:
        """What to call it in an error."""
        ...

    @property
    def size_by_name(self) -> Mapping[str, int]:
        """Size in bytes of every file, by its name in the folder."""
        ...

    @property
    def max_parallel(self) -> int:
        """How many files are worth reading at once."""
        ...

    def open(self, name: str) -> ByteSource:
        """One of its files; the caller closes it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What the name of a split file says: ``stem-00002-of-00009.gguf``."""

    stem: str
    number: int
    count: int
    suffix: str

    def name(self, number: int) -> str:
        """Name of another shard of the same set."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}{self.suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """The files that form one checkpoint.

    Args:
        format: Their format.
        shards: Weight files in order; empty when ``index`` lists them.
        index: The safetensors index, None without one.
        notes: What was left aside, one sentence each.
    """

    format: Literal["gguf", "safetensors"]
    shards: tuple[str, ...] = ()
    index: str | None = None
    notes: tuple[str, ...] = ()


def split_of(name: str) -> Split | None:
    """What a split file's name says, None for the name of a whole file.

    Raises:
        CheckpointError: The numbers make no sense, such as shard 5 of 3.
    """
    match = _SPLIT.fullmatch(name)
    if match is None:
        return None
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count <= _MAX_SHARDS:
        raise CheckpointError(
            f"the name of {shown(name)} makes no sense",
            why=f"it says shard {number} of {count}, shards count from 1 and at most {_MAX_SHARDS:,} are sane",
            fix="give the file the name it was published with",
        )
    return Split(stem=match["stem"], number=number, count=count, suffix=match["suffix"])


def find_checkpoint(names: Collection[str], place: str, pick: str | None = None) -> CheckpointFiles:
    """Which files form the checkpoint that was asked for.

    Args:
        names: File names of the folder.
        place: What to call the folder in an error.
        pick: The file that was named, if a file was; any shard stands for its whole set.

    Raises:
        InputError: There is no checkpoint, or more than one and nothing says which.
        CheckpointError: A shard is missing.
    """
    if pick is not None:
        return _from_file(names, place, pick)
    return _from_folder(names, place)


def _from_file(names: Collection[str], place: str, pick: str) -> CheckpointFiles:
    if pick.endswith(_INDEX):
        return CheckpointFiles(format="safetensors", index=pick)
    if pick.endswith(_PICKLES):
        raise _pickled(pick)
    if pick.endswith(".safetensors"):
        split = split_of(pick)
        stem = split.stem if split else pick.removesuffix(".safetensors")
        if split and f"{stem}{_INDEX}" in names:
            return CheckpointFiles(format="safetensors", index=f"{stem}{_INDEX}")
        return CheckpointFiles(format="safetensors", shards=_whole_set(names, place, pick))
    return CheckpointFiles(format="gguf", shards=_whole_set(names, place, pick))


def _from_folder(names: Collection[str], place: str) -> CheckpointFiles:
    choices: dict[str, CheckpointFiles] = {}
    projectors = []
    for name in sorted(names):
        if name.endswith(_INDEX):
            choices[name] = CheckpointFiles(format="safetensors", index=name)
        elif name.endswith((".gguf", ".safetensors")):
            split = split_of(name)
            stem = split.stem if split else name.rpartition(".")[0]
            if name.endswith(".safetensors") and f"{stem}{_INDEX}" in names:
                continue  # its index speaks for it
            if name.endswith(".gguf") and name.startswith("mmproj"):
                projectors.append(name)  # llama.cpp's name for the vision part, loaded beside a model
                continue
            key = f"{split.stem}-*{split.suffix}" if split else name
            if key not in choices:
                choices[key] = CheckpointFiles(
                    format="gguf" if name.endswith(".gguf") else "safetensors",
                    shards=_whole_set(names, place, name),
                )
    if not choices and len(projectors) == 1:
        return CheckpointFiles(format="gguf", shards=(projectors[0],))
    if not choices:
        raise _no_checkpoint(names, place)
    chosen_key = next((name for name in _STANDARD if name in choices), None)
    if len(choices) == 1:
        chosen_key = next(iter(choices))
    if chosen_key is None or len({c.format for c in choices.values()}) > 1:
        raise InputError(
            f"{shown(place)} holds {len(choices)} checkpoints",
            why="found " + ", ".join(map(shown, list(choices)[:6])) + (" …" if len(choices) > 6 else ""),
            fix="name the one that is meant, by its file or its first shard",
            facts={"checkpoints": list(choices)},
        )
    chosen = choices.pop(chosen_key)
    aside = [*choices, *projectors]
    notes = (f"{', '.join(map(shown, aside))} beside it {'is' if len(aside) == 1 else 'are'} not counted",)
    return CheckpointFiles(format=chosen.format, shards=chosen.shards, index=chosen.index, notes=notes if aside else ())


def _whole_set(names: Collection[str], place: str, name: str) -> tuple[str, ...]:
    """Every shard of the set that a file belongs to, in order."""
    split = split_of(name)
    if split is None:
        return (name,)
    shards = tuple(split.name(number) for number in range(1, split.count + 1))
    missing = [shard for shard in shards if shard not in names]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {split.count} shards {'is' if len(missing) == 1 else 'are'} missing:"
            f" {', '.join(map(shown, missing[:4]))}{' …' if len(missing) > 4 else ''}",
            why=f"{shown(name)} says that there are {split.count}; {split.count - len(missing)} are in {shown(place)}",
            fix="download the missing files into the same folder",
            facts={"missing": missing},
        )
    return shards


def _no_checkpoint(names: Collection[str], place: str) -> InputError:
    pickles = sorted(n for n in names if n.endswith(_PICKLES))
    if pickles:
        return _pickled(pickles[0])
    found = ", ".join(map(shown, sorted(names)[:5])) + (" …" if len(names) > 5 else "")
    return InputError(
        f"no checkpoint in {shown(place)}",
        why=f"it holds no .gguf and no .safetensors file; found {found or 'nothing'}",
        fix="name the folder or file that holds the weights",
    )


def _pickled(name: str) -> InputError:
    return InputError(
        f"{shown(name)} is not read",
        why="PyTorch pickles run code when they are opened, and say nothing about sizes without that",
        fix="use the model's safetensors or GGUF files, or convert it",
    )
