"""Markdown and terminal: snapshots, and what must hold whatever the records say."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from sample_run import Shape

from freehold.evidence import Kind
from freehold.records.verdict import Outcome
from freehold.report.load import RunRecords
from freehold.report.markdown import render_markdown
from freehold.report.terminal import render_summary

Records = Callable[..., RunRecords]
SNAPSHOTS = Path(__file__).parent / "snapshots"

SHAPES = {
    "healthy": Shape(),
    "attached": Shape(is_attached=True, verification="self"),
    "unverified": Shape(verification="failed"),
    "failed": Shape(verification="failed", bench="none"),
    "interrupted": Shape(bench="interrupted", bandwidth_kind=Kind.VENDOR),
    "does-not-fit": Shape(fits=False, free_bytes=200_000_000),
    "no-server": Shape(has_server=False),
}


def shown(run: RunRecords, *, width: int = 80, has_colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, highlight=False, force_terminal=has_colour, no_color=not has_colour, legacy_windows=False
    )
    console.print(render_summary(replace(run, folder=Path("runs/20261130T224013Z-sample-smollm2"))))
    return out.getvalue()


def check_snapshot(name: str, text: str) -> None:
    path = SNAPSHOTS / name
    if not path.is_file():  # a new snapshot is written once, and fails until somebody has read and committed it
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path.name} did not exist and was written: read it, then run again")
    assert text == path.read_text(encoding="utf-8"), f"delete {path.name} and run again if the change is meant"


@pytest.mark.parametrize("name", SHAPES)
def test_the_summary_is_as_it_was(records: Records, name: str) -> None:
    check_snapshot(f"{name}.txt", "".join(line.rstrip() + "\n" for line in shown(records(SHAPES[name])).splitlines()))


@pytest.mark.parametrize("name", ["healthy", "attached", "no-server"])
def test_the_markdown_is_as_it_was(records: Records, name: str) -> None:
    check_snapshot(f"{name}.md", render_markdown(records(SHAPES[name])))


# --- the summary ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_the_summary_fits_one_screen(records: Records, name: str) -> None:
    lines = shown(records(SHAPES[name])).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_the_summary_fits_one_screen_whatever_happened(records: Records) -> None:
    run = records(Shape(concurrency=(1, 2, 4, 8, 16), classes=("code", "prose", "x" * 90), bench="interrupted"))
    assert run.deployment is not None
    assert run.verification is not None
    verdicts = tuple(replace(v, outcome=Outcome.INCONCLUSIVE) for v in run.verification.verdicts)
    long = replace(
        run,
        recipe=replace(run.recipe, model="m" * 300) if run.recipe else None,
        deployment=replace(run.deployment, engine="e" * 300),
        verification=replace(run.verification, verdicts=verdicts, outcome=Outcome.INCONCLUSIVE),
        file_problems=("f" * 300,),
        bench=replace(run.bench, arms=run.bench.arms * 4) if run.bench else None,
    )
    lines = shown(long).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert any("more arms in the report" in line for line in lines)


def test_the_summary_names_the_address_of_a_server_that_stays(records: Records) -> None:
    run = records()
    assert run.journey is not None
    assert "endpoint" not in shown(run)
    kept = replace(run, journey=replace(run.journey, is_serving=True, base_url="http://127.0.0.1:33901/v1"))
    assert "endpoint      http://127.0.0.1:33901/v1 until `freehold stop`" in shown(kept).splitlines()


def test_a_path_is_never_cut(records: Records) -> None:
    folder = Path("/somewhere") / ("long-name-" * 20) / "run"
    out = io.StringIO()
    Console(file=out, width=80).print(render_summary(replace(records(), folder=folder)))
    assert str(folder) in out.getvalue().replace("\n", "")


def test_the_summary_says_it_without_colours(records: Records) -> None:
    plain, coloured = shown(records()), shown(records(), has_colour=True)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert plain.startswith("✓ verified\n")


def test_records_cannot_steer_the_terminal(records: Records) -> None:
    run = records()
    assert run.recipe is not None
    assert run.deployment is not None
    hostile = "\x1b]0;owned\x07\x1b[2J\r\n[bold]x[/bold]"
    changed = replace(
        run,
        recipe=replace(run.recipe, model=hostile, name=hostile),
        deployment=replace(run.deployment, engine=hostile),
        file_problems=(hostile,),
    )
    text = shown(changed)
    assert not set(text) & {"\x1b", "\x07", "\r"}
    assert "[bold]x[/bold]" in text  # shown, not obeyed
    assert not set(render_markdown(changed)) & {"\x1b", "\x07", "\r"}


def test_the_summary_names_the_report_once_it_is_there(records: Records, tmp_path: Path) -> None:
    run = replace(records(), folder=tmp_path)
    out = io.StringIO()
    Console(file=out, width=300).print(render_summary(run))
    assert "report.html" not in out.getvalue()
    (tmp_path / "report.html").write_text("")
    Console(file=out, width=300).print(render_summary(run))
    assert str(tmp_path / "report.html") in out.getvalue()


# --- Markdown -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_every_footnote_exists_and_is_used(records: Records, name: str) -> None:
    text = render_markdown(records(SHAPES[name]))
    defined = re.findall(r"^\[\^(\d+)\]: ", text, flags=re.MULTILINE)
    used = re.findall(r"\[\^(\d+)\](?!: )", text)
    assert defined == [str(i) for i in range(1, len(defined) + 1)]
    assert set(used) == set(defined)


def test_every_table_row_has_all_its_cells(records: Records) -> None:
    rows: list[list[int]] = [[]]
    for line in render_markdown(records()).splitlines():
        if line.startswith("| "):
            rows[-1].append(len(re.findall(r"(?<!\\)\|", line)))
        elif rows[-1]:
            rows.append([])
    assert len(rows) > 10
    assert all(len(set(table)) == 1 for table in rows if table)


def test_markup_in_records_stays_text(records: Records) -> None:
    run = records(Shape(classes=("a|b", "<b>*x*</b>")))
    assert run.recipe is not None
    hostile = "x\n\n# heading\n| [a](http://evil.example) `code` <script> &lt;"
    text = render_markdown(replace(run, recipe=replace(run.recipe, name=hostile), recipe_text="```\nescape"))
    assert text.startswith(
        "# x<br><br>\\# heading<br>\\| \\[a\\](http://evil.example) \\`code\\` \\<script\\> \\&lt;\n"
    )
    assert "a\\|b · 1 stream" in text
    assert "````yaml\n```\nescape\n````" in text
