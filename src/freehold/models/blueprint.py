"""The tensors of a model from its dimensions: names, shapes, types and bytes, without any checkpoint.

A blueprint is a list of rows such as "in every MLA layer a ``blk.{layer}.attn_q_a.weight`` of q_lora × hidden in Q8_0".
Bytes follow from the storage type's blocks, roles from the same table that real checkpoints use, so that a plan made
from a blueprint and one made from the files agree. Read :func:`build_inventory`.

Does not do: reading catalogue files (``models/catalogue.py``), or knowing any model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Literal

from freehold.errors import InputError
from freehold.models.dimensions import evaluate
from freehold.models.formats import gguf_formats, load_facts, safetensors_bits
from freehold.models.roles import assign_roles
from freehold.records.inventory import Architecture, FileEntry, GroupTotal, Inventory, Role, Tensor

__all__ = ["REMAINDER", "block_of", "build_inventory", "tensor_bytes"]

REMAINDER = "(not in the blueprint)"
"""Name of the tensor that stands for what the published total holds beyond the blueprint."""
_MAX_REMAINDER_SHARE = 0.02
_MAX_TENSORS = 2_000_000
_ROW_KEYS = {"name", "each", "layers", "shape", "type"}


@lru_cache(maxsize=1)
def _blocks() -> Mapping[str, tuple[int, int]]:
    """Weights and bytes per block of every storage type by name: both formats', and packed ones of the catalogue."""
    plain = {name: (1, bits // 8) for name, bits in safetensors_bits().items() if bits % 8 == 0}
    packed = {name: (weights, size) for name, weights, size in load_facts("catalogue/packed_types.toml")["types"]}
    return plain | packed | {f.name: (f.weights_per_block, f.bytes_per_block) for f in gguf_formats().values()}


def block_of(type_name: str) -> tuple[int, int] | None:
    """Weights per block and bytes per block of a storage type; None for one nobody knows."""
    return _blocks().get(type_name)


def tensor_bytes(shape: Sequence[int], type_name: str, name: str) -> int:
    """Payload of a tensor.

    Args:
        shape: Row-major.
        type_name: Storage type.
        name: Name of the tensor, for an error.

    Raises:
        InputError: Nobody knows the type, or a row is not a whole number of blocks.
    """
    block = block_of(type_name)
    if block is None:
        raise InputError(
            f"tensor {name}: an unknown storage type {type_name!r}",
            why="its size cannot be told",
            fix=f"known types: {', '.join(sorted(_blocks()))}",
        )
    weights, size = block
    if shape[-1] % weights:
        raise InputError(
            f"tensor {name}: a row of {shape[-1]:,} is {shape[-1] / weights:g} blocks of {weights} ({type_name})",
            why="a block cannot be cut, so a row is a whole number of blocks",
            fix=f"choose a width that {weights} divides",
        )
    return prod(shape) // weights * size


def build_inventory(
    *,
    source: str,
    format: Literal["gguf", "safetensors"],
    family: str | None,
    architecture: Architecture,
    rows: Sequence[Mapping[str, Any]],
    dimensions: Mapping[str, int],
    layers: Mapping[str, Sequence[int]],
    published_tensor_bytes: int | None = None,
    published_file_bytes: int | None = None,
    notes: Sequence[str] = (),
) -> Inventory:
    """Everything a checkpoint of these dimensions holds.

    Args:
        source: What to record as the source.
        format: Whose tensor names they are.
        family: Architecture name that picks a role table.
        architecture: What the checkpoint would state about itself.
        rows: Tables with ``name shape type`` and optionally ``layers`` (a set's name) and ``each`` (words that stand
            for ``{each}`` in the name).
        dimensions: What the names in shapes stand for.
        layers: Layer sets.
        published_tensor_bytes: The publisher's total, where the blueprint does not claim to be complete: what is
            missing becomes one tensor of role ``other``, named :data:`REMAINDER`.
        published_file_bytes: Size of the files on disk, where it is known.
        notes: One sentence each.

    Raises:
        InputError: A row makes no sense, or the blueprint is larger than what was published or misses more than 2 %.
    """
    named: list[tuple[str, tuple[int, ...], str]] = []
    for row in rows:
        named += _expand(row, dimensions, layers)
        if len(named) > _MAX_TENSORS:
            raise _bad_row(str(row.get("name")), f"more than {_MAX_TENSORS:,} tensors")
    if not named:
        raise _bad_row(source, "the blueprint has no tensors")
    placements = assign_roles(
        (name for name, _, _ in named), form=format, family=family, num_layers=architecture.num_layers
    )
    tensors = [
        Tensor(
            name=name,
            role=place.role,
            type=kind,
            shape=shape,
            bytes=tensor_bytes(shape, kind, name),
            shard=0,
            layer=place.layer,
        )
        for (name, shape, kind), place in zip(named, placements, strict=True)
    ]
    all_notes = list(notes)
    if published_tensor_bytes is not None:
        tensors += _remainder(tensors, published_tensor_bytes, source, all_notes)
    total = sum(t.bytes for t in tensors)
    return Inventory(
        source=source,
        format=format,
        tensor_bytes=total,
        file_bytes=total if published_file_bytes is None else published_file_bytes,
        num_tensors=len(tensors),
        by_role=_totals(tensors, lambda t: str(t.role)),
        by_type=_totals(tensors, lambda t: t.type),
        architecture=architecture,
        files=(FileEntry(name=source, bytes=total if published_file_bytes is None else published_file_bytes),),
        header_sha256=hashlib.sha256("".join(f"{t.name} {t.type} {t.shape}\n" for t in tensors).encode()).hexdigest(),
        notes=tuple(all_notes),
        tensors=tuple(tensors),
    )


def _expand(
    row: Mapping[str, Any], dimensions: Mapping[str, int], layers: Mapping[str, Sequence[int]]
) -> list[tuple[str, tuple[int, ...], str]]:
    unknown = sorted(set(row) - _ROW_KEYS)
    if unknown or not {"name", "shape", "type"} <= set(row):
        raise _bad_row(str(row.get("name", "?")), f"a row has {', '.join(sorted(_ROW_KEYS))}; found {', '.join(row)}")
    if "layers" in row and row["layers"] not in layers:
        raise _bad_row(row["name"], f"no set of layers is called {row['layers']!r}")
    shape = tuple(evaluate(axis, dimensions) for axis in row["shape"])
    if not shape:
        raise _bad_row(row["name"], "a shape has at least one axis")
    names = [row["name"].replace("{each}", word) for word in row.get("each", [""])]
    if "layers" not in row:
        return [(name, shape, row["type"]) for name in names]
    return [(name.replace("{layer}", str(n)), shape, row["type"]) for n in layers[row["layers"]] for name in names]


def _remainder(tensors: Sequence[Tensor], published: int, source: str, notes: list[str]) -> list[Tensor]:
    missing = published - sum(t.bytes for t in tensors)
    if missing == 0:
        return []
    if not 0 < missing <= published * _MAX_REMAINDER_SHARE:
        raise InputError(
            f"{source}: the blueprint has {published - missing:,} B, published are {published:,} B",
            why=f"it may leave out at most {_MAX_REMAINDER_SHARE:.0%} and nothing can be too much",
            fix="correct the rows or the published total",
        )
    notes.append(
        f"{missing:,} B of the published total ({missing / published:.2%}) are not in the blueprint; they count as "
        "weights of no known role, kept whole on every rank."
    )
    return [Tensor(name=REMAINDER, role=Role.OTHER, type="U8", shape=(missing,), bytes=missing, shard=0)]


def _totals(tensors: Sequence[Tensor], key: Any) -> dict[str, GroupTotal]:
    sizes: dict[str, list[int]] = {}
    for tensor in tensors:
        total = sizes.setdefault(key(tensor), [0, 0])
        total[0] += tensor.bytes
        total[1] += 1
    return {name: GroupTotal(bytes=size, num_tensors=count) for name, (size, count) in sizes.items()}


def _bad_row(name: str, why: str) -> InputError:
    return InputError(f"a mistake in the blueprint: {name}", why=why, fix="correct the row in the catalogue file")
