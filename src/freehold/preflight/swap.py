"""Is memory already short enough that the system swaps?

Does not do: changing swap.
"""

from __future__ import annotations

from freehold.preflight.question import Question, thresholds
from freehold.records.verdict import Outcome, Verdict

__all__ = ["check_swap"]


def check_swap(question: Question) -> Verdict:
    """Look at the swap in use."""
    used = question.state.swap_used_bytes
    why = "weights that are swapped out are read from disk at every token"
    if used.number is None:
        return Verdict(
            check="swap",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"not known whether the system swaps: {used.reason}",
            why=why,
            remedy="look at the system's memory pressure yourself",
            evidence={"used": used},
        )
    if used.number > thresholds()["swap"]["tolerated_bytes"]:
        return Verdict(
            check="swap",
            outcome=Outcome.WARN,
            observation=f"{used.text} of swap is in use",
            why=why,
            remedy="end other programs, then `sudo swapoff -a && sudo swapon -a` to bring pages back",
            evidence={"used": used},
        )
    return Verdict(
        check="swap", outcome=Outcome.PASS, observation=f"{used.text} of swap in use", evidence={"used": used}
    )
