"""How fast a layout can be at most: bytes over bandwidth, all-reduces times their latency, prefill over FLOP/s.

Each is a floor under the time of a step that no kernel can go below; the ceiling is what remains if the larger of them
were the only cost. With pipeline stages one sequence passes them one after the other, so their times add up. A ceiling
is a bound, never a prediction. Read :func:`layout_ceilings`.

Does not do: measuring; latencies and bandwidths come from the catalogue or a probe.

Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from freehold.engines.layout_rules import LayoutRules
from freehold.evidence import Evidence, calculate
from freehold.models.dimensions import evaluate
from freehold.plan.layouts import ROUTED, Layout, TensorGroup
from freehold.plan.residency import RankWeights
from freehold.records.inventory import Architecture, Role

__all__ = [
    "active_params",
    "active_step_bytes",
    "all_reduces",
    "decode_steps_per_s",
    "distinct_experts",
    "file_bytes_per_token",
    "layout_ceilings",
    "scan_s",
    "step_bytes_of_rank",
]

_UNREAD = frozenset({Role.DRAFT, Role.VISION})


def distinct_experts(num_experts: int, experts_per_token: int, tokens: int) -> float:
    """Experts of a layer that some tokens touch together on average, if the router spreads them evenly.

    E · (1 − (1 − k/E)^M): 16 of 896 for one token, 126.4 for 8 tokens, and never M · k of them.

    Args:
        num_experts: Experts of a layer, E.
        experts_per_token: Experts per token, k.
        tokens: Tokens in one step, M.
    """
    return num_experts * (1 - (1 - experts_per_token / num_experts) ** tokens)


def file_bytes_per_token(groups: Sequence[TensorGroup], architecture: Architecture) -> int:
    """Stored bytes that all ranks together read for one token: everything but the embedding, and the chosen experts.

    Args:
        groups: The checkpoint's tensors.
        architecture: What the checkpoint states.
    """
    return sum(_read_of(g, g.bytes, architecture, 1, 1) for g in groups)


def step_bytes_of_rank(
    rank: RankWeights,
    groups: Sequence[TensorGroup],
    architecture: Architecture,
    layout: Layout,
    sequences: int,
) -> int:
    """Bytes of weights that one rank reads per decode step; where in doubt the fewer, so that the bound holds.

    Of the routed experts a rank reads at least those of one token: ⌈k / groups⌉ of the E / groups it holds, because
    some group is chosen that often. Of the embedding it reads a row per sequence, unless it is also the head.

    Args:
        rank: The rank's weights.
        groups: The checkpoint's tensors, in the same order.
        architecture: What the checkpoint states.
        layout: The layout.
        sequences: Sequences advanced together.
    """
    return sum(
        _read_of(g, held, architecture, layout.ep_size, sequences) for g, held in zip(groups, rank.kept, strict=True)
    )


def _read_of(group: TensorGroup, held: int, arch: Architecture, ep_size: int, sequences: int) -> int:
    if group.role in _UNREAD:
        return 0
    if group.role is Role.TOKEN_EMBD and not arch.tied_embeddings:
        return min(held, held * sequences // group.shape[0])
    if group.role in ROUTED and arch.num_routed_experts and arch.num_experts_per_token:
        held_experts = arch.num_routed_experts / ep_size
        return round(held * min(1.0, ceil(arch.num_experts_per_token / ep_size) / held_experts))
    return held


def active_params(groups: Sequence[TensorGroup], architecture: Architecture) -> int:
    """Weights that one token is multiplied with: all but the embedding, and of the routed experts the chosen share.

    Args:
        groups: The checkpoint's tensors.
        architecture: What the checkpoint states.
    """
    total = 0
    for group in groups:
        weights = group.elements * group.count
        total += _read_of(group, weights, architecture, 1, 1) if len(group.shape) > 1 else 0
    return total


def all_reduces(
    rules: LayoutRules, groups: Sequence[TensorGroup], architecture: Architecture
) -> tuple[tuple[int, int], ...]:
    """What the ranks of a layer add up for every token: pairs of how many, and bytes of each.

    Args:
        rules: The engine's rules.
        groups: The checkpoint's tensors.
        architecture: What the checkpoint states.
    """
    moe = {n for g in groups if g.role in ROUTED for n in g.layers if n is not None}
    layers = {n for g in groups if g.role not in _UNREAD for n in g.layers if n is not None}
    counts = {"layers": len(layers), "moe_layers": len(moe), "dense_layers": len(layers - moe)}
    latent = min((min(g.shape) for g in groups if g.role is Role.LATENT_PROJ and len(g.shape) == 2), default=0)
    widths = {"hidden": architecture.hidden_size or 0, "latent": latent or architecture.hidden_size or 0}
    if not widths["hidden"]:
        return ()
    return tuple(
        (counts[rule.per], evaluate(rule.elements, widths) * rule.element_bytes)
        for rule in rules.all_reduces
        if counts[rule.per]
    )


def layout_ceilings(
    layout: Layout,
    ranks: Sequence[RankWeights],
    groups: Sequence[TensorGroup],
    architecture: Architecture,
    rules: LayoutRules,
    *,
    bandwidth: Evidence,
    all_reduce_s: Evidence,
    flop_per_s: Evidence,
    sequences: int,
    context_bytes_per_rank: int,
) -> dict[str, Evidence]:
    """Every bound of a layout, with its lineage.

    Args:
        layout: The layout.
        ranks: Weights of its ranks.
        groups: The checkpoint's tensors.
        architecture: What the checkpoint states.
        rules: The engine's rules.
        bandwidth: Read bandwidth of one unit.
        all_reduce_s: Duration of one small all-reduce, or not measured.
        flop_per_s: Dense peak of one unit, or not measured.
        sequences: Sequences advanced together.
        context_bytes_per_rank: What a rank reads of the context at the asked depth.
    """
    source = f"weights as {rules.name} keeps them, replication included"
    slowest = [
        max(step_bytes_of_rank(r, groups, architecture, layout, sequences) for r in ranks if r.stage == stage)
        for stage in range(layout.pp_size)
    ]
    # Context bytes are those of all stages of one rank's column; each stage has its own share of the layers.
    step = Evidence.verified(sum(slowest), "bytes_disk", source=source)
    deep = calculate(
        "bytes_disk", "weights + context of every sequence", lambda weights, context: weights + context,
        weights=step, context=Evidence.verified(
            context_bytes_per_rank * layout.pp_size, "bytes_disk", source="KV cache and state at the asked context"
        ),
    )  # fmt: skip
    pairs = all_reduces(rules, groups, architecture) if layout.tp_size > 1 else ()
    count = sum(n for n, _ in pairs) + (layout.pp_size - 1)
    how = " + ".join(f"{n} × {size:,} B" for n, size in pairs) or "none: one rank per layer"
    messages = Evidence.verified(
        count, "", source=f"{how}{f' + {layout.pp_size - 1} stage hand-overs' if layout.pp_size > 1 else ''}"
    )
    reading = _seconds(step, bandwidth)
    talking = (
        calculate(
            "s", "messages × time of one", lambda messages, each: messages * each, messages=messages, each=all_reduce_s
        )
        if count
        else Evidence.verified(0.0, "s", source="nothing is exchanged")
    )
    asked = Evidence.verified(sequences, "", source="sequences advanced together")
    found = {
        "step_bytes": step,
        "all_reduces": messages,
        "bandwidth_floor_s": reading,
        "all_reduce_floor_s": talking,
        "decode_ceiling_tok_per_s": _rate("sequences / the longer of both floors", reading, talking, asked, _larger),
        "decode_ceiling_in_turn_tok_per_s": _rate(
            "sequences / both floors: nothing is read while ranks wait for one another", reading, talking, asked, _add
        ),
        "decode_ceiling_at_context_tok_per_s": _rate(
            "sequences / both floors, context read as well", _seconds(deep, bandwidth), talking, asked, _add
        ),
    }
    weights = Evidence.verified(active_params(groups, architecture), "", source="weights one token is multiplied with")
    found["prefill_ceiling_tok_per_s"] = calculate(
        "tok/s", "ranks of a stage × dense peak / (2 × active weights); attention not counted",
        lambda ranks, peak, active: ranks * peak / (2 * active),
        ranks=Evidence.verified(layout.num_ranks, "", source="the layout"), peak=flop_per_s, active=weights,
    )  # fmt: skip
    return found


def _add(a: float, b: float) -> float:
    return a + b


def _larger(a: float, b: float) -> float:
    return max(a, b)


def _seconds(step: Evidence, bandwidth: Evidence) -> Evidence:
    return calculate(
        "s", "bytes per step / bandwidth", lambda step, bandwidth: step / bandwidth, step=step, bandwidth=bandwidth
    )


def _rate(
    formula: str, reading: Evidence, talking: Evidence, sequences: Evidence, join: Callable[[float, float], float]
) -> Evidence:
    if talking.is_missing:  # the bandwidth alone is still a bound
        return calculate(
            "tok/s", "sequences / bandwidth floor; the links' latency is not known",
            lambda reading, sequences: sequences / reading,
            reading=reading, sequences=sequences,
        )  # fmt: skip
    return calculate(
        "tok/s", formula, lambda reading, talking, sequences: sequences / join(reading, talking),
        reading=reading, talking=talking, sequences=sequences,
    )  # fmt: skip


def active_step_bytes(active_params: Evidence, bits: Evidence) -> Evidence:
    """Bytes of a step if every active weight had so many bits and nothing else were read: 13 billion × 4 bits = 6.5 GB.

    Args:
        active_params: Published number of active weights.
        bits: Bits per weight.
    """
    return calculate(
        "bytes_disk",
        "active weights × bits / 8",
        lambda active, bits: active * bits / 8,
        active=active_params,
        bits=bits,
    )


def decode_steps_per_s(step: Evidence, bandwidth: Evidence) -> Evidence:
    """Steps of the target model per second that a bandwidth permits.

    Args:
        step: Bytes per step.
        bandwidth: Bytes per second, of memory or of a disk.
    """
    return calculate(
        "tok/s", "bandwidth / bytes per step", lambda step, bandwidth: bandwidth / step, step=step, bandwidth=bandwidth
    )


def scan_s(size: Evidence, bandwidth: Evidence) -> Evidence:
    """How long reading so many bytes once takes.

    Args:
        size: Bytes.
        bandwidth: Bytes per second.
    """
    return calculate("s", "bytes / bandwidth", lambda size, bandwidth: size / bandwidth, size=size, bandwidth=bandwidth)
