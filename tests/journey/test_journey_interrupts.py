"""Ctrl-C, a full disk, a cache that cannot be written, two journeys at once: nothing is lost, nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from freehold.records.bench import BenchResult
from freehold.records.folder import RunFolder
from freehold.records.journey import Journey, StageStatus

pytestmark = pytest.mark.engine


STAGES_BEFORE = {"model": "", "launch": "preflight", "verify": "launch", "bench": "verify"}


@pytest.mark.parametrize("stage", STAGES_BEFORE)
@pytest.mark.parametrize("delay_s", [0.05, 1.5])
def test_ctrl_c_in_a_stage(start_program, tmp_path, stage, delay_s, assert_whole):
    folder = tmp_path / "run"
    one = start_program("up", "--run-dir", folder)
    before = STAGES_BEFORE[stage]
    one.wait_until(lambda: f"✓ {before}" in one.stderr if before else folder.is_dir())
    time.sleep(delay_s)
    assert one.interrupt() == 130
    assert "Traceback" not in one.stderr
    assert "error: interrupted" in one.stderr
    assert_whole(folder)
    journey = RunFolder.open(folder).load(Journey)
    assert any(s.status is StageStatus.INTERRUPTED for s in journey.stages)
    assert journey.is_serving is False
    assert (folder / "report.html").is_file()


def test_ctrl_c_in_bench_keeps_what_was_measured(start_program, tmp_path, assert_whole):
    folder = tmp_path / "run"
    one = start_program("up", "--run-dir", folder)
    samples = folder / "samples" / "bench.jsonl"
    one.wait_until(lambda: samples.is_file() and samples.read_text().count("\n") >= 8)
    assert one.interrupt() == 130
    assert_whole(folder)
    bench = RunFolder.open(folder).load(BenchResult)
    assert bench.interrupted
    assert sum(arm.requests for arm in bench.arms) >= 1
    assert str(folder) in one.stderr.replace("\n       ", "")


def test_a_second_ctrl_c_leaves_no_orphan(start_program, tmp_path, assert_whole):
    folder = tmp_path / "run"
    one = start_program("up", "--run-dir", folder)
    one.wait_until(lambda: "✓ launch" in one.stderr)
    os.killpg(one.process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.process.wait(timeout=60) == 130
    assert "Traceback" not in one.stderr
    assert_whole(folder)


def test_sigterm_ends_it_like_ctrl_c(start_program, tmp_path, assert_whole):
    folder = tmp_path / "run"
    one = start_program("up", "--run-dir", folder)
    one.wait_until(lambda: "✓ launch" in one.stderr)
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(timeout=60) == 130
    assert_whole(folder)


def test_a_killed_journey_leaves_no_server(start_program, tmp_path, leftovers_of):
    folder = tmp_path / "run"
    one = start_program("up", "--run-dir", folder)
    one.wait_until(lambda: "✓ launch" in one.stderr)
    one.process.kill()
    one.process.wait()
    end = time.monotonic() + 20
    while leftovers_of(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert leftovers_of(folder) == []


def test_two_journeys_at_once(start_program, tmp_path, assert_whole):
    words = ("--requests", "1", "--output-tokens", "8")
    one = start_program("up", *words, "--run-dir", tmp_path / "one")
    two = start_program("up", *words, "--run-dir", tmp_path / "two")
    assert one.process.wait(timeout=400) == 0, one.stderr
    assert two.process.wait(timeout=400) == 0, two.stderr
    for name in ("one", "two"):
        assert_whole(tmp_path / name)


def test_one_folder_takes_one_journey(start_program, run_program, tmp_path):
    folder = tmp_path / "run"
    one = start_program("up", "--run-dir", folder)
    one.wait_until(folder.is_dir)
    second = run_program("up", "--run-dir", folder)
    assert second.code in (2, 3)
    assert "error: " in second.stderr
    assert "Traceback" not in second.stderr
    one.interrupt()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with very little room."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("room", [0, 16, 96, 160], ids=lambda kib: f"{kib}KiB")
def test_a_full_disk_ends_with_one_clear_error(small_disk, run_program, room, assert_whole):
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * ((256 - room) * 1024 - 8192) if room else b"\0" * (256 * 1024 - 4096))
    folder = small_disk / "run"
    ended = run_program("up", "--requests", "1", "--output-tokens", "8", "--run-dir", folder)
    assert ended.code == 3, ended.stderr
    assert "No space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("error: ") == 1
    assert_whole(small_disk)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a read-only file system needs root")
    place = tmp_path / "sealed"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_read_only_cache_is_named(read_only, run_program, tmp_path, assert_whole):
    ended = run_program("up", "--cache", read_only, "--run-dir", tmp_path / "run")
    assert ended.code == 3, ended.stderr
    assert str(read_only) in ended.stderr.replace("\n       ", " ")
    assert "Traceback" not in ended.stderr
    assert_whole(tmp_path / "run")


def test_a_read_only_run_folder_is_named(read_only, run_program):
    ended = run_program("up", "--run-dir", read_only / "run")
    assert ended.code == 3, ended.stderr
    assert "Read-only file system" in ended.stderr
