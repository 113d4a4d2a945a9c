"""Is the context within what the model was trained for?

Does not do: stretching a context; an engine's own options may, and then this is a warning to keep in mind.
"""

from __future__ import annotations

from freehold.preflight.question import Question
from freehold.records.verdict import Outcome, Verdict

__all__ = ["check_context"]


def check_context(question: Question) -> Verdict:
    """Compare the asked context with the trained one."""
    asked = question.plan.context_tokens
    trained = question.inventory.architecture.context_tokens if question.inventory is not None else None
    why = "beyond it positions mean nothing to the model: text falls apart, often without an error"
    if trained is None:
        return Verdict(
            check="context",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"{asked:,} tokens are asked; the checkpoint does not say what it was trained for",
            why=why,
            remedy="look at the model's card",
        )
    if asked > trained:
        return Verdict(
            check="context",
            outcome=Outcome.WARN,
            observation=f"{asked:,} tokens are asked, the model was trained for {trained:,}",
            why=why,
            remedy=f"`--context {trained}`, or stretch positions by the engine's own options and evaluate the result",
        )
    return Verdict(
        check="context", outcome=Outcome.PASS, observation=f"{asked:,} of the {trained:,} tokens it was trained for"
    )
