"""Whether the files of one checkpoint agree with one another, and with the index that lists them.

An engine would find out after minutes of loading, or never. What makes a checkpoint unusable is an error; what is only
odd becomes a note. Read :func:`join_gguf` and :func:`join_safetensors`.

Does not do: reading headers, or choosing files (``checkpoint.py``).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NoReturn

from freehold.errors import CheckpointError
from freehold.models.bytesource import shown
from freehold.models.formats import RawTensor
from freehold.models.gguf import GgufHeader
from freehold.models.safetensors import SafetensorsHeader

__all__ = ["Index", "join_gguf", "join_safetensors", "parse_index", "require_shards"]

_name_of = itemgetter(0)
_SPLIT_NUMBER, _SPLIT_COUNT, _SPLIT_TENSORS = "split.no", "split.count", "split.tensors.count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A safetensors index.

    Args:
        name: Its file name.
        shard_by_tensor: File name of every tensor's shard.
        total_bytes: Sum of the tensors as it claims, None where it does not.
    """

    name: str
    shard_by_tensor: Mapping[str, str]
    total_bytes: int | None

    @property
    def shards(self) -> tuple[str, ...]:
        """The files it names, sorted."""
        return tuple(sorted(set(self.shard_by_tensor.values())))


def parse_index(name: str, data: bytes) -> Index:
    """Read a safetensors index.

    Raises:
        CheckpointError: It is no JSON, has no weight map, or names files outside its folder.
    """
    from pydantic_core import from_json  # three times as quick as the standard library; an index may have 60 MB

    what, fix = f"{shown(name)} is no safetensors index", "download it again"
    try:
        document: Any = from_json(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(what, why=f"it is no JSON: {error}", fix=fix) from None
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(what, why="it has no weight_map that says which file holds which tensor", fix=fix)
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not shard or shard != shard.replace("\\", "/").rpartition("/")[2]:
            raise CheckpointError(
                f"{shown(name)} names a file outside its folder",
                why=f"tensor {shown(tensor)} is said to be in {shown(str(shard))}",
                fix="check where it came from",
            )
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():  # some writers compute it with floats
        total = int(total)
    return Index(name=name, shard_by_tensor=weight_map, total_bytes=total if type(total) is int else None)


def require_shards(index: Index, present: Container[str], place: str) -> None:
    """Refuse an index that names files which are not there.

    Args:
        index: The index.
        present: File names of its folder.
        place: What to call the folder in an error.

    Raises:
        CheckpointError: One is missing.
    """
    missing = [name for name in index.shards if name not in present]
    if missing:
        _fail(
            f"{len(missing)} of {len(index.shards)} shards {'is' if len(missing) == 1 else 'are'} missing:"
            f" {', '.join(map(shown, missing[:4]))}{' …' if len(missing) > 4 else ''}",
            f"{shown(index.name)} lists them, {shown(place)} does not hold them",
            {"missing": missing},
            "download the missing files into the same folder",
        )


def join_safetensors(names: Sequence[str], headers: Sequence[SafetensorsHeader], index: Index | None) -> list[str]:
    """Check that the shards of a safetensors checkpoint fit together; returns notes.

    Args:
        names: The shards.
        headers: Their headers, in the same order.
        index: What lists them, None without an index.

    Raises:
        CheckpointError: Two shards hold one tensor, or the index names a tensor that is missing or elsewhere.
    """
    tensors_by_shard = [header.tensors for header in headers]
    if index is None:
        _locate(names, tensors_by_shard)
        return ["the shards have no index; their names alone say that they belong together"] if len(names) > 1 else []
    notes = []
    if not _fits_index(names, tensors_by_shard, index):
        notes += _compare_with_index(_locate(names, tensors_by_shard), index)
    total = sum(tensor.bytes for tensors in tensors_by_shard for tensor in tensors)
    if index.total_bytes is not None and index.total_bytes != total:
        notes.append(
            f"{shown(index.name)} says {index.total_bytes:,} bytes, the headers add up to {total:,}; the headers count"
        )
    return notes


def _fits_index(names: Sequence[str], tensors_by_shard: Sequence[Sequence[RawTensor]], index: Index) -> bool:
    """Whether the index names exactly the tensors there are, each in its shard; then none can be in two shards."""
    for name, tensors in zip(names, tensors_by_shard, strict=True):
        if tensors and set(map(index.shard_by_tensor.get, map(_name_of, tensors))) != {name}:
            return False
    return sum(map(len, tensors_by_shard)) == len(index.shard_by_tensor)


def _compare_with_index(where: Mapping[str, str], index: Index) -> list[str]:
    missing = [tensor for tensor in index.shard_by_tensor if tensor not in where]
    if missing:
        _fail(
            f"{len(missing):,} of {len(index.shard_by_tensor):,} tensors that {shown(index.name)} lists are missing",
            f"the header of {shown(index.shard_by_tensor[missing[0]])} has no {shown(missing[0])}",
            {"missing": missing[:100]},
        )
    elsewhere = [t for t, shard in index.shard_by_tensor.items() if where[t] != shard]
    if elsewhere:
        first = elsewhere[0]
        _fail(
            f"{shown(index.name)} says of {len(elsewhere):,} tensors that they are in another file than they are",
            f"{shown(first)} is in {shown(where[first])}, the index says {shown(index.shard_by_tensor[first])}",
            {"elsewhere": elsewhere[:100]},
        )
    extra = [tensor for tensor in where if tensor not in index.shard_by_tensor]
    return [
        f"{len(extra):,} tensors are in the files but not in {shown(index.name)}, such as {shown(extra[0])};"
        " they are counted, and an engine that follows the index does not load them"
    ]


def join_gguf(names: Sequence[str], headers: Sequence[GgufHeader]) -> list[str]:
    """Check that the files of a GGUF checkpoint fit together; returns notes.

    Args:
        names: The shards; one for a file that is not split.
        headers: Their headers, in the same order.

    Raises:
        CheckpointError: The files' own numbers disagree with their names or with one another, or two hold one tensor.
    """
    num_tensors = len(_locate(names, [header.tensors for header in headers]))
    notes = []
    unnumbered = []
    for position, (name, header) in enumerate(zip(names, headers, strict=True)):
        count, number = header.metadata.get(_SPLIT_COUNT), header.metadata.get(_SPLIT_NUMBER)
        if count is None:
            unnumbered.append(name)
        elif count != len(names):
            if len(names) == 1:
                _fail(
                    f"{shown(name)} is one of {count} shards under a name that does not say so",
                    f"its {_SPLIT_COUNT} is {count}; shards are found by names like NAME-00001-of-0000N.gguf",
                    {},
                    "give the shards the names they were published with",
                )
            _fail(
                f"{shown(name)} does not belong to this set of {len(names)} files",
                f"its {_SPLIT_COUNT} is {count}, the names say {len(names)}",
                {},
            )
        elif number is not None and number != position:
            _fail(
                f"{shown(name)} does not hold the shard that its name says",
                f"its {_SPLIT_NUMBER} is {number}, counted from 0; the name says {position}",
                {},
                "give the shards the names they were published with",
            )
        promised = header.metadata.get(_SPLIT_TENSORS)
        if count is not None and promised is not None and promised != num_tensors:
            _fail(
                f"the shards hold {num_tensors:,} tensors, expected {promised}",
                f"{_SPLIT_TENSORS} of {shown(name)} says so",
                {},
            )
    if len(names) > 1 and unnumbered:
        notes.append(
            f"{shown(unnumbered[0])} has no {_SPLIT_COUNT}; llama.cpp finds the other shards only if the first has it"
        )
    if any(header.byte_order == "big" for header in headers):
        notes.append("numbers are stored big-endian; engines on x86-64 and ARM refuse such files")
    stray = sum(header.stray_bytes for header in headers)
    if stray:
        notes.append(f"{stray:,} bytes of the files belong to no tensor, header or padding")
    return notes


def _locate(names: Sequence[str], tensors_by_shard: Sequence[Sequence[RawTensor]]) -> dict[str, str]:
    """The shard of every tensor, none of which is in two."""
    where: dict[str, str] = {}
    for name, tensors in zip(names, tensors_by_shard, strict=True):
        before = len(where)
        found = dict.fromkeys(map(_name_of, tensors), name)
        if len(names) > 1 and not where.keys().isdisjoint(found):
            twice = next(tensor for tensor in found if tensor in where)
            _fail(
                f"two shards hold tensor {shown(twice)}",
                f"it is in {shown(where[twice])} and in {shown(name)}",
                {"tensor": twice},
            )
        where |= found
        assert len(where) == before + len(tensors), "a reader lets no name pass twice"
    return where


def _fail(
    what: str, why: str, facts: Mapping[str, object], fix: str = "download all files of one revision"
) -> NoReturn:
    raise CheckpointError(what, why=why, fix=fix, facts=facts)
