"""An inventory in a few lines: totals per role, type, layer or file, and weights in bits.

Read :func:`group_tensors`.

Does not do: rendering.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Literal

from freehold.records.inventory import Inventory, Role, Tensor

__all__ = ["GROUPINGS", "TensorGroup", "bits_per_weight", "count_weights", "group_tensors"]

GROUPINGS = ("role", "type", "layer", "file")
"""What tensors can be grouped by."""

_PACKED = frozenset({"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F8_E8M0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroup:
    """Tensors that have something in common.

    Args:
        name: What they have in common.
        num_tensors: How many they are.
        bytes: Their payload.
        share: Their part of the checkpoint's payload (0–1).
        types: Their storage types, the one with most bytes first.
    """

    name: str
    num_tensors: int
    bytes: int
    share: float
    types: tuple[str, ...]


def group_tensors(inventory: Inventory, by: Literal["role", "type", "layer", "file"]) -> tuple[TensorGroup, ...]:
    """Totals of an inventory's tensors.

    Args:
        inventory: The inventory, with its tensors.
        by: What to group by; tensors outside the layers form a group of their own.

    Returns:
        Groups in the order of the model for roles, layers and files, by falling bytes for types.
    """
    key_of: Callable[[Tensor], object] = {
        "role": lambda t: t.role,
        "type": lambda t: t.type,
        "layer": lambda t: t.layer,
        "file": lambda t: t.shard,
    }[by]
    bytes_by_type: dict[object, dict[str, int]] = {}
    counts: dict[object, int] = {}
    for tensor in inventory.tensors:
        key = key_of(tensor)
        types = bytes_by_type.setdefault(key, {})
        types[tensor.type] = types.get(tensor.type, 0) + tensor.bytes
        counts[key] = counts.get(key, 0) + 1
    total = inventory.tensor_bytes
    groups = []
    for key in sorted(counts, key=lambda k: _order(k, by, bytes_by_type)):
        types = bytes_by_type[key]
        size = sum(types.values())
        groups.append(
            TensorGroup(
                name=_name(key, by, inventory),
                num_tensors=counts[key],
                bytes=size,
                share=size / total if total else 0.0,
                types=tuple(sorted(types, key=lambda name: (-types[name], name))),
            )
        )
    return tuple(groups)


def _order(key: object, by: str, bytes_by_type: dict[object, dict[str, int]]) -> tuple[int, str]:
    if by == "role":
        return list(Role).index(Role(str(key))), ""
    if by == "type":
        return -sum(bytes_by_type[key].values()), str(key)
    return key if isinstance(key, int) else -1, ""


def _name(key: object, by: str, inventory: Inventory) -> str:
    if by == "layer":
        return "outside" if key is None else str(key)
    if by == "file" and isinstance(key, int):
        return inventory.files[key].name
    return str(key)


def count_weights(inventory: Inventory) -> int | None:
    """Number of weights, None where integer types may hold several packed into one element."""
    if inventory.format == "safetensors" and any(tensor.type in _PACKED for tensor in inventory.tensors):
        return None
    return sum(prod(tensor.shape) for tensor in inventory.tensors)


def bits_per_weight(inventory: Inventory) -> float | None:
    """Mean bits per weight, scales included; None where the weights cannot be counted."""
    num_weights = count_weights(inventory)
    return 8 * inventory.tensor_bytes / num_weights if num_weights else None
