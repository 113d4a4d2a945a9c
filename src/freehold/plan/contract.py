"""What a rank's memory has to give: before the load, at the most, and while it serves; and what a node has to give.

The contract is the peak and a margin. While weights load, the largest tensor is in memory once more, because it is read
whole before a rank takes its part. Read :func:`plan_ranks`, then :func:`longest_context`.

Does not do: choosing between layouts (``plan/cluster.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from freehold.engines.layout_rules import LayoutRules
from freehold.evidence import Evidence, Kind, calculate
from freehold.hardware.catalogue import Hardware
from freehold.plan.cost import assumption
from freehold.plan.layouts import Layout
from freehold.plan.residency import RankWeights, context_bytes
from freehold.plan.subject import Subject
from freehold.records.cluster_plan import RankPlan

__all__ = ["Contract", "Demand", "budget_of", "contract_of", "longest_context", "plan_ranks"]

_LONGEST_SEARCHED = 2**22
"""Tokens beyond which contexts are not searched where nobody says what the model was trained for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be served.

    Args:
        context_tokens: Tokens per sequence.
        sequences: Sequences at once.
        kv_type: Storage of the cache; None for the model's own.
        draft_bytes: Weights of a draft model, divided between the ranks of a stage.
    """

    context_tokens: int
    sequences: int
    kv_type: str | None = None
    draft_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the fullest rank needs.

    Args:
        contract_free_bytes: Free before the load.
        peak_bytes: At the most.
        steady_bytes: While it serves.
    """

    contract_free_bytes: Evidence
    peak_bytes: Evidence
    steady_bytes: Evidence


def budget_of(hardware: Hardware) -> Evidence:
    """What one unit gives to a model: usable memory where somebody states it, else exposed, else labelled.

    Where system and model share a memory and only the label is known, the display's reservation is taken off it.

    Args:
        hardware: The unit.
    """
    for basis in ("usable", "exposed"):
        found = hardware.fact("memory", basis)
        if not found.is_missing:
            return found
    labelled, reserve = hardware.fact("memory", "labelled"), hardware.fact("display_reserve")
    if hardware.is_unified and not reserve.is_missing:
        return calculate(
            "bytes_memory", "label − display reservation", lambda label, reserve: label - reserve,
            label=labelled, reserve=reserve,
        )  # fmt: skip
    return labelled


def plan_ranks(
    ranks: Sequence[RankWeights],
    layout: Layout,
    subject: Subject,
    rules: LayoutRules,
    demand: Demand,
    *,
    largest_tensor_bytes: int,
) -> tuple[RankPlan, ...]:
    """Memory of every rank with everything that comes on top of its weights.

    Args:
        ranks: Weights of every rank.
        layout: The layout.
        subject: The model.
        rules: The engine's rules.
        demand: What is to be served.
        largest_tensor_bytes: What is in memory once more while weights load.

    Raises:
        InputError: Nobody knows the KV type.
    """
    kept = context_bytes(
        subject.context_items,
        layout,
        context_tokens=demand.context_tokens,
        sequences=demand.sequences,
        kv_type_name=demand.kv_type,
    )
    draft = -(-demand.draft_bytes // layout.tp_size)
    plans = []
    for rank in ranks:
        drafting = draft if rank.stage == layout.pp_size - 1 else 0
        steady = rank.weights_bytes + kept + drafting + rules.runtime_bytes
        plans.append(
            RankPlan(
                rank=rank.rank,
                stage=rank.stage,
                terms=rank.terms,
                weights_bytes=rank.weights_bytes,
                replicated_bytes=rank.replicated_bytes,
                kv_bytes=kept,
                draft_bytes=drafting,
                runtime_bytes=rules.runtime_bytes,
                resident_bytes=steady,
                peak_bytes=max(steady, rank.weights_bytes + drafting + largest_tensor_bytes),
            )
        )
    return tuple(plans)


def contract_of(plans: Sequence[RankPlan], rules: LayoutRules, missing: str = "") -> Contract:
    """What the fullest rank needs, with its sum as lineage.

    Args:
        plans: Memory of every rank.
        rules: The engine's rules.
        missing: Why the size of some context is not known; then nothing that includes it is.
    """
    fullest = max(plans, key=lambda p: (p.peak_bytes, p.resident_bytes))
    parts = {
        "weights": Evidence.verified(
            fullest.weights_bytes, "bytes_memory", source=f"tensor by tensor as {rules.name} keeps them"
        ),
        "context": Evidence.not_measured(missing.rstrip("."), "bytes_memory")
        if missing
        else Evidence.verified(fullest.kv_bytes, "bytes_memory", source="what the model keeps per token and sequence"),
        "draft": Evidence.verified(fullest.draft_bytes, "bytes_memory", source="draft model, published size"),
        "runtime": Evidence(
            value=fullest.runtime_bytes,
            kind=Kind(rules.runtime_kind),
            unit="bytes_memory",
            source=rules.runtime_source or "nobody measured it",
            date=rules.checked,
        ),
    }
    steady = calculate("bytes_memory", " + ".join(parts), lambda **sizes: sum(sizes.values()), **parts)
    load = Evidence.assumed(
        fullest.peak_bytes - fullest.resident_bytes,
        "bytes_memory",
        source="guess: the largest tensor is read whole before a rank takes its part, before context and graphs",
    )
    peak = calculate("bytes_memory", "steady + load", lambda steady, load: steady + load, steady=steady, load=load)
    free = calculate(
        "bytes_memory", "peak + the larger of a share of it and a minimum",
        lambda peak, share, minimum: peak + max(round(peak * share), minimum),
        peak=peak, share=assumption("margin_share"), minimum=assumption("margin_bytes"),
    )  # fmt: skip
    return Contract(contract_free_bytes=free, peak_bytes=peak, steady_bytes=steady)


def longest_context(need: Callable[[int], int | float | None], budget: Evidence, trained: int | None) -> Evidence:
    """Longest context whose contract fits, by bisection: the contract never falls as the context grows.

    Args:
        need: Bytes that the contract asks for at a context.
        budget: What a unit gives.
        trained: What the model was trained for; None where nobody says.
    """
    available = budget.number
    if available is None:
        return Evidence.not_measured(str(budget.reason), "tokens")

    def fits(context: int) -> bool:
        wanted = need(context)
        return wanted is not None and wanted <= available

    if not fits(1):
        return Evidence.not_measured("does not fit at any context", "tokens")
    limit = trained or _LONGEST_SEARCHED
    low, high = 1, limit + 1
    if fits(limit):
        low = limit
        bound = "what the model was trained for" if trained else "the longest that is searched"
    else:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        bound = "memory"
    return calculate(
        "tokens", f"longest context whose contract fits; the limit is {bound}", lambda budget: low, budget=budget
    )
