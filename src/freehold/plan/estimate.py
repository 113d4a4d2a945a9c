"""Does it fit, how long may the context be, how fast can it be: the plan.

Pure: everything of the world comes in as records. Read :func:`plan`, then :func:`refuse`.

Does not do: splitting a model over devices; this plans one machine's main memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from freehold.errors import PlanError
from freehold.evidence import Evidence, calculate
from freehold.plan.ceiling import decode_ceiling, step_bytes
from freehold.plan.constants import Headroom, MemoryConstants, parse_constants
from freehold.plan.footprint import Footprint, estimate_footprint
from freehold.records.inventory import Inventory, Role
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import MemoryContract, MemoryTerm, Plan
from freehold.records.recipe import Recipe
from freehold.units import format_memory

__all__ = ["plan", "refuse", "sum_terms"]

_MAX_CONTEXT_TOKENS = 2**24
"""Contexts are not searched beyond it where the checkpoint does not say what it was trained for."""
_NO_HEADROOM = Headroom(share=0.05, min_bytes=128 * 2**20, source="guess: nobody measured this engine")
_NOTABLE_SHARE = 0.01


def plan(
    recipe: Recipe,
    inventory: Inventory,
    facts: NodeFacts,
    state: NodeState,
    *,
    memory_constants: Mapping[str, Any],
    made_from: Mapping[str, str],
) -> Plan:
    """Decide whether a recipe fits this machine's free memory, and what bounds its decode speed.

    Args:
        recipe: What is to be served.
        inventory: Its checkpoint.
        facts: What the machine is.
        state: How it is now.
        memory_constants: The engine's ``memory_terms()``.
        made_from: sha256 of each record it is made from.

    Returns:
        The plan. ``fits`` is None where a term is not known and the known ones do not settle it.

    Raises:
        InputError: An engine option that memory depends on has no usable value.
    """
    constants = parse_constants(memory_constants, recipe.engine.name)
    footprint = _footprint(recipe, inventory, constants, facts, recipe.context)
    contract = _contract(footprint.terms, constants)
    step = step_bytes(inventory, kv_bytes_per_token=footprint.kv_bytes_per_token)
    return Plan(
        made_from=made_from,
        model=recipe.name,
        engine=recipe.engine.name,
        context_tokens=recipe.context,
        sequences=recipe.sequences,
        terms=footprint.terms,
        contract=contract,
        free_memory_bytes=state.free_memory_bytes,
        fits=_fits(footprint.terms, contract, state.free_memory_bytes),
        max_context_tokens=_max_context(recipe, inventory, facts, constants, footprint, state.free_memory_bytes),
        step_bytes=step,
        read_bandwidth_bytes_per_s=state.read_bandwidth_bytes_per_s,
        decode_ceiling_tok_per_s=decode_ceiling(step, state.read_bandwidth_bytes_per_s),
        notes=tuple(_notes(recipe, inventory, facts, constants, footprint)),
    )


def refuse(plan: Plan) -> None:
    """Stop if the plan does not fit; one that fits, or of which it is not known, passes.

    Raises:
        PlanError: It does not fit; the text says what takes the memory and what would free how much.
    """
    if plan.fits is not False:
        return
    free = plan.free_memory_bytes
    known = [(term, int(term.bytes.number)) for term in plan.terms if term.bytes.number is not None]
    need = plan.contract.contract_free_bytes
    needed = need.text if not need.is_missing else f"more than {format_memory(sum(size for _, size in known))}"
    named = sorted(known, key=lambda pair: -pair[1])
    shares = " + ".join(f"{term.name.replace('_', ' ')} {format_memory(size)}" for term, size in named)
    context = f"{plan.context_tokens:,} tokens × {_plural(plan.sequences, 'sequence')}"
    margin = _headroom_of(plan)
    raise PlanError(
        f"the plan does not fit: {needed} must be free, {free.text} is",
        why=f"{shares}{f' + {margin} kept free' if margin else ''} ({context})",
        fix=_fix(plan),
        facts={
            "contract_free_bytes": need.value,
            "free_memory_bytes": free.value,
            "max_context_tokens": plan.max_context_tokens.value,
            "terms": {term.name: term.bytes.value for term in plan.terms},
        },
    )


def sum_terms(terms: Sequence[MemoryTerm]) -> Evidence:
    """All terms together, or not measured naming the first that is not known.

    Args:
        terms: At least one.
    """
    return calculate(
        "bytes_memory",
        " + ".join(term.name for term in terms),
        lambda **sizes: sum(sizes.values()),
        **{term.name: term.bytes for term in terms},
    )


def _footprint(
    recipe: Recipe, inventory: Inventory, constants: MemoryConstants, facts: NodeFacts, context_tokens: int
) -> Footprint:
    return estimate_footprint(recipe, inventory, constants, machine=facts.machine, context_tokens=context_tokens)


def _contract(terms: Sequence[MemoryTerm], constants: MemoryConstants) -> MemoryContract:
    total = sum_terms(terms)
    rule = constants.headroom or _NO_HEADROOM
    return MemoryContract(
        contract_free_bytes=calculate(
            "bytes_memory",
            f"peak + the larger of {rule.share * 100:.0f} % of it and {format_memory(rule.min_bytes)}",
            lambda peak, share, minimum: peak + max(round(peak * share), minimum),
            peak=total,
            share=Evidence.assumed(rule.share, "share", source=rule.source or constants.source),
            minimum=Evidence.assumed(rule.min_bytes, "bytes_memory", source=rule.source or constants.source),
        ),
        peak_bytes=total,
        steady_bytes=total,
    )


def _fits(terms: Sequence[MemoryTerm], contract: MemoryContract, free: Evidence) -> bool | None:
    available = free.number
    if available is None:
        return None
    need = contract.contract_free_bytes.number
    if need is not None:
        return need <= available
    floor = sum(term.bytes.number for term in terms if term.bytes.number is not None)
    return False if floor > available else None


def _max_context(
    recipe: Recipe,
    inventory: Inventory,
    facts: NodeFacts,
    constants: MemoryConstants,
    footprint: Footprint,
    free: Evidence,
) -> Evidence:
    """Longest context whose contract is met, by bisection: the contract never falls as the context grows."""
    now = sum_terms(footprint.terms)
    for missing in (free, now):
        if missing.is_missing:
            return Evidence.not_measured(str(missing.reason), "tokens")
    available = free.number
    assert available is not None
    trained = inventory.architecture.context_tokens
    step = constants.kv.granularity_tokens if constants.kv is not None else 1
    limit = trained or _MAX_CONTEXT_TOKENS

    def is_met(context_tokens: int) -> bool:
        terms = _footprint(recipe, inventory, constants, facts, context_tokens).terms
        need = _contract(terms, constants).contract_free_bytes.number
        return need is not None and need <= available

    if is_met(limit):
        longest = limit
        bound = (
            "what the model was trained for; memory allows more"
            if trained
            else f"the search, which ends at {_MAX_CONTEXT_TOKENS:,} tokens"
        )
    else:
        low, high = 0, -(-limit // step)  # in steps; low is met or zero, high is not met
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_met(middle * step) else (low, middle)
        longest = low * step
        bound = f"memory, in steps of {step:,} tokens" if longest else "memory: not even the shortest fits"
    return calculate(
        "tokens",
        f"the longest whose contract is met, limited by {bound}",
        lambda free_memory, needed_now: longest,
        free_memory=free,
        needed_now=now,
    )


def _notes(
    recipe: Recipe, inventory: Inventory, facts: NodeFacts, constants: MemoryConstants, footprint: Footprint
) -> Iterator[str]:
    arch = inventory.architecture
    if footprint.layout.note:
        yield f"KV cache: {footprint.layout.note}."
    if constants.runtime is None:
        yield f"Nobody measured what {recipe.engine.name} takes beside weights and KV cache."
    if arch.context_tokens is not None and recipe.context > arch.context_tokens:
        yield (
            f"The context of {recipe.context:,} tokens is longer than the {arch.context_tokens:,} the model was "
            "trained for."
        )
    if facts.accelerators:
        names = ", ".join(dict.fromkeys(a.name for a in facts.accelerators))
        yield f"Only main memory is planned; {names} is there and its memory is not counted."
    most = max(recipe.bench.concurrency)
    if most > recipe.sequences:
        yield (
            f"The benchmark asks for {most} streams and the server takes {_plural(recipe.sequences, 'sequence')} at "
            "once: the others wait, and their waiting counts as time to first token."
        )
    other = inventory.by_role.get(Role.OTHER)
    if other is not None and other.bytes > _NOTABLE_SHARE * inventory.tensor_bytes:
        yield (
            f"{format_memory(other.bytes)} of weights have no known role; the ceiling takes them as read in every step."
        )


def _headroom_of(plan: Plan) -> str:
    need, peak = plan.contract.contract_free_bytes.number, plan.contract.peak_bytes.number
    return "" if need is None or peak is None else format_memory(int(need - peak))


def _fix(plan: Plan) -> str:
    """What frees how much: a shorter context, fewer sequences, or other programs."""
    per_token = _kv_input(plan, "bytes_per_token")
    longest = plan.max_context_tokens.number
    ways = []
    if per_token is not None and longest:
        freed = per_token * (plan.context_tokens - int(longest)) * plan.sequences
        ways.append(f"`--context {int(longest)}` frees {format_memory(int(freed))}")
    if per_token is not None and plan.sequences > 1:
        freed = per_token * plan.context_tokens * (plan.sequences - 1)
        ways.append(f"`--sequences 1` frees {format_memory(int(freed))}")
    need, free = plan.contract.contract_free_bytes.number, plan.free_memory_bytes.number
    if need is not None and free is not None:
        ways.append(f"end other programs that hold {format_memory(int(need - free))}")
    if not longest:
        ways.append("choose a smaller model or one of fewer bits per weight")
    return ", or ".join(ways)


def _kv_input(plan: Plan, name: str) -> float | int | None:
    for term in plan.terms:
        if term.name == "kv_cache" and name in term.bytes.inputs:
            return term.bytes.inputs[name].number
    return None


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
