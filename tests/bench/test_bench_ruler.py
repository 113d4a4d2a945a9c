"""The recorded run of the ruler: the document shows it, and it says what the project claims."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report() -> ModuleType:
    name = "freehold_ruler_report"
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / "ruler_report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record(report: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = report.last_record()
    return found


def test_the_document_shows_the_last_recorded_run(report: ModuleType, record: dict[str, Any]) -> None:
    document = report.DOCUMENT.read_text(encoding="utf-8")
    assert report.replace_figures(document, record) == document, "run `python benchmarks/ruler.py --docs`"


def test_the_recorded_run_answers_every_difficult_stream_right(record: dict[str, Any]) -> None:
    verdicts = {row["script"]: row["verdict"] for row in record["rows"] if row["script"] != "plain"}
    assert set(verdicts) == {
        "speculation",
        "batched",
        "reasoning",
        "usage_plus_10",
        "stall",
        "role_early",
        "stops_at_60",
        "cut_one_in_8",
    }
    assert set(verdicts.values()) == {"right"}


def test_the_recorded_run_says_where_it_was_disturbed(record: dict[str, Any]) -> None:
    for row in record["rows"]:
        if row["script"] == "plain":
            assert row["verdict"] == "right" or row["verdict"].startswith("disturbed by other work, which it says")


def test_the_recorded_run_meets_the_goals(report: ModuleType, record: dict[str, Any]) -> None:
    lines = report.met_goals(record)
    assert len(lines) == 4
    assert all(line.endswith("met") for line in lines[:3])
    plain = {row["streams"]: row for row in record["rows"] if row["script"] == "plain"}
    assert set(plain) == {1, 16, 64, 256}
    assert all(row["lost"] == 0 for row in record["rows"])


def test_a_missed_goal_is_called_missed(report: ModuleType, record: dict[str, Any]) -> None:
    rows = [{**row, "itl_p99_ms": 1.3} for row in record["rows"]]
    lines = report.met_goals({**record, "rows": rows})
    assert [line.rpartition(": ")[2] for line in lines[:3]] == ["met", "MISSED", "met"]
