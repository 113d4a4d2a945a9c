"""How far apart are two engines' log-probabilities of the same tokens? Pure arithmetic.

Read :func:`measure_divergence`. All differences are candidate minus reference, in nats. A forced token that the
candidate did not list has only an upper bound; then the difference is known to be at least so negative, and that
least amount is counted.

Does not do: deciding whether that is too much (``verify/fingerprint.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from freehold.engines.interface import TokenScore

__all__ = ["Divergence", "measure_divergence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Statistics of the differences at all positions.

    Args:
        num_positions: Positions compared.
        num_unlisted: Those where one side gave only a bound; counted with the least difference the bound proves.
        mean_abs_nats: Mean of the absolute differences.
        p90_abs_nats: What nine of ten stay under.
        max_abs_nats: The largest.
        shift_nats: Mean of the signed differences; negative when the candidate finds the texts less likely.
        worst_text: Name of the text with the largest mean absolute difference.
        worst_text_mean_abs_nats: That mean.
        num_ranked: Positions where both sides name their most likely token.
        num_same_top: Those of them where it is the same token.
        num_decisive: Those of them where the reference's margin over its runner-up exceeds the asked one.
        num_decisive_same_top: Those of them where the candidate's most likely token is the same.
        max_at: Text and index of the token with the largest difference.
    """

    num_positions: int
    num_unlisted: int
    mean_abs_nats: float
    p90_abs_nats: float
    max_abs_nats: float
    shift_nats: float
    worst_text: str
    worst_text_mean_abs_nats: float
    num_ranked: int
    num_same_top: int
    num_decisive: int
    num_decisive_same_top: int
    max_at: tuple[str, int]

    @property
    def same_top_share(self) -> float | None:
        """Share (0–1) of ranked positions with the same most likely token."""
        return self.num_same_top / self.num_ranked if self.num_ranked else None

    @property
    def decisive_same_top_share(self) -> float | None:
        """Share (0–1) of decisive positions with the same most likely token."""
        return self.num_decisive_same_top / self.num_decisive if self.num_decisive else None

    @property
    def unlisted_share(self) -> float:
        """Share (0–1) of positions that only have a bound."""
        return self.num_unlisted / self.num_positions


def measure_divergence(
    reference: Mapping[str, Sequence[TokenScore]],
    candidate: Mapping[str, Sequence[TokenScore]],
    *,
    decisive_margin_nats: float,
) -> Divergence:
    """Compare two sets of scores of the same texts.

    Args:
        reference: Scores by text, as the trusted side gave them.
        candidate: Scores by text of the side under test; the same texts with the same tokens.
        decisive_margin_nats: Margin of the reference's most likely token over its runner-up from which a position
            counts as decisive: rounding does not turn it over.

    Raises:
        ValueError: The texts or their lengths differ, or there is no position.
    """
    if set(reference) != set(candidate):
        raise ValueError(f"other texts: {sorted(set(reference) ^ set(candidate))}")
    differences: list[tuple[float, str, int]] = []
    num_unlisted = num_ranked = num_same_top = num_decisive = num_decisive_same_top = 0
    for name, expected in reference.items():
        for index, (ours, theirs) in enumerate(zip(expected, candidate[name], strict=True), start=1):
            difference, is_exact = _difference(ours, theirs)
            differences.append((difference, name, index))
            num_unlisted += not is_exact
            if ours.top_token_id is None or theirs.top_token_id is None:
                continue
            is_same = ours.top_token_id == theirs.top_token_id
            num_ranked += 1
            num_same_top += is_same
            if _margin(ours) > decisive_margin_nats:
                num_decisive += 1
                num_decisive_same_top += is_same
    if not differences:
        raise ValueError("no position to compare")
    sizes = sorted(abs(d) for d, _, _ in differences)
    means = {name: _mean([abs(d) for d, text, _ in differences if text == name]) for name in reference}
    worst = max(means, key=lambda name: means[name])
    largest = max(differences, key=lambda entry: abs(entry[0]))
    return Divergence(
        num_positions=len(differences),
        num_unlisted=num_unlisted,
        mean_abs_nats=_mean(sizes),
        p90_abs_nats=sizes[min(len(sizes) - 1, (9 * len(sizes)) // 10)],
        max_abs_nats=sizes[-1],
        shift_nats=_mean([d for d, _, _ in differences]),
        worst_text=worst,
        worst_text_mean_abs_nats=means[worst],
        num_ranked=num_ranked,
        num_same_top=num_same_top,
        num_decisive=num_decisive,
        num_decisive_same_top=num_decisive_same_top,
        max_at=(largest[1], largest[2]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _margin(score: TokenScore) -> float:
    """Most likely minus second most likely; 0 where either is unknown."""
    if score.top_logprob is None or score.runner_up_logprob is None:
        return 0.0
    return score.top_logprob - score.runner_up_logprob


def _difference(reference: TokenScore, candidate: TokenScore) -> tuple[float, bool]:
    """Candidate minus reference, and whether it is exact; with a bound, the least that is certain, else 0."""
    if reference.logprob is not None and candidate.logprob is not None:
        return candidate.logprob - reference.logprob, True
    if reference.logprob is not None and candidate.upper_bound is not None:
        return min(0.0, candidate.upper_bound - reference.logprob), False
    if candidate.logprob is not None and reference.upper_bound is not None:
        return max(0.0, candidate.logprob - reference.upper_bound), False
    return 0.0, False
