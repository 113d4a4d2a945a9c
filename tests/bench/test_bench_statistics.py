from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.bench.statistics import describe, interval_of, mean_of, percentile, percentile_of
from freehold.bench.student import t_probability, t_quantile

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "student_t" / "scipy.json").read_text())

numbers = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)
samples = st.lists(numbers, min_size=1, max_size=150)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"{r['probability']}-{r['freedom']}")
def test_quantiles_are_those_of_scipy(row: dict[str, float]) -> None:
    got = t_quantile(row["probability"], int(row["freedom"]))
    assert got == pytest.approx(row["quantile"], rel=1e-9)
    assert t_quantile(1 - row["probability"], int(row["freedom"])) == pytest.approx(-row["quantile"], rel=1e-7)


@given(t=st.floats(min_value=-50, max_value=50), freedom=st.integers(min_value=1, max_value=500))
def test_the_distribution_is_symmetric_and_a_probability(t: float, freedom: int) -> None:
    p = t_probability(t, freedom)
    assert 0 <= p <= 1
    assert p + t_probability(-t, freedom) == pytest.approx(1, abs=1e-12)


@given(p=st.floats(min_value=0.5001, max_value=0.9999), freedom=st.integers(min_value=1, max_value=200))
def test_quantile_and_probability_undo_each_other(p: float, freedom: int) -> None:
    assert t_probability(t_quantile(p, freedom), freedom) == pytest.approx(p, abs=1e-10)


@pytest.mark.parametrize(("p", "freedom"), [(0.0, 3), (1.0, 3), (-1.0, 3), (0.9, 0)])
def test_nonsense_is_refused(p: float, freedom: int) -> None:
    with pytest.raises(ValueError):
        t_quantile(p, freedom)


def test_an_interval_by_hand() -> None:
    # mean 4, deviations -2 0 2: s = sqrt((4 + 0 + 4) / 2) = 2; s / sqrt(3) = 1.1547; t(0.975, 2) = 4.302653
    got = interval_of([2.0, 4.0, 6.0])
    assert got is not None
    assert got.low == pytest.approx(4 - 4.302652729911275 * 1.1547005383792515)
    assert got.high == pytest.approx(4 + 4.302652729911275 * 1.1547005383792515)
    assert got.level == 0.95
    assert "Student's t" in got.method


def test_one_sample_has_no_interval_and_none_has_no_mean() -> None:
    assert interval_of([3.0]) is None
    lone = mean_of([3.0], "s", source="clock")
    assert (lone.value, lone.n, lone.interval) == (3.0, 1, None)
    none = mean_of([], "s", source="clock", empty="every request failed")
    assert none.value is None
    assert none.reason == "every request failed"


def test_percentiles_by_hand() -> None:
    # 0.9 of the way through 4 gaps is 3.6: between the 4th and the 5th, 60 % of the way.
    assert percentile([10, 20, 30, 40, 50], 0.9) == pytest.approx(46.0)
    assert percentile([10, 20, 30, 40, 50], 0.5) == 30
    assert percentile([7], 0.99) == 7
    assert percentile([3, 1, 2], 0.0) == 1
    assert percentile([3, 1, 2], 1.0) == 3


@given(values=samples, share=st.floats(min_value=0, max_value=1))
def test_a_percentile_lies_among_the_samples_and_splits_them(values: list[float], share: float) -> None:
    got = percentile(values, share)
    assert min(values) <= got <= max(values)
    assert sum(v <= got for v in values) >= math.floor(share * (len(values) - 1)) + 1
    assert sum(v >= got for v in values) >= len(values) - 1 - math.floor(share * (len(values) - 1))


@given(values=samples, a=st.floats(min_value=0, max_value=1), b=st.floats(min_value=0, max_value=1))
def test_percentiles_are_in_order(values: list[float], a: float, b: float) -> None:
    assert percentile(values, min(a, b)) <= percentile(values, max(a, b)) + 1e-6 * max(map(abs, values))


@given(values=samples, factor=st.floats(min_value=0.001, max_value=1000), shift=st.floats(-1000, 1000))
def test_mean_and_interval_follow_scale_and_shift(values: list[float], factor: float, shift: float) -> None:
    before = mean_of(values, "s", source="x")
    after = mean_of([v * factor + shift for v in values], "s", source="x")
    tolerance = 1e-7 * (factor * max(map(abs, values)) + abs(shift) + 1)
    assert after.number == pytest.approx((before.number or 0) * factor + shift, abs=tolerance)
    assert (before.interval is None) == (len(values) < 2) == (after.interval is None)
    if before.interval and after.interval:
        assert before.interval.low <= (before.number or 0) <= before.interval.high
        width = before.interval.high - before.interval.low
        assert after.interval.high - after.interval.low == pytest.approx(width * factor, abs=100 * tolerance)


@pytest.mark.parametrize(("share", "enough"), [(0.5, 2), (0.1, 10), (0.9, 10), (0.99, 100), (0.01, 100), (0.95, 20)])
def test_a_percentile_needs_samples_on_both_sides(share: float, enough: int) -> None:
    few = percentile_of([1.0] * (enough - 1), share, "s", source="x")
    assert few.value is None
    assert few.reason is not None
    assert f"needs {enough} samples" in few.reason
    many = percentile_of([float(i) for i in range(enough)], share, "s", source="x")
    assert many.n == enough
    assert "type 7" in many.source


def test_the_worst_is_the_largest_time_and_the_smallest_rate() -> None:
    values = [1.0, 2.0, 9.0]
    assert describe(values, "s", is_rate=False, source="x").worst.value == 9.0
    assert describe(values, "tok/s", is_rate=True, source="x").worst.value == 1.0


def test_the_mean_of_gaps_is_taken_over_requests() -> None:
    # Two requests: gaps 1 1 1 and 4. Their means are 1 and 4, so the mean over requests is 2.5 with n = 2.
    got = describe([1.0, 1.0, 1.0, 4.0], "s", is_rate=False, source="x", means=[1.0, 4.0])
    assert (got.mean.value, got.mean.n) == (2.5, 2)
    assert (got.p50.value, got.p50.n) == (1.0, 4)


def test_nothing_measured_has_its_reason_everywhere() -> None:
    got = describe([], "s", is_rate=False, source="x", empty="all 15 requests failed")
    for part in (got.mean, got.p10, got.p50, got.p90, got.p99, got.worst):
        assert part.value is None
        assert part.reason == "all 15 requests failed"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_never_becomes_a_figure(bad: float) -> None:
    with pytest.raises(AssertionError):
        describe([1.0, bad], "s", is_rate=False, source="x")
