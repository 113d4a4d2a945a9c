"""The arithmetic of the comparison, spelled out by hand, and what must hold for any scores."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.engines.interface import TokenScore
from freehold.verify.divergence import measure_divergence


def score(logprob: float | None, top: int = 1, margin: float = 1.0, bound: float | None = None) -> TokenScore:
    return TokenScore(
        logprob=logprob, upper_bound=bound, top_token_id=top, top_logprob=-0.1, runner_up_logprob=-0.1 - margin
    )


def test_five_positions_by_hand() -> None:
    reference = {"a": [score(-1.0), score(-2.0, margin=0.1), score(-3.0)], "b": [score(-0.5), score(-4.0)]}
    candidate = {
        "a": [score(-1.1), score(-1.8, top=7), score(-3.0)],  # -0.1, +0.2, 0.0
        "b": [score(-1.5, top=9), score(-4.0)],  # -1.0, 0.0
    }
    found = measure_divergence(reference, candidate, decisive_margin_nats=0.5)
    assert found.num_positions == 5
    assert found.mean_abs_nats == pytest.approx((0.1 + 0.2 + 0.0 + 1.0 + 0.0) / 5)
    assert found.shift_nats == pytest.approx((-0.1 + 0.2 + 0.0 - 1.0 + 0.0) / 5)
    assert found.max_abs_nats == pytest.approx(1.0)
    assert found.max_at == ("b", 1)
    assert found.p90_abs_nats == pytest.approx(1.0)  # entry 4 of 0, 0, 0.1, 0.2, 1.0
    assert found.worst_text == "b"
    assert found.worst_text_mean_abs_nats == pytest.approx(0.5)
    assert (found.num_ranked, found.num_same_top) == (5, 3)
    # The second position of a has a margin of 0.1, so its other top token is no finding.
    assert (found.num_decisive, found.num_decisive_same_top) == (4, 3)
    assert found.decisive_same_top_share == 0.75


@pytest.mark.parametrize(
    ("reference", "candidate", "difference", "is_exact"),
    [
        (score(-2.0), score(None, bound=-5.0), -3.0, False),  # at least three nats less likely
        (score(-9.0), score(None, bound=-5.0), 0.0, False),  # the bound proves nothing
        (score(None, bound=-5.0), score(-2.0), 3.0, False),
        (score(None, bound=-5.0), score(None, bound=-6.0), 0.0, False),
        (score(-2.0), score(None), 0.0, False),
        (score(-2.0), score(-2.5), -0.5, True),
    ],
)
def test_a_bound_counts_with_the_least_it_proves(
    reference: TokenScore, candidate: TokenScore, difference: float, is_exact: bool
) -> None:
    found = measure_divergence({"t": [reference]}, {"t": [candidate]}, decisive_margin_nats=0.5)
    assert found.shift_nats == pytest.approx(difference)
    assert found.num_unlisted == (0 if is_exact else 1)
    assert found.unlisted_share == (0.0 if is_exact else 1.0)


def test_unknown_tops_are_not_counted_as_disagreement() -> None:
    unknown = TokenScore(logprob=-1.0, upper_bound=None, top_token_id=None, top_logprob=None)
    found = measure_divergence({"t": [score(-1.0)]}, {"t": [unknown]}, decisive_margin_nats=0.5)
    assert found.num_ranked == 0
    assert found.same_top_share is None
    assert found.decisive_same_top_share is None


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [({"a": [score(-1)]}, {"b": [score(-1)]}), ({"a": [score(-1)]}, {"a": []}), ({}, {}), ({"a": []}, {"a": []})],
)
def test_what_cannot_be_matched_is_refused(
    reference: dict[str, list[TokenScore]], candidate: dict[str, list[TokenScore]]
) -> None:
    with pytest.raises(ValueError):
        measure_divergence(reference, candidate, decisive_margin_nats=0.5)


LOGPROBS = st.lists(st.floats(-30, 0), min_size=1, max_size=40)


@given(LOGPROBS, st.floats(-3, 3))
def test_a_constant_shift_is_seen_as_exactly_that(logprobs: list[float], shift: float) -> None:
    reference = {"t": [score(value) for value in logprobs]}
    candidate = {"t": [score(value + shift) for value in logprobs]}
    found = measure_divergence(reference, candidate, decisive_margin_nats=0.5)
    assert found.shift_nats == pytest.approx(shift, abs=1e-9)
    assert found.mean_abs_nats == pytest.approx(abs(shift), abs=1e-9)


@given(LOGPROBS, LOGPROBS)
def test_statistics_are_ordered_and_symmetric(ours: list[float], theirs: list[float]) -> None:
    num = min(len(ours), len(theirs))
    a, b = ({"t": [score(value) for value in values[:num]]} for values in (ours, theirs))
    there = measure_divergence(a, b, decisive_margin_nats=0.5)
    back = measure_divergence(b, a, decisive_margin_nats=0.5)
    assert there.mean_abs_nats == pytest.approx(back.mean_abs_nats)
    assert there.shift_nats == pytest.approx(-back.shift_nats)
    assert abs(there.shift_nats) <= there.mean_abs_nats + 1e-9
    assert there.mean_abs_nats <= there.max_abs_nats + 1e-9
    assert there.p90_abs_nats <= there.max_abs_nats
    assert math.isfinite(there.mean_abs_nats)
