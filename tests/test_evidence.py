"""A value cannot be separated from its origin, and a missing one never becomes a number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.cli.render import describe_evidence
from freehold.evidence import DASH, Evidence, Interval, Kind, calculate, weakest

KINDS_WITH_A_VALUE = [kind for kind in Kind if kind is not Kind.NOT_MEASURED]


def of_kind(kind: Kind, value: float = 2.0) -> Evidence:
    return Evidence(value=value, kind=kind, unit="s", source="a test")


def test_the_order_of_trust() -> None:
    assert [kind.value for kind in sorted(Kind, key=lambda kind: kind.rank)] == [
        "measured",
        "verified",
        "calculated",
        "vendor",
        "community",
        "assumed",
        "not_measured",
    ]


@given(st.lists(st.sampled_from(list(Kind)), min_size=1))
def test_the_weakest_is_one_of_them_and_no_stronger_than_any(kinds: list[Kind]) -> None:
    result = weakest(*kinds)
    assert result in kinds
    assert all(result.rank >= kind.rank for kind in kinds)


def test_there_is_no_weakest_of_nothing() -> None:
    with pytest.raises(ValueError):
        weakest()


@given(st.sampled_from(KINDS_WITH_A_VALUE), st.sampled_from(KINDS_WITH_A_VALUE))
def test_a_calculation_is_trusted_as_its_weakest_input(a: Kind, b: Kind) -> None:
    result = calculate("s", "a + b", lambda a, b: a + b, a=of_kind(a), b=of_kind(b))
    assert result.number == 4.0
    assert result.kind is Kind.CALCULATED
    assert result.trust is weakest(Kind.CALCULATED, a, b)
    again = calculate("s", "2 x", lambda x: 2 * x, x=result)
    assert again.trust is result.trust, "trust is inherited through every step"


def test_a_calculation_lists_its_inputs_and_formula() -> None:
    result = calculate(
        "tok/s",
        "bandwidth / step bytes",
        lambda bandwidth, step: bandwidth / step,
        bandwidth=Evidence.measured(20e9, "bytes/s", source="a read of 1 GiB"),
        step=Evidence.assumed(1e9, "bytes", source="a guess"),
    )
    assert result.text == "20.0 tok/s"
    assert result.source == "bandwidth / step bytes"
    assert set(result.inputs) == {"bandwidth", "step"}
    assert result.origin == "calculated from assumed inputs"


def test_a_missing_input_makes_the_result_missing_and_names_it() -> None:
    called = []
    result = calculate(
        "s",
        "a / b",
        lambda a, step_bytes: called.append(1) or a / step_bytes,  # type: ignore[func-returns-value]
        a=of_kind(Kind.MEASURED),
        step_bytes=Evidence.not_measured("the file does not say"),
    )
    assert not called
    assert result.is_missing
    assert result.reason == "needs step bytes: the file does not say"


def test_a_missing_value_is_a_dash_and_no_number() -> None:
    missing = Evidence.not_measured("the server has no metrics", "tok/s")
    assert missing.text == DASH
    assert missing.number is None
    assert not any(c.isdigit() for c in describe_evidence(missing))
    assert describe_evidence(missing) == "— (not measured: the server has no metrics)"


@pytest.mark.parametrize(
    "fields",
    [
        {"value": None, "kind": Kind.MEASURED, "source": "x"},
        {"value": 0, "kind": Kind.NOT_MEASURED, "reason": "x"},
        {"value": None, "kind": Kind.NOT_MEASURED},
        {"value": None, "kind": Kind.NOT_MEASURED, "reason": ""},
        {"value": 1.0, "kind": Kind.MEASURED},
        {"value": 1.0, "kind": Kind.ASSUMED, "source": ""},
        {"value": math.nan, "kind": Kind.MEASURED, "source": "x"},
        {"value": math.inf, "kind": Kind.CALCULATED, "source": "x"},
        {"value": 1.0, "kind": Kind.MEASURED, "source": "x", "n": 0},
        {
            "value": 1.0,
            "kind": Kind.CALCULATED,
            "source": "x",
            "inputs": {"a": Evidence.not_measured("nobody looked")},
        },
    ],
)
def test_contradictions_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Evidence(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "level"),
    [(2.0, 1.0, 0.95), (math.nan, 1.0, 0.95), (0.0, math.inf, 0.95), (0.0, 1.0, 0.0), (0.0, 1.0, 1.0)],
)
def test_what_is_no_interval_is_refused(low: float, high: float, level: float) -> None:
    with pytest.raises(ValueError):
        Interval(low=low, high=high, level=level, method="t")


def test_a_calculation_that_ends_in_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not a value"):
        calculate("s", "a - inf", lambda a: a - math.inf, a=of_kind(Kind.MEASURED))


def test_numbers_are_only_numbers() -> None:
    assert Evidence.verified(True, source="a header").number is None
    assert Evidence.verified("llama", source="a header").number is None
    assert Evidence.verified("llama", source="a header").text == "llama"
    assert Evidence.measured(3, source="counted").number == 3


def test_a_measured_value_is_described_with_n_and_interval() -> None:
    evidence = Evidence.measured(
        23.44,
        "tok/s",
        source="stream",
        n=15,
        interval=Interval(low=23.1, high=23.7, method="Student t"),
    )
    assert describe_evidence(evidence) == "23.4 tok/s (measured, n = 15, 95 % interval 23.1 tok/s to 23.7 tok/s)"


def test_evidence_does_not_change() -> None:
    with pytest.raises(AttributeError):
        of_kind(Kind.MEASURED).value = 3.0  # type: ignore[misc]
