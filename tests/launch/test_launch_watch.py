"""Following a log that grows, and holding Ctrl-C back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from freehold.launch.interrupts import interrupts_held
from freehold.launch.watch import LogFollower


def test_lines_come_once_and_only_whole(tmp_path):
    path = tmp_path / "log"
    log = LogFollower(path)
    assert log.new_lines() == []
    path.write_bytes(b"one\ntw")
    assert log.new_lines() == ["one"]
    with path.open("ab") as sink:
        sink.write(b"o\r\n\n")
    assert log.new_lines() == ["two", ""]
    assert log.new_lines() == []
    assert log.last_line == "two"


def test_what_an_earlier_process_wrote_is_skipped(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"old\n")
    log = LogFollower(path, start=4)
    assert log.new_lines() == []
    with path.open("ab") as sink:
        sink.write(b"new\n")
    assert log.new_lines() == ["new"]
    assert log.tail() == "new\n"


def test_an_endless_line_is_cut_and_bad_bytes_are_replaced(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 200_000 + b"\n\xff\xfe\n")
    log = LogFollower(path)
    lines = log.new_lines()
    assert len(lines[0]) == 64 * 1024
    assert lines[-1] == "��"
    path.write_bytes(path.read_bytes() + b"y" * 200_000)
    assert [len(line) for line in log.new_lines()] == [64 * 1024] * 3


def test_only_the_end_of_a_long_log_is_kept(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a" * 300_000 + b"the end")
    assert len(LogFollower(path).tail()) == 256 * 1024
    assert LogFollower(path).tail().endswith("the end")
    assert LogFollower(tmp_path / "none").tail() == ""


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []

    def work() -> None:
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            done.append("after the signal")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_signal_nothing_happens_and_an_error_passes():
    before = signal.getsignal(signal.SIGTERM)
    with interrupts_held():
        pass
    with pytest.raises(ValueError), interrupts_held():
        raise ValueError
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_may_use_it_too():
    done = []

    def work() -> None:
        with interrupts_held():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "usage"),
        (["--owner-pid", "x", "--", "true"], 2, "usage"),
        (["--owner-pid", "{me}", "--", "no-such-program-4711"], 127, "cannot start `no-such-program-4711`"),
        (["--owner-pid", "{me}", "--", sys.executable, "-S", "-c", "raise SystemExit(5)"], 5, ""),
    ],
)
def test_the_owned_start_becomes_its_program_or_says_why_not(arguments, status, words):
    given = [argument.replace("{me}", str(os.getpid())) for argument in arguments]
    done = subprocess.run([sys.executable, "-m", "freehold.launch.owned", *given], capture_output=True, text=True)
    assert done.returncode == status
    assert words in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_an_owner_that_is_gone_already_starts_nothing():
    command = [
        sys.executable,
        "-m",
        "freehold.launch.owned",
        "--owner-pid",
        "1",
        "--",
        sys.executable,
        "-c",
        "print(1)",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_asks_to_end_waits_for_the_end_of_the_block(number):
    came = []
    before = signal.signal(number, lambda *_: came.append("now"))
    try:
        with interrupts_held():
            os.kill(os.getpid(), number)
            came.append("block")
    finally:
        signal.signal(number, before)
    assert came == ["block", "now"]


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts_held():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_log_that_grows_faster_than_it_is_read_comes_in_pieces(tmp_path):
    path = tmp_path / "log"
    lines = [f"line {i:07d}" for i in range(200_000)]
    path.write_text("".join(f"{line}\n" for line in lines))
    log = LogFollower(path)
    first = log.new_lines()
    assert len(first) == 2**20 // len("line 0000000\n")
    seen = list(first)
    while more := log.new_lines():
        seen += more
    assert seen == lines
    assert log.num_bytes == 200_000 * 13
