"""Is as much memory free as the plan's contract asks for?

Does not do: the arithmetic of the contract (``plan/``).
"""

from __future__ import annotations

from freehold.preflight.question import Question
from freehold.records.verdict import Outcome, Verdict
from freehold.units import format_memory

__all__ = ["check_memory_contract"]


def check_memory_contract(question: Question) -> Verdict:
    """Compare what must be free before the load with what is free now."""
    need, free = question.plan.contract.contract_free_bytes, question.state.free_memory_bytes
    evidence = {"contract": need, "free": free}
    why = "an engine that runs out of memory during the load is killed, or takes the whole machine with it"
    if free.number is None:
        return Verdict(
            check="memory_contract",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"not known how much memory is free: {free.reason}",
            why=why,
            remedy="look at the machine's memory yourself before you go on",
            evidence=evidence,
        )
    known = sum(term.bytes.number for term in question.plan.terms if term.bytes.number is not None)
    needed = need.number if need.number is not None else known
    if needed > free.number:
        return Verdict(
            check="memory_contract",
            outcome=Outcome.FAIL,
            observation=f"{format_memory(round(needed))} must be free, {free.text} is",
            why=why,
            remedy=f"end other programs that hold {format_memory(round(needed - free.number))}, or use less context",
            evidence=evidence,
        )
    if need.number is None:
        unknown = [term.name.replace("_", " ") for term in question.plan.terms if term.bytes.is_missing]
        return Verdict(
            check="memory_contract",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"{format_memory(round(known))} of {free.text} is spoken for; not known: {', '.join(unknown)}",
            why=why,
            remedy="watch the machine's memory during the load, and begin with a short context",
            evidence=evidence,
        )
    return Verdict(
        check="memory_contract",
        outcome=Outcome.PASS,
        observation=f"{need.text} must be free, {free.text} is",
        evidence=evidence,
    )
