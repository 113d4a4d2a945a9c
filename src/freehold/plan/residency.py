"""What sits in the memory of each rank: weights as the engine keeps them, context, and what comes on top.

The weights of a rank begin with an even share of what its layers hold and end with what the engine really keeps; each
step between the two has a name: router and norms that every rank keeps whole, projections that are dequantised at load,
a padded vocabulary, uneven parts of experts. So a first estimate and the true figure stand in one list.
Read :func:`estimate_residency`.

Does not do: judging whether a layout is possible (``plan/legality.py``), or whether it fits (``plan/cluster.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

from freehold.models.context_items import ContextItem
from freehold.plan.constants import kv_type
from freehold.plan.layouts import ROUTED, Layout, TensorGroup, stage_of
from freehold.plan.legality import axis_of, block_on
from freehold.plan.shards import padded_length, uneven_slices
from freehold.records.inventory import Architecture, Role

__all__ = ["RankWeights", "context_bytes", "estimate_residency", "kept_bytes", "rank_kv_bytes_per_token"]

_FLOATS = frozenset({"F32", "F16", "BF16", "F64"})
_KEPT_ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
_VOCAB_QUANTUM = 64  # rows: vLLM pads the vocabulary to a multiple of it and of the ranks (vocab_parallel_embedding.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Weights of one rank.

    Args:
        rank: Number of the rank.
        stage: Its pipeline stage.
        terms: Bytes by name; ``even_share`` first, the others may be negative.
        kept: Bytes of each tensor group, in the groups' order.
        replicated_bytes: Bytes that the other ranks of its stage hold as well.
    """

    rank: int
    stage: int
    terms: dict[str, int]
    kept: tuple[int, ...]
    replicated_bytes: int

    @property
    def weights_bytes(self) -> int:
        """All of it."""
        return sum(self.terms.values())


def estimate_residency(
    layout: Layout, groups: Sequence[TensorGroup], architecture: Architecture
) -> tuple[RankWeights, ...]:
    """Weights of every rank.

    Args:
        layout: A layout; whether it is legal is not asked, so that the price of an illegal one can be shown too.
        groups: The checkpoint's tensors with the engine's rules.
        architecture: What the checkpoint states.
    """
    block = max((block_on(g, axis) for g in groups if g.role in ROUTED and (axis := axis_of(g)) is not None), default=1)
    by_stage = [[_in_stage(g, stage, layout, architecture) for g in groups] for stage in range(layout.pp_size)]
    ranks: list[RankWeights] = []
    for rank in range(layout.num_ranks):
        stage, tp_rank = divmod(rank, layout.tp_size)
        if tp_rank and layout.width_cut != "uneven":  # all ranks of a stage hold the same amount
            ranks.append(replace(ranks[-1], rank=rank))
            continue
        ranks.append(_weigh(rank, stage, tp_rank, by_stage[stage], layout, groups, architecture, block))
    return tuple(ranks)


def _weigh(
    rank: int,
    stage: int,
    tp_rank: int,
    stored: Sequence[tuple[int, int]],
    layout: Layout,
    groups: Sequence[TensorGroup],
    architecture: Architecture,
    block: int,
) -> RankWeights:
    extras: dict[str, Fraction] = {}
    kept, replicated = [], 0
    for group, (size, count) in zip(groups, stored, strict=True):
        held = kept_bytes(group, size, count, layout, architecture, tp_rank, block) if size else 0
        kept.append(held)
        more = held - Fraction(size, layout.tp_size)
        if more:
            name = _term_of(group, layout)
            extras[name] = extras.get(name, Fraction(0)) + more
        if layout.tp_size > 1 and _is_whole(group, layout, architecture):
            replicated += held
    total = sum(kept)
    rounded = {name: round(value) for name, value in sorted(extras.items(), key=lambda e: -e[1])}
    return RankWeights(
        rank=rank,
        stage=stage,
        terms={"even_share": total - sum(rounded.values()), **{n: v for n, v in rounded.items() if v}},
        kept=tuple(kept),
        replicated_bytes=replicated,
    )


def kept_bytes(
    group: TensorGroup,
    size: int,
    count: int,
    layout: Layout,
    architecture: Architecture,
    tp_rank: int,
    block: int,
) -> int:
    """Bytes that one rank keeps of a group's tensors.

    Args:
        group: The group.
        size: Stored bytes of those of its tensors that the rank's stage holds.
        count: How many they are.
        layout: The layout.
        architecture: What the checkpoint states.
        tp_rank: The rank within its stage.
        block: Weights of an expert's width that cannot be parted.
    """
    axis = axis_of(group)
    if group.role in ROUTED:
        return _routed_bytes(group, size, count, layout, tp_rank, block)
    loaded = _loaded_bytes(group, size, count)
    if axis is None or layout.tp_size == 1:
        return loaded
    length, parts = group.shape[axis], layout.tp_size
    if group.rule.unit == "vocab":
        return loaded * padded_length(length, lcm(_VOCAB_QUANTUM, parts) // parts, parts) // length // parts
    if group.rule.unit == "kv_heads" and architecture.num_kv_heads and parts > architecture.num_kv_heads:
        return loaded // architecture.num_kv_heads
    if group.rule.is_kept_whole_if_indivisible and length % parts:
        return loaded
    return -(-loaded // parts)


def _routed_bytes(group: TensorGroup, size: int, count: int, layout: Layout, tp_rank: int, block: int) -> int:
    axis, parts = axis_of(group), layout.width_parts
    held = -(-size // layout.ep_size)
    if axis is None:
        return held
    length = group.shape[axis]
    match layout.width_cut:
        case "uneven":
            piece = uneven_slices((length,), axis=0, ranks=parts, block=block)[tp_rank % parts]
            return held * piece.length // length
        case "padded":
            return held * padded_length(length, block, parts) // length // parts
        case "dequantised" if group.role is Role.ROUTED_DOWN:
            return group.elements * count * _KEPT_ELEMENT_BYTES["BF16"] // layout.ep_size // parts
    return -(-held // parts)


def _loaded_bytes(group: TensorGroup, size: int, count: int) -> int:
    if group.rule.kept_as is None or group.type in _FLOATS:
        return size
    return group.elements * count * _KEPT_ELEMENT_BYTES[group.rule.kept_as]


def _is_whole(group: TensorGroup, layout: Layout, architecture: Architecture) -> bool:
    axis = axis_of(group)
    if group.role in ROUTED:
        return False
    if axis is None:
        return True
    return group.rule.is_kept_whole_if_indivisible and group.shape[axis] % layout.tp_size != 0


def _term_of(group: TensorGroup, layout: Layout) -> str:
    if group.role in ROUTED:
        return f"experts_{layout.width_cut}" if layout.width_cut != "even" else "rounding"
    return group.rule.term or "rounding"


def _in_stage(group: TensorGroup, stage: int, layout: Layout, architecture: Architecture) -> tuple[int, int]:
    """Stored bytes and number of a group's tensors that a stage holds."""
    if layout.pp_size == 1:
        return group.bytes, group.count
    num_layers = architecture.num_layers or 1 + max((n for n in group.layers if n is not None), default=0)
    is_input = group.role is Role.TOKEN_EMBD
    here = [n for n in group.layers if stage_of(n, layout, num_layers, is_input=is_input) == stage]
    return sum(group.layers[n] for n in here), sum(group.counts[n] for n in here)


def context_bytes(
    items: Sequence[ContextItem],
    layout: Layout,
    *,
    context_tokens: int,
    sequences: int,
    kv_type_name: str | None = None,
) -> int:
    """Bytes that the fullest rank keeps for the context of its sequences.

    Args:
        items: What the model keeps.
        layout: The layout; heads are divided between the ranks of a stage, latents are not.
        context_tokens: Tokens per sequence.
        sequences: Sequences at once.
        kv_type_name: Storage of keys, values and latents; None for each item's own.

    Raises:
        InputError: Nobody knows the type.
    """
    return sequences * sum(
        _item_bytes(item, layout, context_tokens if item.per == "token" else None, kv_type_name) for item in items
    )


def rank_kv_bytes_per_token(items: Sequence[ContextItem], layout: Layout, *, kv_type_name: str | None = None) -> float:
    """Bytes that one more token takes on the fullest rank, beyond every window.

    Args:
        items: What the model keeps.
        layout: The layout.
        kv_type_name: Storage of keys, values and latents; None for each item's own.
    """
    return sum(
        _item_bytes(item, layout, item.tokens_per_entry, kv_type_name) / item.tokens_per_entry
        for item in items
        if item.per == "token" and item.window_tokens is None
    )


def _item_bytes(item: ContextItem, layout: Layout, tokens: int | None, kv_type_name: str | None) -> int:
    kind = kv_type(kv_type_name if kv_type_name is not None and item.is_kv else item.type)
    elements = item.elements
    if item.heads is not None:
        elements = item.elements // item.heads * -(-item.heads // layout.tp_size)
    layers = -(-item.layers // layout.pp_size)
    entries = 1
    if tokens is not None:
        seen = tokens if item.window_tokens is None else min(tokens, item.window_tokens)
        entries = -(-seen // item.tokens_per_entry)
    return layers * entries * kind.bytes_for(elements)
