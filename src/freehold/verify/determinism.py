"""Does the same question get the same answer every time? Greedy runs of several prompts against each other.

Token ids are compared where the server gives them, text elsewhere. Where two runs part at a near tie, rounding
explains it (batches of another size, another order of sums) and it is a warning, not a failure. Read
:func:`judge_determinism`.

Does not do: comparing with another engine; greedy texts of two healthy engines part at the first near tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freehold.engines.interface import Generation
from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict

__all__ = ["judge_determinism"]

_CHECK = "determinism"


def judge_determinism(runs: Mapping[str, Sequence[Generation]], near_tie_nats: float) -> Verdict:
    """Compare all runs of each prompt with the first one.

    Args:
        runs: Runs by prompt.
        near_tie_nats: Margin between two tokens below which rounding may swap them.
    """
    num_runs = sum(len(found) for found in runs.values())
    has_ids = all(run.token_ids is not None for found in runs.values() for run in found)
    parted: list[str] = []
    is_explained = True
    for name, found in runs.items():
        for number, run in enumerate(found[1:], start=2):
            place = _first_difference(found[0], run, has_ids)
            if place is None:
                continue
            margin = _margin_at(found[0], run, place) if has_ids else None
            is_explained &= margin is not None and margin <= near_tie_nats
            tie = f", margin {margin:.3f} nats" if margin is not None else ""
            parted.append(f"{name}, run {number}, from {'token' if has_ids else 'character'} {place + 1}{tie}")
    evidence = {
        "runs": Evidence.measured(num_runs, "runs", source=f"greedy, {len(runs)} prompts", n=num_runs),
        "runs_that_differ": Evidence.measured(len(parted), "runs", source="compared with each first run", n=num_runs),
    }
    kind = "token ids" if has_ids else "texts"
    if not parted:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.PASS,
            observation=f"{num_runs} greedy runs of {len(runs)} prompts: {kind} equal in every run",
            evidence=evidence,
        )
    return Verdict(
        check=_CHECK,
        outcome=Outcome.WARN if is_explained else Outcome.FAIL,
        observation=f"greedy runs of one prompt differ: {'; '.join(parted[:3])}",
        why="two tokens were so close that rounding decided"
        if is_explained
        else "the server's state leaks from one request into the next, or its arithmetic is not reproducible",
        remedy="turn off what changes the order of sums (batch-dependent kernels) if equal runs matter"
        if is_explained
        else "try again without prefix cache, speculation and other load; then suspect memory or kernels",
        evidence=evidence,
    )


def _first_difference(first: Generation, other: Generation, has_ids: bool) -> int | None:
    a: Sequence[object] = (first.token_ids or ()) if has_ids else first.text
    b: Sequence[object] = (other.token_ids or ()) if has_ids else other.text
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _margin_at(first: Generation, other: Generation, place: int) -> float | None:
    """How far the two runs held their own choice ahead there; the smaller of the two margins."""
    margins = []
    for run in (first, other):
        if run.scores is None or place >= len(run.scores):
            return None
        score = run.scores[place]
        if score.top_logprob is None or score.runner_up_logprob is None:
            return None
        margins.append(score.top_logprob - score.runner_up_logprob)
    return min(margins)
