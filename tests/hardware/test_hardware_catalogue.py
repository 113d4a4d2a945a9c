"""The hardware catalogue: several truths side by side, the user's files, and names that nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from freehold.errors import InputError
from freehold.evidence import Kind
from freehold.hardware.catalogue import find_hardware, hardware_catalogue, parse_hardware


def test_memory_has_three_truths_that_stay_apart() -> None:
    spark = hardware_catalogue()["dgx-spark"]
    assert spark.fact("memory", "labelled").value == 128 * 10**9
    assert spark.fact("memory", "exposed").number == round(121.7 * 2**30)
    assert spark.fact("memory", "usable").value == 110 * 2**30
    assert spark.fact("memory", "labelled").kind is Kind.VENDOR
    assert spark.fact("memory", "exposed").kind is Kind.COMMUNITY


def test_the_most_trusted_source_wins_and_a_missing_one_says_so() -> None:
    catalogue = hardware_catalogue()
    assert catalogue["dgx-spark"].fact("memory").kind is Kind.VENDOR
    price = catalogue["h200"].fact("price")
    assert price.is_missing
    assert price.reason == "the catalogue has no price"


@pytest.mark.parametrize("entry", hardware_catalogue().values(), ids=lambda entry: entry.name)
def test_every_entry_can_be_planned_with(entry: object) -> None:
    memory, bandwidth = entry.fact("memory", "labelled"), entry.fact("bandwidth")  # type: ignore[attr-defined]
    assert memory.unit == "bytes_memory"
    assert 10**10 < memory.number < 10**12
    assert bandwidth.unit == "bytes/s"
    assert 10**11 < bandwidth.number < 10**13
    facts = entry.facts  # type: ignore[attr-defined]
    assert all(fact.evidence.source and fact.evidence.date for fact in facts)
    assert len({(f.name, f.basis, f.evidence.source) for f in facts}) == len(facts)


def test_the_users_file_lies_over_ours(tmp_path: Path) -> None:
    mine = tmp_path / "hardware.toml"
    mine.write_text(
        '[h200]\ntitle = "My H200"\n[box]\ntitle = "A box"\nfacts = [{ name = "memory", value = 5, kind = "assumed", '
        'source = "me", checked = 2026-11-30 }]\n'
    )
    catalogue = hardware_catalogue((mine,))
    assert catalogue["h200"].title == "My H200"
    assert catalogue["h200"].fact("bandwidth").value == 4_800_000_000_000
    assert catalogue["box"].fact("memory").value == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[box]\n", "title is missing"),
        ('[box]\ntitle = "b"\ncolour = "red"\n', "colour"),
        ('[box]\ntitle = "b"\naccelerators_per_node = 0\n', "accelerators_per_node"),
        ('[box]\ntitle = "b"\nfacts = [{ name = "memory" }]\n', "missing: checked, kind, source, value"),
        (
            '[box]\ntitle = "b"\nfacts = [{ name = "m", value = -1, kind = "vendor", source = "s", checked = "d" }]\n',
            "negative",
        ),
        (
            '[box]\ntitle = "b"\nfacts = [{ name = "m", value = 1, kind = "rumour", source = "s", checked = "d" }]\n',
            "rumour",
        ),
        (
            '[box]\ntitle = "b"\nfacts = [{ name = "m", value = 1, kind = "vendor", source = "", checked = "d" }]\n',
            "no source",
        ),
        (
            '[box]\ntitle = "b"\nfacts = '
            '[{ name = "m", value = "1", unit = "W", kind = "vendor", source = "s", checked = "d" }]\n',
            "no number of W",
        ),
        ('[box]\ntitle = "b"\nnotes = "one"\n', "lists of texts"),
        ("[box\n", "no TOML"),
    ],
)
def test_mistakes_in_a_users_file_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "hardware.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        hardware_catalogue((path,))
    assert said in f"{refused.value.what} {refused.value.why}"


def test_a_name_nobody_knows_is_never_taken_for_another() -> None:
    with pytest.raises(InputError) as refused:
        find_hardware("dgx-sprak", hardware_catalogue())
    assert "`dgx-spark`" in refused.value.fix


def test_counts_follow_a_colon() -> None:
    catalogue = hardware_catalogue()
    assert parse_hardware("GB10:4", catalogue) == (catalogue["dgx-spark"], 4)
    assert parse_hardware("h200", catalogue) == (catalogue["h200"], None)


@pytest.mark.parametrize("text", ["dgx-spark:0", "dgx-spark:-1", "dgx-spark:", "dgx-spark:two", "dgx-spark:9999999"])
def test_counts_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_hardware(text, hardware_catalogue())
