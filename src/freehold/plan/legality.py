"""Whether a layout is possible at all, and if not, which tensor and which number forbid it.

A layout is legal when every tensor that the engine cuts can be cut there: heads stay whole, experts stay whole or are
cut between quantisation blocks, every rank of a stage has layers. What the engine itself can do is asked apart: a
layout may be sound and yet need a patched engine. Read :func:`judge_layout`.

Does not do: memory (``plan/residency.py``); a legal layout may not fit.

Source: the block length of a type is ggml's; ``data/gguf_types.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from freehold.engines.layout_rules import LayoutRules
from freehold.models.blueprint import block_of
from freehold.plan.layouts import ROUTED, Layout, TensorGroup
from freehold.plan.shards import objection
from freehold.records.inventory import Architecture, Role

__all__ = ["Judgement", "axis_of", "block_on", "judge_layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What speaks against a layout.

    Args:
        reasons: Why the model cannot be cut that way, tensor and number in each; empty for a legal layout.
        unsupported: Why the engine as released does not do it; empty where it does.
    """

    reasons: tuple[str, ...]
    unsupported: tuple[str, ...]

    @property
    def is_legal(self) -> bool:
        """Whether the model can be cut that way."""
        return not self.reasons

    @property
    def is_supported(self) -> bool:
        """Whether the engine as released does it."""
        return not self.unsupported


def judge_layout(
    layout: Layout, groups: Sequence[TensorGroup], architecture: Architecture, rules: LayoutRules
) -> Judgement:
    """Every reason against a layout.

    Args:
        layout: The layout.
        groups: The checkpoint's tensors.
        architecture: What the checkpoint states.
        rules: The engine's rules.
    """
    reasons = [*_heads(layout, architecture), *_experts(layout, groups, architecture)]
    if architecture.num_layers is not None and layout.pp_size > architecture.num_layers:
        reasons.append(f"PP{layout.pp_size}: {architecture.num_layers} layers leave a stage without any")
    for group in groups:
        reason = _objection_to(group, layout, architecture)
        if reason is not None and reason not in reasons:
            reasons.append(reason)
    return Judgement(reasons=tuple(reasons), unsupported=tuple(_unsupported(layout, groups, rules)))


def axis_of(group: TensorGroup) -> int | None:
    """The axis on which a group's tensors are cut, counted from the front; None where they are kept whole."""
    dimensions = len(group.shape)
    match group.rule.split:
        case "first":
            return 0
        case "rows":
            return dimensions - 2 if dimensions > 1 else 0
        case "columns":
            return dimensions - 1
        case _:
            return None


def block_on(group: TensorGroup, axis: int) -> int:
    """Weights that cannot be parted on an axis: a quantisation block on the last one, 1 on any other."""
    block = block_of(group.type)
    return block[0] if block is not None and axis == len(group.shape) - 1 else 1


def _heads(layout: Layout, arch: Architecture) -> Iterator[str]:
    if arch.num_heads is not None and arch.num_heads % layout.tp_size:
        yield (
            f"TP{layout.tp_size}: {arch.num_heads} attention heads / {layout.tp_size} = "
            f"{arch.num_heads / layout.tp_size:.2f}"
        )
    kv = arch.num_kv_heads
    if kv is not None and arch.kv_lora_rank is None and kv % layout.tp_size and layout.tp_size % kv:
        yield f"TP{layout.tp_size}: {kv} key/value heads can neither be divided nor repeated between {layout.tp_size}"


def _experts(layout: Layout, groups: Sequence[TensorGroup], arch: Architecture) -> Iterator[str]:
    experts = arch.num_routed_experts
    has_experts = any(group.role in ROUTED for group in groups)
    if layout.ep_size > 1 and (not has_experts or not experts):
        yield f"EP{layout.ep_size}: the checkpoint has no routed experts to divide"
    elif experts and experts % layout.ep_size:
        yield f"EP{layout.ep_size}: {experts} experts / {layout.ep_size} = {experts / layout.ep_size:.2f}"


def _objection_to(group: TensorGroup, layout: Layout, arch: Architecture) -> str | None:
    axis = axis_of(group)
    is_routed = group.role in ROUTED
    parts = layout.width_parts if is_routed else layout.tp_size
    if axis is None or parts == 1 or group.rule.is_kept_whole_if_indivisible or group.rule.unit == "vocab":
        return None
    if group.rule.unit == "kv_heads" and arch.num_kv_heads is not None and parts % arch.num_kv_heads == 0:
        return None  # each rank keeps one whole head
    if is_routed and layout.width_cut in ("padded", "uneven"):
        return None
    if is_routed and layout.width_cut == "dequantised" and axis == len(group.shape) - 1:
        return None if group.shape[axis] % parts == 0 else f"TP{parts}: {group.part} {group.shape[axis]} / {parts}"
    why = objection(group.shape[axis], block_on(group, axis), parts)
    if why is None:
        return None
    return f"TP{layout.tp_size}: {group.part} {why} ({group.type})"


def _unsupported(layout: Layout, groups: Sequence[TensorGroup], rules: LayoutRules) -> Iterator[str]:
    if rules.tp_sizes and layout.tp_size not in rules.tp_sizes:
        sizes = ", ".join(f"TP{size}" for size in rules.tp_sizes)
        yield f"{rules.name} does {sizes} only; it divides by layers"
    has_experts = any(group.role in (Role.ROUTED_DOWN, Role.ROUTED_GATE) for group in groups)
    if has_experts and layout.expert_split not in rules.expert_splits:
        how = {
            "grid": "groups of experts, each cut through its width",
            "uneven": "uneven parts of an expert's width",
            "padded": "padded experts",
            "dequantised": "one expert matrix in another type than its file has",
        }.get(layout.expert_split, layout.expert_split)
        yield f"{rules.name} as released does not do {how}; it needs a patch"
