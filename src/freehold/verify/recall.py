"""Does what stands early in a prompt decide what comes later? A prompt is changed in one word far back.

Read :func:`judge_recall`. The continuation is compared with the fact itself, which every language model can copy, not
with a text another engine wrote.

Does not do: measuring how far back a model can look.
"""

from __future__ import annotations

from collections.abc import Mapping

from freehold.engines.interface import Generation
from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict

__all__ = ["judge_recall"]

_CHECK = "context_sensitivity"


def judge_recall(recalls: Mapping[str, Generation]) -> Verdict:
    """Whether the continuation follows the changed fact.

    Args:
        recalls: Continuation by fact.
    """
    texts = [run.text for run in recalls.values()]
    num_recalled = sum(fact.strip() in run.text for fact, run in recalls.items())
    num = len(recalls)
    evidence = {
        "recalled": Evidence.measured(num_recalled, "facts", source="continuations that hold their fact", n=num),
        "distinct": Evidence.measured(len(set(texts)), "answers", source="different continuations", n=num),
    }
    seen = ", ".join(f"{fact.strip()} → {run.text.strip()[:20]!r}" for fact, run in recalls.items())
    if num_recalled == num:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.PASS,
            observation=f"{num} of {num} facts from early in the prompt come back",
            evidence=evidence,
        )
    is_blind = num_recalled == 0 or len(set(texts)) == 1
    return Verdict(
        check=_CHECK,
        outcome=Outcome.FAIL if is_blind else Outcome.WARN,
        observation=f"{num_recalled} of {num} facts from early in the prompt come back: {seen}",
        why="the answers do not depend on the prompt; attention or its cache is broken, or the weights are"
        if is_blind
        else "copying a word is easy for any language model",
        remedy="try another build of the engine, without quantized KV cache and flash attention",
        evidence=evidence,
    )
