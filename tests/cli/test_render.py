"""What goes to stdout is data, in UTF-8 and alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from freehold.cli.render import describe_evidence, terminal_width, write_json, write_record, write_talk
from freehold.evidence import Evidence
from freehold.records.base import decode, encode
from freehold.records.preflight import PreflightReport
from freehold.records.verdict import Outcome

REPORT = PreflightReport(made_from={"plan": "é汉"}, verdicts=(), outcome=Outcome.INCONCLUSIVE)


def test_a_record_on_stdout_is_the_record_on_disk(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_record(REPORT)
    out, err = capsysbinary.readouterr()
    assert (out, err) == (encode(REPORT), b"")
    assert decode(PreflightReport, out) == REPORT


def test_json_is_utf_8_in_any_locale() -> None:
    code = "from freehold.cli.render import write_json; write_json({'name': '\\xe9\\u6c49\\U0001f600'})"
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout.decode("utf-8")) == {"name": "é汉😀"}


def test_a_number_that_json_does_not_have_is_refused(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json({"x": float("nan")})
    assert capsysbinary.readouterr().out == b""


def test_talk_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    write_talk("hello\n")
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(("columns", "width"), [("20", 40), ("80", 80), ("400", 120)])
def test_the_width_has_bounds(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


def test_a_calculation_names_its_weakest_input() -> None:
    assumed = Evidence.assumed(3, "s", source="a guess")
    assert describe_evidence(assumed) == "3.00 s (assumed)"
