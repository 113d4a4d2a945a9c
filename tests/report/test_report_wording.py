from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.evidence import DASH, Evidence, Interval, Kind, calculate
from freehold.report.document import Cited
from freehold.report.wording import explain, interval_text, kind_tag, origin_text, plural, range_text, value_text

UNITS = ("s", "tok/s", "bytes", "bytes/s", "share", "tokens", "", "nat")


def cited(value: float, unit: str, half: float, *, method: str = "Student t") -> Cited:
    interval = Interval(low=value - half, high=value + half, method=method)
    evidence = Evidence.measured(value, unit, source="clock", n=15, interval=interval)
    return Cited(name="x", evidence=evidence, shows_interval=True)


@pytest.mark.parametrize(
    ("value", "unit", "half", "text"),
    [
        (58.66, "tok/s", 0.5539, "58.7 ± 0.6 tok/s"),
        (1842.4, "tok/s", 12.3, "1,842 ± 12 tok/s"),
        (0.3092, "s", 0.00514, "309 ± 5 ms"),
        (1.38, "s", 0.0128, "1.38 ± 0.01 s"),
        (0.0171, "s", 0.000162, "17.1 ± 0.2 ms"),
        (0.309, "s", 0.0003, "309 ± 0.3 ms"),
        (9.8e9, "bytes/s", 0.2e9, "9.8 ± 0.2 GB/s"),
        (0.58, "share", 0.02, "58 ± 2 %"),
    ],
)
def test_the_spread_has_the_scale_and_digits_of_its_value(value: float, unit: str, half: float, text: str) -> None:
    assert value_text(cited(value, unit, half)) == text


def test_an_asymmetric_interval_is_shown_by_its_bounds() -> None:
    interval = Interval(low=20.0, high=27.0, method="bootstrap")
    evidence = Evidence.measured(21.0, "tok/s", source="clock", interval=interval)
    assert value_text(Cited(name="x", evidence=evidence, shows_interval=True)) == "21.0 tok/s (20.0–27.0 tok/s)"


def test_a_value_of_several_units_is_shown_by_its_bounds() -> None:
    assert value_text(cited(185.0, "s", 5.0)) == "3 min 05 s (3 min 00 s – 3 min 10 s)"


def test_the_interval_is_only_shown_where_it_is_asked_for() -> None:
    evidence = cited(58.66, "tok/s", 0.55).evidence
    assert value_text(Cited(name="x", evidence=evidence)) == "58.7 tok/s"


@given(
    value=st.floats(min_value=1e-6, max_value=1e12),
    share=st.floats(min_value=1e-6, max_value=2.0),
    unit=st.sampled_from(UNITS),
)
def test_a_spread_is_never_shown_as_nothing(value: float, share: float, unit: str) -> None:
    text = value_text(cited(value, unit, value * share))
    if "±" in text:
        spread = text.partition("± ")[2].split(" ")[0]
        assert float(spread.replace(",", "")) > 0


@given(
    reason=st.text(min_size=1),
    unit=st.sampled_from(UNITS),
    shows_interval=st.booleans(),
)
def test_a_missing_value_is_a_dash_whatever_is_asked(reason: str, unit: str, shows_interval: bool) -> None:
    evidence = Evidence.not_measured(reason, unit)
    one = Cited(name="x", evidence=evidence, shows_interval=shows_interval)
    assert value_text(one) == DASH
    assert kind_tag(evidence) == ""
    assert interval_text(evidence) == ""
    assert [fact.text for fact in explain(one)] == [reason]
    assert origin_text(evidence) == f"not measured: {reason}"


@given(value=st.floats(allow_nan=False, allow_infinity=False), unit=st.sampled_from(UNITS), kind=st.sampled_from(Kind))
def test_every_value_is_shown_as_its_evidence_shows_it(value: float, unit: str, kind: Kind) -> None:
    if kind is Kind.NOT_MEASURED:
        return
    evidence = Evidence(value=value, kind=kind, unit=unit, source="somewhere")
    assert value_text(Cited(name="x", evidence=evidence)) == evidence.text
    assert math.isfinite(value)


def test_two_bounds_share_their_unit_where_they_can() -> None:
    assert range_text(0.302, 0.317, "s") == "302–317 ms"
    assert range_text(0.302, 1.2, "s") == "302 ms – 1.20 s"
    assert range_text(1, 4, "") == "1–4"


def test_only_what_is_weaker_than_a_stated_fact_carries_a_word() -> None:
    vendor = Evidence(value=3.35e12, kind=Kind.VENDOR, unit="bytes/s", source="datasheet")
    measured = Evidence.measured(9.8e9, "bytes/s", source="clock")
    stated = Evidence.verified(96_688_512, "bytes", source="header")

    def ceiling(bandwidth: Evidence) -> Evidence:
        return calculate("tok/s", "bandwidth ÷ bytes", lambda b, n: b / n, b=bandwidth, n=stated)

    assert [kind_tag(e) for e in (measured, stated)] == ["", ""]
    assert kind_tag(vendor) == "vendor"
    assert kind_tag(ceiling(measured)) == "calculated"
    assert kind_tag(ceiling(vendor)) == "vendor inputs"
    assert kind_tag(Evidence.assumed(1, source="guess")) == "assumed"


def test_the_explanation_goes_down_to_the_inputs_of_inputs() -> None:
    clock = Evidence.measured(9.8e9, "bytes/s", source="reading 512 MiB", n=15, date="2026-11-30")
    half = calculate("bytes/s", "b ÷ 2", lambda b: b / 2, b=clock)
    quarter = calculate("bytes/s", "half ÷ 2", lambda half_rate: half_rate / 2, half_rate=half)
    facts = explain(Cited(name="x", evidence=quarter))
    assert [(f.term, f.depth) for f in facts if f.depth] == [("half rate", 1), ("b", 2)]
    assert facts[-1].text == "9.8 GB/s · measured · n = 15 · reading 512 MiB · 2026-11-30"
    assert ("formula", "half ÷ 2") in [(f.term, f.text) for f in facts]


def test_a_lone_observation_is_called_one() -> None:
    evidence = Evidence.measured(2.31, "s", source="clock", n=1)
    assert ("n", "1: a single observation") in [(f.term, f.text) for f in explain(Cited(name="x", evidence=evidence))]
    assert "a single observation" in origin_text(evidence)


def test_counts_have_their_nouns() -> None:
    assert [plural(n, "stream") for n in (0, 1, 4, 1200)] == ["0 streams", "1 stream", "4 streams", "1,200 streams"]
