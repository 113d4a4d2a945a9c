"""A plan over ranks and nodes: every layout with its bytes, its bounds, and why it was chosen or not.

Unlike :class:`~freehold.records.plan.Plan`, which asks whether a recipe fits the machine it is made on, this plans for
hardware that may not be there. A ceiling is a bound and never a prediction.

Does not do: arithmetic (``plan/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from freehold.evidence import Evidence
from freehold.records.base import record

__all__ = [
    "Answer",
    "ClusterPlan",
    "HypotheticalWidth",
    "LayoutPlan",
    "NodeCount",
    "PublishedSpeed",
    "RankPlan",
    "SpeculationChoice",
]


@record
class RankPlan:
    """What one rank has in memory.

    Args:
        rank: Number of the rank.
        stage: Its pipeline stage.
        terms: Weights by name, from the even share to what the engine keeps; bytes, some may be negative.
        weights_bytes: All weights.
        replicated_bytes: Those of them that the other ranks of its stage hold as well.
        kv_bytes: Keys, values, latents and recurrent state of all sequences.
        draft_bytes: Weights of a draft model.
        runtime_bytes: Driver context, workspace and graphs.
        resident_bytes: All of it while it serves.
        peak_bytes: The most at any moment; the load may need more than serving.
    """

    rank: int
    stage: int
    terms: Mapping[str, int]
    weights_bytes: int
    replicated_bytes: int
    kv_bytes: int
    draft_bytes: int
    runtime_bytes: int
    resident_bytes: int
    peak_bytes: int


@record
class LayoutPlan:
    """One layout: is it possible, does it fit, how fast can it be at most.

    Args:
        name: Short name: ``TP4 EP4``, ``TP4 uneven blocks`` …
        tp_size: Ranks that share every layer.
        pp_size: Groups of layers.
        ep_size: Groups the routed experts are divided between.
        width_cut: How an expert's width is cut: ``even uneven padded dequantised``.
        is_legal: Whether every tensor can be cut that way.
        is_supported: Whether the engine as released does it.
        fits: Whether the fullest rank's contract is met; None where the memory is not known.
        reasons: Why it is not legal or not supported, tensor and number in each.
        verdict: Why it was chosen, or why it lost, in one clause.
        per_rank: Memory of every rank.
        contract_free_bytes: What must be free on the node of the fullest rank before the load.
        peak_bytes: The most the fullest rank uses.
        steady_bytes: What the fullest rank uses while it serves.
        max_context_tokens: Longest context that fits, by number of sequences.
        ceilings: Bounds by name: bytes per step, floors in seconds, tokens per second.
    """

    name: str
    tp_size: int
    pp_size: int
    ep_size: int
    width_cut: str
    is_legal: bool
    is_supported: bool
    fits: bool | None
    reasons: tuple[str, ...]
    verdict: str
    per_rank: tuple[RankPlan, ...]
    contract_free_bytes: Evidence
    peak_bytes: Evidence
    steady_bytes: Evidence
    max_context_tokens: Mapping[str, Evidence]
    ceilings: Mapping[str, Evidence]


@record
class NodeCount:
    """What a number of nodes comes to.

    Args:
        nodes: How many.
        labelled_bytes: Memory of all of them by the label.
        headroom_bytes: What the label leaves after the tensor payload; negative where it does not.
        headroom_per_node_bytes: The same per node.
        layout: Best layout that is legal and fits; None where there is none.
        note: Why there is none, or what speaks against it.
    """

    nodes: int
    labelled_bytes: Evidence
    headroom_bytes: Evidence
    headroom_per_node_bytes: Evidence
    layout: str | None
    note: str


@record
class HypotheticalWidth:
    """The model with fewer bits per routed weight; a calculation, not a file that exists.

    Args:
        bits: Bits of a routed weight, without its scales.
        tensor_bytes: Payload with all scales kept.
        nodes_by_basis: Nodes it takes at least, by what a node is taken to hold.
    """

    bits: int
    tensor_bytes: Evidence
    nodes_by_basis: Mapping[str, Evidence]


@record
class PublishedSpeed:
    """A speed that others measured on this hardware.

    Args:
        config: What they ran.
        decode_tok_per_s: What they measured.
        share_of_ceiling: That as a share of the ceiling of each layout.
    """

    config: str
    decode_tok_per_s: Evidence
    share_of_ceiling: Mapping[str, Evidence]


@record
class SpeculationChoice:
    """How many tokens to draft per step for a workload, from what others measured.

    Args:
        workload: What was generated, and how it was measured.
        depth: The measured depth with the highest speed.
        decode_tok_per_s_by_depth: Speed of every measured depth.
    """

    workload: str
    depth: int
    decode_tok_per_s_by_depth: Mapping[str, Evidence]


@record
class Answer:
    """The answer to one of the six questions that "can it run" may mean.

    Args:
        answer: ``yes``, ``no``, ``plausible``, or ``not known``.
        reason: Why.
        evidence: The numbers behind it.
    """

    answer: Literal["yes", "no", "plausible", "not known"]
    reason: str
    evidence: Mapping[str, Evidence]


@record
class ClusterPlan:
    """How a model can be laid over hardware, what each layout takes, how fast it can be at most, and what it costs.

    Args:
        made_from: sha256 of each record and file it was made from, by name.
        model: What is planned.
        rules: Whose rules of splitting it follows.
        hardware: Name of the hardware in the catalogue.
        nodes: How many units of it; None where only a range was asked for.
        context_tokens: Tokens per sequence.
        sequences: Sequences at once.
        tensor_bytes: Payload of all tensors; feeds memory and node counts.
        file_bytes: Size of the files; feeds disk and download.
        budget_bytes: What one unit gives to a model, and in which sense.
        layouts: Every layout, and for a forbidden one the ways out.
        chosen: Name of the layout that is proposed; None where none fits.
        node_counts: The asked range of node counts.
        min_nodes: Nodes that hold the payload at least, by what a node is taken to hold.
        hypothetical: Fewer bits per routed weight.
        published: Speeds that others measured on this hardware.
        speculation: Best number of drafted tokens by workload, from what others measured on this hardware.
        answers: The six questions.
        cost: Purchase, electricity, the hosted interface and when they meet.
        notes: What is not certain, one sentence each.
    """

    schema: Literal["freehold.cluster_plan/1"] = "freehold.cluster_plan/1"
    made_from: Mapping[str, str]
    model: str
    rules: str
    hardware: str
    nodes: int | None
    context_tokens: int
    sequences: int
    tensor_bytes: Evidence
    file_bytes: Evidence
    budget_bytes: Evidence
    layouts: tuple[LayoutPlan, ...]
    chosen: str | None
    node_counts: tuple[NodeCount, ...]
    min_nodes: Mapping[str, Evidence]
    hypothetical: tuple[HypotheticalWidth, ...]
    published: tuple[PublishedSpeed, ...]
    speculation: tuple[SpeculationChoice, ...]
    answers: Mapping[str, Answer]
    cost: Mapping[str, Evidence]
    notes: tuple[str, ...] = ()
