"""The exception tree, its exit codes, and the three parts of every error."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold import errors
from freehold.cli.main import BugError
from freehold.cli.render import render_error, render_error_json, sanitize

EXIT_CODES = {
    "FreeholdError": 1,
    "InputError": 2,
    "CheckpointError": 2,
    "PrerequisiteError": 3,
    "PlanError": 1,
    "PreflightError": 1,
    "EngineError": 1,
    "VerificationError": 1,
    "Interrupted": 130,
}


def every_error() -> list[type[errors.FreeholdError]]:
    found = [errors.FreeholdError]
    for kind in found:
        found += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == errors.__name__]


def test_exit_codes() -> None:
    assert {kind.__name__: kind.exit_code for kind in every_error()} == EXIT_CODES
    assert BugError.exit_code == 70
    assert sorted(EXIT_CODES) == sorted(errors.__all__)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn = dict(re.findall(r"─ (\w+) +exit (\d+):", errors.__doc__))
    assert {name: int(code) for name, code in drawn.items()} == {
        name: code for name, code in EXIT_CODES.items() if name != "FreeholdError"
    }


@pytest.mark.parametrize("kind", every_error())
def test_every_error_shows_its_three_parts(kind: type[errors.FreeholdError]) -> None:
    error = kind("the disk is full", why="0 B of 8.0 GB are free", fix="delete `runs/old`")
    assert render_error(error, width=80) == (
        "error: the disk is full\n  why: 0 B of 8.0 GB are free\n  try: delete `runs/old`\n"
    )
    document = json.loads(render_error_json(error))
    assert document == {
        "schema": "freehold.error/1",
        "error": kind.__name__,
        "what": "the disk is full",
        "why": "0 B of 8.0 GB are free",
        "fix": "delete `runs/old`",
        "exit_code": kind.exit_code,
        "facts": {},
    }


def test_an_interruption_says_what_happened_without_being_told() -> None:
    assert render_error(errors.Interrupted(), width=80).startswith("error: interrupted\n  why: Ctrl-C")


def test_long_parts_wrap_under_their_label_and_commands_stay_whole() -> None:
    command = "`freehold up recipe.yaml --run-dir /srv/runs/one --context 16384`"
    error = errors.PlanError(
        "the plan does not fit: rank 2 needs 84.1 GiB, the device reports 79.6 GiB",
        why="weights 61.2 + KV cache 20.0 (32,768 tokens × 4 sequences, fp8) + workspace 2.9 GiB",
        fix=f"a shorter context frees 10.0 GiB per device: {command} and nothing else changes",
    )
    text = render_error(error, width=60)
    assert command in text
    for line in text.splitlines():
        assert line[:7] in {"error: ", "  why: ", "  try: ", " " * 7}
        assert len(line) <= 60 or command in line


def test_lines_of_an_engine_stay_lines() -> None:
    error = errors.EngineError("it died", why="its last words:\nfirst line\n\nsecond line", fix="read the log")
    assert render_error(error, width=80).splitlines()[1:5] == [
        "  why: its last words:",
        "       first line",
        "",
        "       second line",
    ]


@given(st.text(), st.text(), st.text(), st.integers(10, 200))
def test_any_text_renders_without_control_characters(what: str, why: str, fix: str, width: int) -> None:
    text = render_error(errors.FreeholdError(what, why=why, fix=fix), width=width)
    assert all(c == "\n" or c.isprintable() for c in text)


def test_control_characters_are_spelled_out() -> None:
    assert sanitize("tensor \x1b[31m\x07\x85\u2028\U000e0001 é 汉\n") == (
        "tensor \\x1b[31m\\x07\\x85\\u2028\\U000e0001 é 汉\n"
    )


def test_facts_that_json_does_not_know_become_text() -> None:
    error = errors.InputError("x", why="y", fix="z", facts={"path": object, "n": 3})
    assert json.loads(render_error_json(error))["facts"]["n"] == 3
