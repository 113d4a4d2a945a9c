"""How a model can be laid over ranks: tensor, pipeline and expert parallelism, and the ways to cut an expert.

A :class:`Layout` is one such choice. Routed experts have a choice of their own: every rank a part of each expert's
width, or whole experts, or groups of both; where the width is not divisible, uneven parts, padding, or another type.
Read :class:`Layout`, then :func:`enumerate_layouts` and :func:`group_tensors`.

Does not do: whether a layout is legal (``plan/legality.py``) or what it costs (``plan/residency.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from freehold.engines.layout_rules import LayoutRule, LayoutRules
from freehold.records.inventory import Inventory, Role

__all__ = ["ROUTED", "Layout", "TensorGroup", "enumerate_layouts", "group_tensors", "stage_of", "ways_out"]

ROUTED = frozenset({Role.ROUTED_GATE, Role.ROUTED_UP, Role.ROUTED_DOWN})
_NO_RULE = LayoutRule(roles=frozenset(), split="whole", term="vision_and_unknown")
_NUMBER = re.compile(r"[0-9]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to lay a model over ``tp_size × pp_size`` ranks.

    Args:
        tp_size: Ranks that share every layer.
        pp_size: Groups of layers, one after the other.
        ep_size: Groups that the routed experts are divided between, among the ranks of one layer.
        width_cut: How the parts of an expert's width are made: ``even``, ``uneven`` (whole blocks, not all ranks
            equally many), ``padded`` (zeros up to a divisible width) or ``dequantised`` (the cut tensor in BF16).
    """

    tp_size: int
    pp_size: int = 1
    ep_size: int = 1
    width_cut: str = "even"

    def __post_init__(self) -> None:
        if min(self.tp_size, self.pp_size, self.ep_size) < 1 or self.tp_size % self.ep_size:
            raise ValueError(f"no layout: TP{self.tp_size} PP{self.pp_size} EP{self.ep_size}")

    @property
    def num_ranks(self) -> int:
        """Ranks it takes."""
        return self.tp_size * self.pp_size

    @property
    def width_parts(self) -> int:
        """Parts of an expert's width."""
        return self.tp_size // self.ep_size

    @property
    def expert_split(self) -> str:
        """The way experts are divided, by the name that engines' rules use."""
        if self.width_cut != "even":
            return self.width_cut
        if self.ep_size == 1:
            return "width"
        return "experts" if self.width_parts == 1 else "grid"

    @property
    def text(self) -> str:
        """Its short name: ``TP4``, ``TP4 EP2 (2-D)``, ``TP4 uneven``, ``TP2 PP2``."""
        parts = [f"TP{self.tp_size}"]
        if self.pp_size > 1:
            parts.append(f"PP{self.pp_size}")
        if self.ep_size > 1:
            parts.append(f"EP{self.ep_size}")
        words = {"uneven": "uneven blocks", "padded": "padded", "dequantised": "dequantised"}
        if self.width_cut in words:
            parts.append(words[self.width_cut])
        elif self.expert_split == "grid":
            parts.append("(2-D)")
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroup:
    """Tensors that are treated alike: same rule, role, type, shape and kind of name, in one layer range.

    Args:
        part: The part of the name that tells them, such as ``ffn_down_exps``.
        role: What they are for.
        type: Storage type.
        shape: Shape of each.
        bytes: Payload of all of them.
        count: How many they are.
        layers: Bytes by layer; layer None is outside the blocks.
        counts: Tensors by layer.
        rule: How the engine keeps them.
    """

    part: str
    role: Role
    type: str
    shape: tuple[int, ...]
    bytes: int
    count: int
    layers: dict[int | None, int]
    counts: dict[int | None, int]
    rule: LayoutRule

    @property
    def elements(self) -> int:
        """Weights of one tensor."""
        return prod(self.shape)


def group_tensors(inventory: Inventory, rules: LayoutRules) -> tuple[TensorGroup, ...]:
    """Put tensors together that are treated alike; half a million become a few dozen.

    Args:
        inventory: The checkpoint, with its tensors.
        rules: The engine's rules.
    """
    cells: dict[tuple[str, Role, str, tuple[int, ...]], tuple[dict[int | None, int], dict[int | None, int]]] = {}
    parts: dict[str, str] = {}
    for tensor in inventory.tensors:
        tail = tensor.name.rsplit(".", 3)
        key = ".".join(tail[-3:]) if len(tail) > 2 else tensor.name
        part = parts.get(key)
        if part is None:
            part = parts[key] = _telling_part(key)
        cell = cells.get((part, tensor.role, tensor.type, tensor.shape))
        if cell is None:
            cell = cells[part, tensor.role, tensor.type, tensor.shape] = ({}, {})
        sizes, counts = cell
        sizes[tensor.layer] = sizes.get(tensor.layer, 0) + tensor.bytes
        counts[tensor.layer] = counts.get(tensor.layer, 0) + 1
    return tuple(
        TensorGroup(
            part=part,
            role=role,
            type=kind,
            shape=shape,
            bytes=sum(sizes.values()),
            count=sum(counts.values()),
            layers=sizes,
            counts=counts,
            rule=_rule_for(part, role, rules),
        )
        for (part, role, kind, shape), (sizes, counts) in cells.items()
    )


_STORAGE = frozenset(
    {"weight", "bias", "weight_scale", "weight_scale_inv", "weight_packed", "scale", "scales", "qweight"}
)


def _telling_part(name: str) -> str:
    parts = [p for p in name.split(".") if p not in _STORAGE and not _NUMBER.match(p)]
    return parts[-1] if parts else name


def _rule_for(part: str, role: Role, rules: LayoutRules) -> LayoutRule:
    for rule in rules.rules:
        if str(role) in rule.roles and (not rule.parts or part in rule.parts):
            return rule
    return _NO_RULE


def stage_of(layer: int | None, layout: Layout, num_layers: int, *, is_input: bool) -> int:
    """Which pipeline stage holds a layer: as many for each as the number allows, the first ones more.

    Args:
        layer: The layer; None outside the blocks, and layers after the last belong to the last stage.
        layout: The layout.
        num_layers: Number of blocks.
        is_input: Whether a tensor outside the blocks is needed at the beginning (the embedding).
    """
    if layer is None:
        return 0 if is_input else layout.pp_size - 1
    each, more = divmod(num_layers, layout.pp_size)
    if layer >= num_layers:
        return layout.pp_size - 1
    boundary = more * (each + 1)
    return layer // (each + 1) if layer < boundary else more + (layer - boundary) // max(each, 1)


def enumerate_layouts(num_ranks: int, *, has_experts: bool) -> Iterator[Layout]:
    """Every layout of a number of ranks: all products of tensor and pipeline parallelism, each with its expert groups.

    Args:
        num_ranks: Ranks there are.
        has_experts: Whether there are routed experts to divide.
    """
    for tp_size in range(num_ranks, 0, -1):
        if num_ranks % tp_size:
            continue
        for ep_size in range(1, tp_size + 1) if has_experts else (1,):
            if tp_size % ep_size == 0:
                yield Layout(tp_size=tp_size, pp_size=num_ranks // tp_size, ep_size=ep_size)


def ways_out(layout: Layout) -> Iterator[Layout]:
    """Layouts of the same ranks that cut experts otherwise where an even cut through their width is not possible.

    Args:
        layout: A layout whose experts are cut through their width.
    """
    for cut in ("uneven", "padded", "dequantised"):
        yield Layout(tp_size=layout.tp_size, pp_size=layout.pp_size, ep_size=layout.ep_size, width_cut=cut)
