"""Sizes, times and rates: what is accepted, what is refused, and what is shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold import units
from freehold.errors import InputError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("24GiB", 24 * 2**30),
        ("24GB", 24 * 10**9),
        ("1.5 TB", 1_500_000_000_000),
        (" 512 kib ", 512 * 1024),
        ("0B", 0),
        ("330,160,710,016 B", 330_160_710_016),
        ("0.5B", 0),  # half to even
        ("1.5B", 2),
        ("2.5B", 2),
        ("0.1GiB", 107_374_182),  # 107374182.4
        ("3MiB", 3_145_728),
    ],
)
def test_sizes_that_are_accepted(text: str, size_bytes: int) -> None:
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize("letter", ["K", "M", "G", "T", "k", "g"])
def test_a_lone_letter_is_refused_and_both_readings_are_named(letter: str) -> None:
    with pytest.raises(InputError) as caught:
        units.parse_bytes(f"24{letter}")
    assert f"{letter.upper()}iB" in caught.value.why
    assert f"`24{letter.upper()}iB` or `24{letter.upper()}B`" in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GiB",
        "-1GB",
        "1e9B",
        "24 XB",
        "24",
        "1,23GB",
        "1.GB",
        ".5GB",
        "24GiB extra",
        "9" * 5000 + "B",
        "٢٤GB",
        "nanB",
    ],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        units.parse_bytes(text)


@given(st.text())
def test_any_text_is_a_size_or_an_input_error(text: str) -> None:
    try:
        size_bytes = units.parse_bytes(text)
    except InputError as error:
        problem = error
    else:
        assert size_bytes >= 0
        return
    assert all([problem.what, problem.why, problem.fix])


@given(st.integers(0, 10**18))
def test_parsing_an_exact_count_gives_it_back(size_bytes: int) -> None:
    assert units.parse_bytes(units.format_bytes(size_bytes)) == size_bytes


@given(st.integers(0, 1023), st.sampled_from([1, 2**10, 2**20, 2**30, 2**40]))
def test_parsing_a_whole_number_of_binary_units_gives_it_back(count: int, factor: int) -> None:
    if count < 1000:
        assert units.parse_bytes(units.format_memory(count * factor)) == count * factor


@given(st.integers(1, 9999), st.sampled_from([10**3, 10**6, 10**9, 10**12]))
def test_parsing_tenths_of_decimal_units_gives_them_back(tenths: int, factor: int) -> None:
    size_bytes = tenths * factor // 10
    assert units.parse_bytes(units.format_disk(size_bytes)) == size_bytes


@given(st.integers(1, 10**15))
def test_a_shown_size_is_right_to_one_decimal(size_bytes: int) -> None:
    shown = units.format_memory(size_bytes)
    if "," not in shown:
        number, unit = shown.split()
        step = units.parse_bytes(f"1{unit}")
        assert abs(units.parse_bytes(f"{number}{unit}") - size_bytes) <= step // 20 + 1


def test_memory_is_binary_and_disk_is_decimal() -> None:
    # 330,160,710,016 / 2^30 = 307.486… and / 10^9 = 330.160…
    assert units.format_memory(330_160_710_016) == "307.5 GiB"
    assert units.format_disk(330_160_710_016) == "330.2 GB"
    assert units.format_bytes(330_160_710_016) == "330,160,710,016 B"
    assert units.format_memory(1000 * 2**30) == "1,000.0 GiB"
    assert units.format_memory(-(2**30)) == "-1.0 GiB"
    assert units.format_disk(999) == "999 B"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (0.000_041, "41 µs"),
        (0.0041, "4.10 ms"),
        (0.0412, "41.2 ms"),
        (0.41, "410 ms"),
        (0.9996, "1.00 s"),
        (2.314, "2.31 s"),
        (99.996, "1 min 40 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7440, "2 h 04 min"),
        (-200, "-3 min 20 s"),
        (-0.041, "-41.0 ms"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


def test_rates_shares_and_counts() -> None:
    assert units.format_tok_per_s(23.44) == "23.4 tok/s"
    assert units.format_tok_per_s(99.96) == "100 tok/s"
    assert units.format_tok_per_s(1842.3) == "1,842 tok/s"
    assert units.format_bandwidth(273e9) == "273.0 GB/s"
    assert units.format_bandwidth(12.0) == "12 B/s"
    assert units.format_percent(0.62, "peak bandwidth") == "62 % of peak bandwidth"
    assert units.format_percent(0.0625, "peak bandwidth") == "6.2 % of peak bandwidth"
    assert units.format_count(1_234_567) == "1,234,567"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2**30, "bytes", "1.0 GiB"),
        (2**30, "bytes_memory", "1.0 GiB"),
        (2**30, "bytes_disk", "1.1 GB"),
        (12.6e9, "bytes/s", "12.6 GB/s"),
        (0.041, "s", "41.0 ms"),
        (23.44, "tok/s", "23.4 tok/s"),
        (4096, "tokens", "4,096 tokens"),
        (63.5, "tokens", "63.5 tokens"),
        (0.62, "share", "62 %"),
        (0.012, "share", "1.2 %"),
        (12345, "", "12,345"),
        (0.12345, "", "0.123"),
        (3, "requests", "3 requests"),
        (True, "", "yes"),
        (False, "tok/s", "no"),
        ("Q4_1", "bytes", "Q4_1"),
    ],
)
def test_numbers_by_unit(value: float | int | str | bool, unit: str, text: str) -> None:
    assert units.format_number(value, unit) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_not_shown(value: float) -> None:
    with pytest.raises(ValueError, match="not a number to show"):
        units.format_number(value, "tok/s")
