"""Does the server compute what the checkpoint computes? Its log-probabilities against an independent engine's.

Both engines score the same tokens, so a near tie that turns a generated text over cannot matter, and text is never
compared. The statistics are in ``verify/divergence.py``, the limits in ``verify/limits.py``. Read
:func:`judge_fingerprint`.

Does not do: asking the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freehold.engines.interface import TokenScore
from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict
from freehold.verify.divergence import Divergence, measure_divergence
from freehold.verify.limits import FingerprintLimits
from freehold.verify.reference import Reference

__all__ = ["judge_fingerprint"]

_CHECK = "fingerprint"


def judge_fingerprint(
    reference: Reference, scores: Mapping[str, Sequence[TokenScore]] | None, limits: FingerprintLimits, date: str
) -> Verdict:
    """Compare the server's scores with the reference's.

    Args:
        reference: What another engine computed.
        scores: The server's scores by text; None where it cannot score.
        limits: Where healthy ends.
        date: When the server was asked, for the evidence.
    """
    if scores is None:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.INCONCLUSIVE,
            observation="the server gives no log-probabilities of given tokens",
            why="without them, what it computes cannot be compared with the reference",
            remedy="serve it with an engine that scores prompts (llama.cpp, vLLM), or allow log-probabilities",
        )
    expected = {text.name: text.scores() for text in reference.texts}
    lengths = {name: (len(scores.get(name, ())), len(values)) for name, values in expected.items()}
    short = [f"{name}: {found} of {wanted}" for name, (found, wanted) in lengths.items() if found != wanted]
    if short:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.INCONCLUSIVE,
            observation=f"the server scored another number of tokens than it was given ({'; '.join(short)})",
            why="the positions cannot be matched",
            remedy="look into the server's log",
        )
    found = measure_divergence(expected, scores, decisive_margin_nats=limits.decisive_margin_nats)
    evidence = _evidence(found, limits, date)
    broken = _exceeded(found, limits)
    figures = (
        f"mean |Δ| {found.mean_abs_nats:.3f} nats (limit {limits.mean_abs.number:.3f}), largest "
        f"{found.max_abs_nats:.2f} ({limits.max_abs.number:.2f}), mean Δ {found.shift_nats:+.3f} "
        f"(±{limits.shift.number:.3f}), {found.num_decisive_same_top} of {found.num_decisive} decisive tokens agree, "
        f"over {found.num_positions} tokens"
    )
    if broken:
        place, index = found.max_at
        return Verdict(
            check=_CHECK,
            outcome=Outcome.FAIL,
            observation=f"the log-probabilities are not the checkpoint's: {'; '.join(broken)} ({figures})",
            why=f"the engine computes something else than {reference.engine} with the same weights; the texts differ "
            f"most in {found.worst_text}, one token most at token {index} of {place}",
            remedy="check the checkpoint's hash, then the engine's version, its kernels, rope settings and KV cache "
            "type; another build of the same engine tells the two apart",
            evidence=evidence,
        )
    if found.num_positions < limits.min_positions or found.unlisted_share > limits.max_unlisted_share:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.INCONCLUSIVE,
            observation=f"{found.num_positions - found.num_unlisted} of {found.num_positions} tokens have an exact "
            f"log-probability; needed are {limits.min_positions} tokens, {1 - limits.max_unlisted_share:.0%} of them "
            f"exact ({figures})",
            why="a damaged kernel could hide in what was not compared",
            remedy="use a longer reference, or let the server list more tokens",
            evidence=evidence,
        )
    return Verdict(check=_CHECK, outcome=Outcome.PASS, observation=figures, evidence=evidence)


def _exceeded(found: Divergence, limits: FingerprintLimits) -> list[str]:
    """What lies beyond its limit, in words."""
    pairs = (
        ("mean |Δ|", found.mean_abs_nats, limits.mean_abs),
        ("90th percentile of |Δ|", found.p90_abs_nats, limits.p90_abs),
        ("largest |Δ|", found.max_abs_nats, limits.max_abs),
        (f"mean |Δ| of {found.worst_text}", found.worst_text_mean_abs_nats, limits.worst_text_mean_abs),
        ("|mean Δ|", abs(found.shift_nats), limits.shift),
    )
    broken = [
        f"{name} is {value:.3f}, the limit {limit.number:.3f}" for name, value, limit in pairs if value > _of(limit)
    ]
    share = found.decisive_same_top_share
    if share is not None and share < limits.min_decisive_share:
        broken.append(f"{share:.1%} of the decisive tokens agree, the limit is {limits.min_decisive_share:.0%}")
    return broken


def _of(limit: Evidence) -> float:
    number = limit.number
    assert number is not None
    return float(number)


def _evidence(found: Divergence, limits: FingerprintLimits, date: str) -> dict[str, Evidence]:
    source = "teacher-forced scores of the reference's texts, candidate minus reference"
    num = found.num_positions

    def measured(value: float, unit: str, n: int) -> Evidence:
        return Evidence.measured(value, unit, source=source, date=date, n=n)

    evidence = {
        "mean_abs_difference": measured(found.mean_abs_nats, "nats", num),
        "mean_abs_difference_limit": limits.mean_abs,
        "p90_abs_difference": measured(found.p90_abs_nats, "nats", num),
        "p90_abs_difference_limit": limits.p90_abs,
        "max_abs_difference": measured(found.max_abs_nats, "nats", num),
        "max_abs_difference_limit": limits.max_abs,
        "worst_text_mean_abs_difference": measured(found.worst_text_mean_abs_nats, "nats", num),
        "worst_text_mean_abs_difference_limit": limits.worst_text_mean_abs,
        "mean_difference": measured(found.shift_nats, "nats", num),
        "mean_difference_limit": limits.shift,
        "unlisted_share": measured(found.unlisted_share, "share", num),
    }
    for name, share, n in (
        ("same_top_share", found.same_top_share, found.num_ranked),
        ("decisive_same_top_share", found.decisive_same_top_share, found.num_decisive),
    ):
        evidence[name] = (
            measured(share, "share", n)
            if share is not None
            else Evidence.not_measured("the server does not name its most likely token", "share")
        )
    return evidence
