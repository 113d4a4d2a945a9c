"""The command line's frame: help, usage errors, exit codes, interruption, and what is imported when."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import freehold
from freehold import errors
from freehold.cli.main import COMMANDS, build_group, load_command, main

CLI = Path(freehold.__file__).parent / "cli"
frame = importlib.import_module("freehold.cli.main")
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
FRAME = {"__init__", "main", "render", "stages"}
HEAVY = [
    "torch",
    "httpx",
    "pydantic",
    "altair",
    "huggingface_hub",
    "h11",
    "jinja2",
    "psutil",
    "rich",
    "vl_convert",
    "yaml",
]


def shell(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def present_commands() -> list[str]:
    return [name for name in COMMANDS if (CLI / f"{name}.py").is_file()]


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_help_lists_every_command_in_the_order_of_the_journey(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("Usage: freehold [OPTIONS] COMMAND [ARGS]...\n")
    listed = out.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines() if line[2:3].strip()] == present_commands()


def test_help_imports_none_of_the_heavy_libraries() -> None:
    done = shell(
        """
        import sys
        from freehold.cli.main import main
        status = main(["--help"])
        print(sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
        print([name for name in sys.modules if name.startswith("freehold.")], file=sys.stderr)
        sys.exit(status)
        """
    )
    assert done.returncode == 0
    top_level, own = (line for line in done.stderr.splitlines())
    assert not set(HEAVY) & set(eval(top_level))
    assert set(eval(own)) <= {"freehold.cli", "freehold.cli.main", "freehold.errors"}


def test_every_module_with_a_command_is_in_the_table() -> None:
    modules = {path.stem for path in CLI.glob("*.py")} - FRAME
    commands = {
        name for name in modules if callable(getattr(importlib.import_module(f"freehold.cli.{name}"), name, None))
    }
    assert commands == set(present_commands())


@pytest.mark.parametrize("name", present_commands())
def test_the_table_says_what_the_command_says(name: str) -> None:
    function = getattr(importlib.import_module(f"freehold.cli.{name}"), name)
    assert (function.__doc__ or "").strip().split("\n")[0] == COMMANDS[name]
    assert load_command(name).name == name


@pytest.mark.parametrize("name", present_commands())
def test_the_help_of_every_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "-h"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Usage: freehold {name} ")
    assert COMMANDS[name].split()[0] in out
    assert err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"freehold {freehold.__version__}\n"


def test_the_installed_command_is_this_one() -> None:
    command = Path(sys.executable).parent / "freehold"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"freehold {freehold.__version__}\n"


def test_an_unknown_option_is_misuse_in_three_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fast"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: no such option: --fast\n"
        "  why: `freehold` has no such option, and an unknown one is never ignored\n"
        "  try: `freehold --help` lists what it takes\n"
    )


@pytest.mark.parametrize(("typo", "meant"), [("inspct", "inspect"), ("repotr", "report")])
def test_an_unknown_command_is_misuse_and_the_nearest_is_named(
    typo: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if meant not in present_commands():
        pytest.skip(f"`freehold {meant}` is not there")
    assert main([typo]) == 2
    assert capsys.readouterr().err.startswith(f"error: no such command '{typo}'. Did you mean '{meant}'?\n")


@pytest.mark.parametrize("name", present_commands())
def test_an_unknown_option_of_every_command_is_misuse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith("error: no such option: --no-such-option")
    assert f"`freehold {name} --help`" in err


def raising(error: BaseException) -> Callable[[list[str]], int]:
    def run(words: list[str]) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.FreeholdError("w", why="y", fix="f"), 1),
        (errors.PlanError("w", why="y", fix="f"), 1),
        (errors.PreflightError("w", why="y", fix="f"), 1),
        (errors.EngineError("w", why="y", fix="f"), 1),
        (errors.VerificationError("w", why="y", fix="f"), 1),
        (errors.InputError("w", why="y", fix="f"), 2),
        (errors.CheckpointError("w", why="y", fix="f"), 2),
        (errors.PrerequisiteError("w", why="y", fix="f"), 3),
        (errors.Interrupted("w", why="y", fix="f"), 130),
    ],
)
def test_exit_codes(error: errors.FreeholdError, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"], run=raising(error)) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: w\n  why: y\n  try: f\n")


def test_an_error_under_json_is_the_last_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.PlanError("it does not fit", why="y", fix="f", facts={"missing_bytes": 3})
    assert main(["plan", "--json"], run=raising(error)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    document = json.loads(err.splitlines()[-1])
    assert document["schema"] == "freehold.error/1"
    assert (document["error"], document["exit_code"], document["facts"]) == ("PlanError", 1, {"missing_bytes": 3})


def test_json_after_two_dashes_is_an_argument_and_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--", "--json"], run=raising(errors.InputError("w", why="y", fix="f"))) == 2
    assert capsys.readouterr().err.startswith("error: w\n")


def test_ctrl_c_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"], run=raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err.startswith("error: interrupted\n")


def test_a_bug_is_said_to_be_one_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"], run=raising(ZeroDivisionError("division by zero"))) == 70
    err = capsys.readouterr().err
    assert err.startswith("error: internal error: ZeroDivisionError: division by zero\n")
    assert "test_main.py:" in err
    assert "--debug" in err
    assert "Traceback" not in err


def test_debug_shows_the_traceback_and_may_stand_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[list[str]] = []

    def run(words: list[str]) -> int:
        seen.append(words)
        raise errors.PlanError("w", why="y", fix="f")

    for words in (["--debug", "up", "x"], ["up", "x", "--debug"]):
        assert main(words, run=run) == 1
        err = capsys.readouterr().err
        assert "Traceback (most recent call last)" in err
        assert err.endswith("error: w\n  why: y\n  try: f\n")
    assert seen == [["up", "x"], ["up", "x"]]
    main(["up", "--", "--debug"], run=run)
    assert seen[-1] == ["up", "--", "--debug"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_asks_to_end_is_an_interruption(number: signal.Signals) -> None:
    code = """
        import sys, time
        from freehold.cli.main import main
        def run(words):
            try:
                print("working", flush=True)
                time.sleep(60)
            finally:
                print("tidied", flush=True)
        sys.exit(main(["up"], run=run))
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "working\n"
        child.send_signal(number)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert out == "tidied\n"
    assert err.startswith("error: interrupted\n")
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from freehold.cli.main import main; sys.exit(main(['--help']))"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_completion_offers_commands_without_importing_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from freehold.cli.main import main; sys.exit(main())"],
        env={**os.environ, "_FREEHOLD_COMPLETE": "complete_bash", "COMP_WORDS": "freehold ", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == present_commands()


def test_commands_are_loaded_one_by_one() -> None:
    for name in present_commands():
        assert build_group().commands[name].callback is None, "the list holds light stand-ins"
        assert load_command(name).callback is not None


@pytest.mark.parametrize(
    ("number", "name", "what"),
    [
        (errno.EACCES, "/x/model.gguf", "cannot use /x/model.gguf"),
        (errno.ENAMETOOLONG, "x" * 5000, "cannot use " + "x" * 200 + "…"),
        (errno.ENOSPC, None, "cannot write the output"),
    ],
)
def test_what_the_system_refuses_is_no_bug(
    number: int, name: str | None, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frame, "_give_up_output", lambda: None)
    assert main(["up"], run=raising(OSError(number, os.strerror(number), name))) == 3
    err = capsys.readouterr().err
    assert " ".join(err.split()).startswith(f"error: {what} why: {os.strerror(number)} try: ")


def test_no_memory_left_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"], run=raising(MemoryError())) == 3
    assert capsys.readouterr().err.startswith("error: out of memory\n")


@pytest.mark.parametrize(
    ("words", "redirection", "code"),
    [
        ("--version", ">&-", 0),
        ("--version", "<&- >&- 2>&-", 0),
        ("inspect /nonexistent", "2>&-", 2),
        ("inspect /nonexistent", "<&- >&- 2>&-", 2),
        pytest.param("--version", ">/dev/full", 3, marks=NEEDS_FULL),
        pytest.param("--help", ">/dev/full", 3, marks=NEEDS_FULL),
        pytest.param("inspect /nonexistent", "2>/dev/full", 2, marks=NEEDS_FULL),
    ],
)
def test_closed_and_full_streams_change_no_exit_code_into_a_bug(words: str, redirection: str, code: int) -> None:
    program = "import sys; from freehold.cli.main import main; sys.exit(main())"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} {words} {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert "internal error" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_closed_stdout_is_not_taken_by_the_next_file(tmp_path: Path) -> None:
    program = f"""
        import sys
        from freehold.cli.main import main
        def run(words):
            with open({str(tmp_path / "record")!r}, "w") as sink:
                print("talk", flush=True)
                sink.write("record")
            return 0
        sys.exit(main(["up"], run=run))
        """
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(textwrap.dedent(program))} >&-"
    assert subprocess.run(["sh", "-c", command], check=False, timeout=60).returncode == 0
    assert (tmp_path / "record").read_text() == "record"
