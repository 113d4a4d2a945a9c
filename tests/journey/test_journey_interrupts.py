"""Ctrl-C, a full disk, a cache that cannot be written, two journeys at once: nothing is lost, nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
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
def make_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes a real file system of a given size."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    places: list[Path] = []

    def make(options: str) -> Path:
        place = tmp_path / f"disk-{len(places)}"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
        places.append(place)
        return place

    yield make
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("size", ["4k", "16k", "64k", "160k"])
def test_a_full_disk_ends_with_one_clear_error(make_disk, run_program, size, assert_whole):
    disk = make_disk(f"size={size}")
    ended = run_program("up", "--requests", "1", "--output-tokens", "8", "--run-dir", disk / "run")
    # With a little room preflight is reached and says no itself; with less, writing a record fails.
    assert ended.code in (1, 3), ended.stderr
    assert "No space left on device" in ended.stderr or "free for the run folder" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("error: ") == 1
    assert_whole(disk)


@pytest.mark.parametrize("stage", ["launch", "verify"])
def test_a_disk_that_fills_on_the_way_stops_the_server(make_disk, start_program, stage, assert_whole):
    disk = make_disk("size=80m")
    one = start_program("up", "--requests", "2", "--output-tokens", "8", "--run-dir", disk / "run")
    one.wait_until(lambda: f"✓ {stage}" in one.stderr)
    with (disk / "filler").open("wb") as filler:
        try:
            while True:
                filler.write(b"\0" * 2**16)
                filler.flush()
        except OSError:
            pass
    assert one.process.wait(timeout=120) == 3, one.stderr
    assert "No space left on device" in one.stderr
    assert "Traceback" not in one.stderr
    assert one.stderr.count("error: ") == 1
    assert_whole(disk)


@pytest.fixture
def read_only(make_disk: Callable[[str], Path]) -> Path:
    """A folder on a disk that cannot be written."""
    return make_disk("ro,size=64k")


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
