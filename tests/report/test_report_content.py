from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_run import Shape, make_run

from freehold.evidence import DASH, Evidence, Kind
from freehold.records.verdict import Outcome
from freehold.report.content import describe
from freehold.report.document import Cited, Document, Figure, Section, Table, Text, cited_in
from freehold.report.load import RunRecords, load_run
from freehold.report.markdown import render_markdown
from freehold.report.provenance import broken_links, links_of
from freehold.report.wording import value_text

Records = Callable[..., RunRecords]


def section(document: Document, slug: str) -> Section:
    return next(s for s in document.sections if s.slug == slug)


def table(document: Document, slug: str) -> Table:
    return next(b for s in document.sections for b in s.blocks if isinstance(b, Table) and b.slug == slug)


def figure(document: Document, label: str, scope: str = "") -> Figure:
    return next(f for f in document.figures if f.label == label and (not scope or f.scope == scope))


def marks(document: Document) -> list[str]:
    return [mark.word for mark in document.headline.marks]


# --- the verdict ----------------------------------------------------------------------------------------------------

HEADLINES = [
    (Shape(), Outcome.PASS, "verified", "independent engine's reference (vLLM 0.32.0", ""),
    (Shape(verification="self"), Outcome.WARN, "self-consistency only", "no independent", "self-consistency only"),
    (Shape(is_attached=True, verification="self"), Outcome.WARN, "self-consistency only", "", "self-consistency only"),
    (Shape(verification="failed", bench="none"), Outcome.FAIL, "verification failed", "No speed was measured", ""),
    (
        Shape(verification="inconclusive", bench="none"),
        Outcome.INCONCLUSIVE,
        "verification inconclusive",
        "forced logprobs",
        "",
    ),
    (Shape(verification="failed"), Outcome.FAIL, "UNVERIFIED", "The verification failed", "UNVERIFIED"),
    (Shape(verification="none", claims_verified=False), Outcome.INCONCLUSIVE, "UNVERIFIED", "without", "UNVERIFIED"),
    (Shape(verification="none", claims_verified=True), Outcome.INCONCLUSIVE, "UNVERIFIED", "claims one", "UNVERIFIED"),
    (Shape(claims_verified=False), Outcome.INCONCLUSIVE, "UNVERIFIED", "--unverified", "UNVERIFIED"),
    (Shape(fits=False, free_bytes=200_000_000), Outcome.FAIL, "does not fit", "190.7 MiB are", ""),
    (Shape(preflight=Outcome.FAIL), Outcome.FAIL, "not started", "1 preflight check said no", ""),
    (Shape(has_server=False), Outcome.INCONCLUSIVE, "not verified", "the engine ended with status 1", ""),
    (Shape(verification="none", bench="none", has_journey=False), Outcome.INCONCLUSIVE, "not verified", "verif", ""),
    (Shape(bench="none", has_journey=False), Outcome.PASS, "verified", "Speed was not measured", ""),
]


@pytest.mark.parametrize(("shape", "outcome", "word", "part", "mark"), HEADLINES)
def test_the_verdict_comes_first(
    records: Records, shape: Shape, outcome: Outcome, word: str, part: str, mark: str
) -> None:
    document = describe(records(shape))
    assert (document.headline.outcome, document.headline.word) == (outcome, word)
    assert part in document.headline.sentence
    assert document.mark == mark


def test_speed_after_another_verification_is_unverified(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    path = folder.path / "verification.json"
    path.write_bytes(path.read_bytes().replace(b"3 greedy runs", b"9 greedy runs"))
    document = describe(load_run(folder))
    assert document.headline.word == "UNVERIFIED"
    assert "another verification" in document.headline.sentence
    assert marks(document) == ["chain broken", "files changed"]


@pytest.mark.parametrize("shape", [Shape(verification="failed"), Shape(verification="self")])
def test_a_reservation_is_on_every_table_and_in_every_rendering(records: Records, shape: Shape) -> None:
    document = describe(records(shape))
    tables = [b for s in document.sections for b in s.blocks if isinstance(b, Table)]
    assert len(tables) >= 7
    assert all(document.mark in t.mark for t in tables)
    text = render_markdown(records(shape))
    assert text.count(document.mark) >= len(tables) + len(document.figures)


def test_a_run_that_was_cut_short_says_so_in_the_headline_and_at_its_speed(records: Records) -> None:
    document = describe(records(Shape(bench="interrupted")))
    assert marks(document) == ["interrupted"]
    assert "after 9 counted requests" in document.headline.marks[0].sentence
    assert table(document, "speed-table").mark == "interrupted"
    assert table(document, "memory-table").mark == ""


def test_a_run_that_was_cut_short_before_the_benchmark_says_so(records: Records) -> None:
    run = records(Shape(bench="none"))
    assert run.journey is not None
    from freehold.records.journey import StageStatus

    stages = [replace(s, status=StageStatus.INTERRUPTED, reason="Ctrl-C was pressed") for s in run.journey.stages[-1:]]
    cut = replace(run, journey=replace(run.journey, stages=(*run.journey.stages[:-1], *stages)))
    document = describe(cut)
    assert marks(document) == ["interrupted"]
    assert "during bench" in document.headline.marks[0].sentence
    assert "Speed was not measured: Ctrl-C was pressed." in document.headline.sentence


def test_checks_that_stay_open_or_warn_are_counted_beside_the_verdict(records: Records) -> None:
    run = records()
    assert run.verification is not None
    verdicts = list(run.verification.verdicts)
    verdicts[1] = replace(verdicts[1], outcome=Outcome.INCONCLUSIVE)
    verdicts[2] = replace(verdicts[2], outcome=Outcome.WARN)
    changed = replace(
        run.verification, verdicts=tuple(verdicts), outcome=Outcome.INCONCLUSIVE, passed=True
    )  # an open side check does not block
    document = describe(replace(run, verification=changed))
    assert document.headline.word == "verified"
    assert marks(document) == ["open checks", "warnings"]


# --- figures --------------------------------------------------------------------------------------------------------


def test_headline_figures_of_a_healthy_run(records: Records) -> None:
    document = describe(records())
    decode = figure(document, "decode speed", "code · 1 stream")
    assert value_text(decode.value) == "58.7 ± 0.6 tok/s"
    assert decode.note == "n = 15; 58 % of the ceiling, 101 tok/s"
    assert figure(document, "TTFT", "prose · 1 stream").note == "n = 15; p10–p90 250–294 ms"
    # 276,824,064 B resident over 295,916,032 B predicted (96,688,512 + 94,371,840 + 62,914,560 + 41,943,040): 94 %
    assert figure(document, "memory after load").note == "94 % of the predicted 282.2 MiB"


@pytest.mark.parametrize(
    ("bench", "note"), [("few", "only 6 requests: no interval"), ("lone", "a single request"), ("full", "n = 15")]
)
def test_fewer_than_fifteen_requests_make_no_interval_headline(records: Records, bench: str, note: str) -> None:
    document = describe(records(Shape(bench=bench)))
    decode = figure(document, "decode speed", "code · 1 stream")
    assert ("±" in value_text(decode.value)) == (bench == "full")
    assert decode.note.startswith(note)


def test_the_table_keeps_the_interval_that_the_headline_leaves_out(records: Records) -> None:
    cells = [c for c in cited_in(describe(records(Shape(bench="few")))) if c.name.startswith("decode speed, mean")]
    assert any("±" in value_text(cell) for cell in cells)


def test_several_streams_are_kept_apart_from_the_single_one(records: Records) -> None:
    document = describe(records(Shape(concurrency=(1, 4))))
    scopes = {(f.label, f.scope) for f in document.figures}
    assert ("decode speed", "code · 1 stream") in scopes
    assert ("output throughput", "code · 4 streams") in scopes
    assert ("decode speed", "code · 4 streams") not in scopes


@pytest.mark.parametrize("kind", [Kind.VENDOR, Kind.COMMUNITY, Kind.ASSUMED])
def test_a_ceiling_that_nobody_measured_says_whose_it_is(records: Records, kind: Kind) -> None:
    run = records(Shape(bandwidth_kind=kind))
    decode = figure(describe(run), "decode speed", "code · 1 stream")
    assert decode.note.endswith(f"(calculated from {kind} inputs)")
    assert f"101 tok/s ({kind} inputs)" in render_markdown(run)


def test_without_a_benchmark_the_figures_are_dashes_with_a_reason(records: Records) -> None:
    document = describe(records(Shape(verification="failed", bench="none")))
    for label in ("decode speed", "TTFT"):
        evidence = figure(document, label).value.evidence
        assert evidence.text == DASH
        assert evidence.reason == "the verification failed, so no speed was measured"


def test_a_benchmark_without_an_arm_is_no_zero(records: Records) -> None:
    document = describe(records(Shape(bench="empty")))
    assert figure(document, "decode speed").value.evidence.is_missing
    assert [b.is_missing for b in section(document, "speed").blocks if isinstance(b, Text)] == [True]


# --- tables ---------------------------------------------------------------------------------------------------------


def test_every_rate_stands_beside_its_ceiling(records: Records) -> None:
    for group in table(describe(records()), "speed-table").groups:
        names = [row.cells[0] for row in group.rows]
        assert names.index("decode speed") < names.index("decode ceiling") < names.index("share of ceiling")


def test_three_ledgers_and_their_gap(records: Records) -> None:
    rows = table(describe(records()), "ledger-table").groups[0].rows
    cells = [value_text(c) if isinstance(c, Cited) else c for c in rows[0].cells]
    # 15 requests of 64 tokens, and 5 tokens of readiness probes in the engine's own counter
    assert cells[:4] == ["code · 1 stream", "960 tokens", "960 tokens", "965 tokens"]
    assert "readiness probes" in cells[4]


def test_every_dash_stands_once_more_among_what_was_not_measured(records: Records) -> None:
    for shape in (Shape(), Shape(is_attached=True, verification="self"), Shape(fits=False), Shape(bench="empty")):
        document = describe(records(shape))
        listed = {
            (name, row.cells[2])
            for row in table(document, "gaps").groups[0].rows
            for name in str(row.cells[0]).split("\n")
        }
        missing = {(c.name, c.evidence.reason) for c in cited_in(document) if c.evidence.is_missing}
        assert missing
        assert missing <= listed


def test_values_in_tables_have_names_of_their_own(records: Records) -> None:
    for shape in (Shape(), Shape(concurrency=(1, 4))):
        values: dict[str, Evidence] = {}
        for cited in cited_in(describe(records(shape))):
            assert values.setdefault(cited.name, cited.evidence) == cited.evidence, cited.name


# --- provenance -----------------------------------------------------------------------------------------------------


def test_the_chain_of_a_healthy_run_holds(records: Records) -> None:
    run = records()
    assert broken_links(run) == ()
    made_from = {row.cells[0]: row.cells[2] for row in table(describe(run), "chain").groups[0].rows}
    assert made_from["plan.json"] == "inventory.json ✓\nnode.json ✓\nnode_state.json ✓"
    assert made_from["samples/bench.jsonl"] == "raw data of bench.json"


def test_a_record_made_from_another_file_than_the_one_here_is_called_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    path = folder.path / "plan.json"
    plan = json.loads(path.read_bytes())
    plan["context_tokens"] = 8192
    path.write_text(json.dumps(plan))
    run = load_run(folder)
    assert broken_links(run) == (
        "preflight.json was made from another plan.json than the one here",
        "bench.json was made from another plan.json than the one here",
    )
    assert "chain broken" in marks(describe(run))


def test_samples_that_were_changed_are_called_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    path = folder.samples / "bench.jsonl"
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    assert broken_links(load_run(folder)) == ("samples/bench.jsonl is not the file that bench.json was made from",)


def test_a_link_out_of_the_folder_keeps_its_hash() -> None:
    links = links_of({"reference": "ab" * 32, "plan.json": "cd" * 32}, {"plan.json": "cd" * 32})
    assert [link.text for link in links] == [f"reference {'ab' * 32}", "plan.json ✓"]


def test_paths_of_the_machine_stay_out(records: Records) -> None:
    text = render_markdown(records())
    assert "/somewhere/private" not in text
    assert "somebody" not in text
    assert (
        "\nGOMP_SPINCOUNT=0 python -m freehold.engines.llama_cpp.serve --model SmolLM2-135M-Instruct.Q4_1.gguf" in text
    )


# --- a missing value is never a number ------------------------------------------------------------------------------

FIRST = 900_001


def with_evidence(value: Any, change: Callable[[Evidence], Evidence]) -> Any:
    """A record with every evidence in it changed."""
    if isinstance(value, Evidence):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: with_evidence(getattr(value, f.name), change) for f in fields(value) if f.init}
        )
    if isinstance(value, dict):
        return {key: with_evidence(item, change) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(with_evidence(item, change) for item in value)
    return value


def numbered(run: RunRecords, missing: set[int]) -> tuple[RunRecords, int]:
    """The same run with values 900,001, 900,002 … in place of all evidence, some of it missing."""
    count = 0

    def change(_: Evidence) -> Evidence:
        nonlocal count
        position = count
        count += 1
        if position in missing:
            return Evidence.not_measured("it was taken away", "tok/s")
        return Evidence.measured(FIRST + position, source="a test", n=15)

    stages = ("node_state", "plan", "preflight", "deployment", "verification", "bench")
    return replace(run, **{name: with_evidence(getattr(run, name), change) for name in stages}), count


def numbers_in(text: str, count: int) -> set[int]:
    return {i for i in range(count) if f"{FIRST + i:,}" in text}


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_missing_never_shows_a_number_and_what_is_there_does(records: Records, data: st.DataObject) -> None:
    _, count = numbered(records(), set())
    missing = data.draw(st.sets(st.integers(min_value=0, max_value=count - 1)))
    run, _ = numbered(records(), missing)
    document = describe(run)
    for cited in cited_in(document):
        assert (value_text(cited) == DASH) == cited.evidence.is_missing
    shown = numbers_in(render_markdown(run), count)
    assert not shown & missing
    # The only evidence a report does not print is the machine state's own copy of what the plan already shows.
    assert len(set(range(count)) - missing - shown) <= 3


def test_the_property_above_sees_what_it_should(records: Records) -> None:
    run, count = numbered(records(), set())
    assert count > 70
    assert len(numbers_in(render_markdown(run), count)) >= count - 3
