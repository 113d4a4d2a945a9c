"""Does the engine judge a token the same while generating it and when it is given? Needs no reference.

Generating computes one token at a time and reads every key and value it wrote before; a given text is computed in one
batch. The two paths use other kernels, and a damaged KV cache or prefill shows as a difference. Read
:func:`judge_rescoring`.

Does not do: saying which of the two paths is right.
"""

from __future__ import annotations

from collections.abc import Mapping

from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict
from freehold.verify.divergence import measure_divergence
from freehold.verify.interview import Rescored

__all__ = ["judge_rescoring"]

_CHECK = "rescoring"


def judge_rescoring(rescored: Mapping[str, Rescored], limit: Evidence, date: str) -> Verdict:
    """Compare an engine's two scores of its own tokens.

    Args:
        rescored: Both scores by prompt; empty where the server does not give them.
        limit: Largest mean absolute difference in nats.
        date: When the server was asked.
    """
    if not rescored:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.WARN,
            observation="the server does not give the scores of both paths, so they were not compared",
            why="a damaged KV cache could go unseen",
            remedy="use an engine that gives token ids and log-probabilities",
        )
    found = measure_divergence(
        {name: pair.given for name, pair in rescored.items()},
        {name: pair.generated for name, pair in rescored.items()},
        decisive_margin_nats=0.0,
    )
    evidence = {
        "mean_abs_difference": Evidence.measured(
            found.mean_abs_nats,
            "nats",
            source="the server's own tokens, generated against given",
            date=date,
            n=found.num_positions,
        ),
        "mean_abs_difference_limit": limit,
    }
    number = limit.number
    assert number is not None
    figures = (
        f"mean |Δ| {found.mean_abs_nats:.4f} nats (limit {number:.3f}), largest {found.max_abs_nats:.3f}, "
        f"over {found.num_positions} tokens"
    )
    if found.mean_abs_nats > number:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.FAIL,
            observation=f"generated and given tokens are scored differently: {figures}",
            why="prefill and decode do not compute the same thing; the KV cache, an attention kernel or the graph of "
            "one of them is suspect",
            remedy="try without flash attention, without a quantized KV cache, and in eager mode",
            evidence=evidence,
        )
    return Verdict(check=_CHECK, outcome=Outcome.PASS, observation=figures, evidence=evidence)
