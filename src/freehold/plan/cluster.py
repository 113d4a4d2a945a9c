"""The plan over ranks and nodes: every layout with its memory and bounds, the best one, node counts, answers, cost.

Pure, and fast enough to scan node counts: tensors are put into a few dozen groups once. Read :func:`plan_cluster`.

Does not do: this machine's free memory (``plan/estimate.py`` plans a recipe here), or starting anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from freehold.engines.layout_rules import LayoutRules
from freehold.errors import InputError
from freehold.evidence import Evidence, Kind, calculate
from freehold.hardware.catalogue import MAX_UNITS, Hardware
from freehold.plan.answers import answer_questions
from freehold.plan.contract import Contract, Demand, budget_of, contract_of, longest_context, plan_ranks
from freehold.plan.cost import estimate_cost
from freehold.plan.layouts import Layout, TensorGroup, enumerate_layouts, group_tensors, ways_out
from freehold.plan.legality import Judgement, judge_layout
from freehold.plan.nodes import count_node, hypothetical_widths, min_nodes
from freehold.plan.residency import RankWeights, context_bytes, estimate_residency
from freehold.plan.roofline import layout_ceilings
from freehold.plan.speculation import choose_published_depths
from freehold.plan.subject import Subject
from freehold.records.cluster_plan import ClusterPlan, LayoutPlan, NodeCount, PublishedSpeed, RankPlan
from freehold.units import format_memory

__all__ = ["CONTEXT_SEQUENCES", "Prices", "plan_cluster"]

CONTEXT_SEQUENCES = (1, 4, 16)
"""Numbers of sequences for which the longest context is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a user knows better than the catalogue; None takes the catalogue's.

    Args:
        usd_per_kwh: Price of electricity.
        input_per_output: Uncached input tokens per output token.
        tokens_per_month: Output tokens per month.
    """

    usd_per_kwh: float | None = None
    input_per_output: float | None = None
    tokens_per_month: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Everything that does not change between layouts."""

    subject: Subject
    groups: Sequence[TensorGroup]
    rules: LayoutRules
    hardware: Hardware
    budget: Evidence
    demand: Demand

    @property
    def has_experts(self) -> bool:
        return any(g.role.startswith("routed") for g in self.groups)


def plan_cluster(
    subject: Subject,
    hardware: Hardware,
    rules: LayoutRules,
    demand: Demand,
    *,
    nodes: int | None = None,
    node_range: range | None = None,
    prices: Prices | None = None,
    budget: Evidence | None = None,
    made_from: Mapping[str, str] | None = None,
) -> ClusterPlan:
    """Plan a model for hardware that may not be there.

    Args:
        subject: The model.
        hardware: One unit.
        rules: How the engine splits.
        demand: Context and sequences.
        nodes: How many units; every layout of exactly that many ranks is planned.
        node_range: Numbers of units to scan.
        prices: What the user knows better.
        budget: What one unit gives to a model, where it was measured; the catalogue's figure by default.
        made_from: sha256 of each record it is made from.

    Raises:
        InputError: Nobody knows the KV type, or there are too many ranks.
    """
    most = max([nodes or 0, *(node_range or ())]) * hardware.accelerators_per_node
    if most > MAX_UNITS:
        raise InputError(
            f"{most:,} ranks are more than a plan is made for",
            why=f"every layout of them is looked at, up to {MAX_UNITS:,}",
            fix="plan one replica; several of them are as many plans",
        )
    prices = prices or Prices()
    case = _Case(
        subject=subject,
        groups=group_tensors(subject.inventory, rules),
        rules=rules,
        hardware=hardware,
        budget=budget or budget_of(hardware),
        demand=demand,
    )
    layouts = _plan_layouts(case, nodes * hardware.accelerators_per_node) if nodes is not None else ()
    chosen = _choose(layouts)
    layouts = tuple(_judged(layout, chosen, case) for layout in layouts)
    chosen = next((layout for layout in layouts if chosen is not None and layout.name == chosen.name), None)
    answers = {} if nodes is None else answer_questions(subject, hardware, nodes, rules, case.budget, chosen, layouts)
    return ClusterPlan(
        made_from=made_from or {},
        model=subject.name,
        rules=rules.name,
        hardware=hardware.name,
        nodes=nodes,
        context_tokens=demand.context_tokens,
        sequences=demand.sequences,
        tensor_bytes=subject.payload,
        file_bytes=subject.file_bytes,
        budget_bytes=case.budget,
        layouts=layouts,
        chosen=None if chosen is None else chosen.name,
        node_counts=tuple(_scan(case, n) for n in node_range or ()),
        min_nodes=min_nodes(subject.payload, hardware),
        hypothetical=hypothetical_widths(subject, hardware),
        published=_published(subject, hardware, nodes, layouts),
        speculation=choose_published_depths(subject, hardware, nodes),
        answers=answers,
        cost={}
        if nodes is None
        else estimate_cost(
            hardware,
            nodes,
            subject,
            usd_per_kwh=prices.usd_per_kwh,
            input_per_output=prices.input_per_output,
            tokens_per_month=prices.tokens_per_month,
        ),
        notes=tuple(_notes(case, chosen)),
    )


def _plan_layouts(case: _Case, num_ranks: int, *, is_brief: bool = False) -> tuple[LayoutPlan, ...]:
    """Every layout of a number of ranks; where an even cut through experts is forbidden, the ways out after it."""
    found = []
    for layout in enumerate_layouts(num_ranks, has_experts=case.has_experts):
        judgement = _judge(layout, case)
        found.append(_plan_layout(layout, judgement, case, is_brief=is_brief))
        if not judgement.is_legal and layout.width_parts > 1 and case.has_experts:
            for way in ways_out(layout):
                other = _judge(way, case)
                if other.is_legal:
                    found.append(_plan_layout(way, other, case, is_brief=is_brief))
    return tuple(found)


def _judge(layout: Layout, case: _Case) -> Judgement:
    return judge_layout(layout, case.groups, case.subject.inventory.architecture, case.rules)


def _plan_layout(layout: Layout, judgement: Judgement, case: _Case, *, is_brief: bool) -> LayoutPlan:
    arch = case.subject.inventory.architecture
    ranks = estimate_residency(layout, case.groups, arch)
    plans = _plan_ranks(layout, ranks, case, case.demand)
    contract = contract_of(plans, case.rules, case.subject.missing)
    need, available = contract.contract_free_bytes.number, case.budget.number
    floor = max(p.peak_bytes for p in plans)  # without the context that nobody knows the size of
    fits = (
        None if available is None else need <= available if need is not None else False if floor > available else None
    )
    is_worth_it = judgement.is_legal and not is_brief
    return LayoutPlan(
        name=layout.text,
        tp_size=layout.tp_size,
        pp_size=layout.pp_size,
        ep_size=layout.ep_size,
        width_cut=layout.width_cut,
        is_legal=judgement.is_legal,
        is_supported=judgement.is_supported,
        fits=fits,
        reasons=(*judgement.reasons, *judgement.unsupported),
        verdict="",
        per_rank=plans,
        contract_free_bytes=contract.contract_free_bytes,
        peak_bytes=contract.peak_bytes,
        steady_bytes=contract.steady_bytes,
        max_context_tokens=_contexts(layout, ranks, case) if is_worth_it else {},
        ceilings=_ceilings(layout, ranks, case) if judgement.is_legal else {},
    )


def _plan_ranks(layout: Layout, ranks: Sequence[RankWeights], case: _Case, demand: Demand) -> tuple[RankPlan, ...]:
    largest = max((g.bytes // g.count for g in case.groups), default=0)  # all of a group have one size
    return plan_ranks(ranks, layout, case.subject, case.rules, demand, largest_tensor_bytes=largest)


def _contexts(layout: Layout, ranks: Sequence[RankWeights], case: _Case) -> dict[str, Evidence]:
    def need(sequences: int, context: int) -> int | float | None:
        return _contract(layout, ranks, case, replace(case.demand, context_tokens=context, sequences=sequences))

    trained = case.subject.inventory.architecture.context_tokens
    return {
        str(n): longest_context(lambda context, n=n: need(n, context), case.budget, trained)  # type: ignore[misc]
        for n in CONTEXT_SEQUENCES
    }


def _contract(layout: Layout, ranks: Sequence[RankWeights], case: _Case, demand: Demand) -> int | float | None:
    plans = _plan_ranks(layout, ranks, case, demand)
    found: Contract = contract_of(plans, case.rules, case.subject.missing)
    return found.contract_free_bytes.number


def _ceilings(layout: Layout, ranks: Sequence[RankWeights], case: _Case) -> dict[str, Evidence]:
    demand = case.demand
    return layout_ceilings(
        layout,
        ranks,
        case.groups,
        case.subject.inventory.architecture,
        case.rules,
        bandwidth=case.hardware.fact("bandwidth"),
        all_reduce_s=case.hardware.fact("all_reduce"),
        flop_per_s=case.hardware.fact("compute", "bf16 dense"),
        sequences=demand.sequences,
        context_bytes_per_rank=context_bytes(
            case.subject.context_items,
            layout,
            context_tokens=demand.context_tokens,
            sequences=demand.sequences,
            kv_type_name=demand.kv_type,
        ),
    )


def _speed(layout: LayoutPlan) -> float:
    ceiling = layout.ceilings.get("decode_ceiling_in_turn_tok_per_s")
    return 0.0 if ceiling is None or ceiling.number is None else float(ceiling.number)


def _choose(layouts: Sequence[LayoutPlan]) -> LayoutPlan | None:
    """The fastest bound among those that are legal and fit; what the engine does as released goes before the rest."""
    able = [layout for layout in layouts if layout.is_legal and layout.fits]
    return max(able, key=lambda x: (x.is_supported, _speed(x), -x.peak_bytes.number), default=None)  # type: ignore[operator]


def _judged(layout: LayoutPlan, chosen: LayoutPlan | None, case: _Case) -> LayoutPlan:
    """The layout with why it was chosen or lost."""
    need, budget = layout.contract_free_bytes, case.budget
    if not layout.is_legal:
        verdict = f"not possible: {layout.reasons[0]}"
    elif layout.fits is None:
        verdict = f"not known whether it fits: {case.subject.missing or 'the memory of the hardware is not known'}"
    elif not layout.fits:
        least = need.text if not need.is_missing else f"more than {format_memory(_floor(layout))}"
        verdict = f"does not fit: {least} of {budget.text}{_but_exposed(need, case)}"
    elif chosen is not None and layout.name == chosen.name:
        verdict = "chosen: the highest bound of those that fit" + ("" if layout.is_supported else ", with a patch")
    elif not layout.is_supported:
        verdict = f"fits, but {layout.reasons[-1]}"
    elif chosen is not None and _speed(layout) < _speed(chosen):
        verdict = f"fits; its bound is {_speed(layout):.1f} tok/s, {chosen.name} has {_speed(chosen):.1f} tok/s"
    else:
        verdict = "fits as well"
    return replace(layout, verdict=verdict)


def _floor(layout: LayoutPlan) -> int:
    """What the fullest rank needs at least, where not every size is known."""
    return max(rank.peak_bytes for rank in layout.per_rank)


def _but_exposed(need: Evidence, case: _Case) -> str:
    """What is left to try where a plan lies between what is usable as a rule and what the system exposes."""
    exposed = case.hardware.fact("memory", "exposed")
    if exposed.number is None or need.number is None or need.number > exposed.number:
        return ""
    return f", though within the {exposed.text} that the system exposes, with nothing else running"


def _scan(case: _Case, nodes: int) -> NodeCount:
    layouts = _plan_layouts(case, nodes * case.hardware.accelerators_per_node, is_brief=True)
    best = _choose(layouts)
    note = ""
    if best is None:
        legal = [x for x in layouts if x.is_legal]
        if not legal:
            note = next((x.reasons[0] for x in layouts if x.reasons), "no layout")
        else:
            least = min(legal, key=_floor)
            need = least.contract_free_bytes
            needed = f"more than {format_memory(_floor(least))}" if need.is_missing else need.text
            note = f"{least.name} needs {needed} of {case.budget.text}"
    elif not best.is_supported:
        note = best.reasons[-1]
    return count_node(nodes, case.subject.payload, case.hardware, layout=None if best is None else best.name, note=note)


def _published(
    subject: Subject, hardware: Hardware, nodes: int | None, layouts: Sequence[LayoutPlan]
) -> tuple[PublishedSpeed, ...]:
    found = []
    for row in subject.published:
        if row["hardware"] != hardware.name or row["nodes"] != nodes:
            continue
        speed = Evidence(
            value=float(row["value"]),
            kind=Kind(row["kind"]),
            unit="tok/s",
            source=row["source"],
            date=str(row["checked"]),
        )
        shares = {
            layout.name: _share(speed, layout, is_speculative=bool(row.get("is_speculative")))
            for layout in layouts
            if layout.ceilings and layout.tp_size == row["tp_size"]
        }
        found.append(PublishedSpeed(config=row["config"], decode_tok_per_s=speed, share_of_ceiling=shares))
    return tuple(found)


def _share(speed: Evidence, layout: LayoutPlan, *, is_speculative: bool) -> Evidence:
    if is_speculative:
        return Evidence.not_measured("speculation gives several tokens per step; the bound is for steps", "share")
    return calculate(
        "share", "measured / ceiling, floors in turn", lambda measured, ceiling: measured / ceiling,
        measured=speed, ceiling=layout.ceilings["decode_ceiling_in_turn_tok_per_s"],
    )  # fmt: skip


def _notes(case: _Case, chosen: LayoutPlan | None) -> list[str]:
    arch, demand = case.subject.inventory.architecture, case.demand
    notes = [
        *case.subject.inventory.notes,
        *((case.subject.missing,) if case.subject.missing else ()),
        *case.subject.notes,
        *case.hardware.notes,
    ]
    if arch.context_tokens is not None and demand.context_tokens > arch.context_tokens:
        notes.append(
            f"A context of {demand.context_tokens:,} tokens is longer than the {arch.context_tokens:,} the model was "
            "trained for."
        )
    if arch.num_heads is None:
        notes.append(
            "Nothing says how many attention heads there are; whether they divide between ranks was not checked."
        )
    own = case.rules.own_all_reduce_sizes
    if chosen is not None and own and chosen.tp_size > 1 and chosen.tp_size not in own:
        sizes = ", ".join(map(str, own))
        notes.append(
            f"{case.rules.name} has an all-reduce of its own for {sizes} ranks; {chosen.tp_size} ranks use the "
            "library's."
        )
    recurrent = [i.name for i in case.subject.context_items if i.per == "sequence"]
    if recurrent and any(i.per == "token" for i in case.subject.context_items):
        notes.append(
            "An engine that keeps recurrent state and KV cache in pages of one size holds fewer tokens than the sum "
            "here says; one published load held 6,638 tokens in 3 GiB. Read the capacity back from the engine."
        )
    if case.rules.runtime_bytes:
        notes.append(
            f"{format_memory(case.rules.runtime_bytes)} per rank beside weights and context is "
            f"{case.rules.runtime_kind}: {case.rules.runtime_source}."
        )
    return notes
