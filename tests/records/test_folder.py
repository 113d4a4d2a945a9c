"""The run folder keeps whole files or none, one writer at a time, and a manifest of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from freehold.errors import InputError, PrerequisiteError
from freehold.records.base import encode, sha256_hex
from freehold.records.folder import MANIFEST, RunFolder, read_limited, run_name, write_whole
from freehold.records.preflight import PreflightReport
from freehold.records.verdict import Outcome, Verdict

REPORT = PreflightReport(
    made_from={"plan": "0" * 64},
    verdicts=(Verdict(check="port", outcome=Outcome.PASS, observation="port 8080 is free"),),
    outcome=Outcome.PASS,
)


def _mount(path: Path, options: str) -> Iterator[Path]:
    path.mkdir()
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("a file system of a known size takes root on Linux")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine does not let root mount a tmpfs: {done.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with room for 256 KiB."""
    yield from _mount(tmp_path / "small", "size=256k")


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system nobody can write, root included."""
    yield from _mount(tmp_path / "readonly", "ro,size=256k")


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    write_whole(target, b"old")
    write_whole(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["plan.json"]
    assert target.stat().st_mode & 0o777 == 0o644


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing_behind(small_disk: Path) -> None:
    target = small_disk / "plan.json"
    write_whole(target, b"old")
    with pytest.raises(PrerequisiteError) as caught:
        write_whole(target, b"x" * 2**20)
    assert caught.value.why == "No space left on device"
    assert "--run-dir" in caught.value.fix
    assert target.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["plan.json"]


def test_a_full_disk_ends_a_save_but_not_the_records_before_it(small_disk: Path) -> None:
    folder = RunFolder.create(small_disk / "run")
    folder.save(REPORT)
    with pytest.raises(PrerequisiteError):
        folder.write("samples/arm.jsonl", b"x" * 2**20)
    assert folder.load(PreflightReport) == REPORT
    assert folder.check_manifest() == []


def test_a_read_only_disk_is_said_so(read_only_disk: Path) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        RunFolder.create(read_only_disk / "run")
    assert caught.value.why == "Read-only file system"
    with pytest.raises(PrerequisiteError, match=r"cannot write .*plan\.json"):
        write_whole(read_only_disk / "plan.json", b"x")
    with pytest.raises(PrerequisiteError, match="cannot write in"), RunFolder(read_only_disk).lock():
        pytest.fail("a lock was had on a disk nobody can write")


def test_a_missing_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        write_whole(tmp_path / "missing" / "plan.json", b"x")
    assert caught.value.why == "No such file or directory"


def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    target = tmp_path / "record.json"
    write_whole(target, b"0" * 500_000)
    script = textwrap.dedent(
        """
        import itertools, sys
        from pathlib import Path
        from freehold.records.folder import write_whole
        print("ready", flush=True)
        for round in itertools.count(1):
            write_whole(Path(sys.argv[1]), str(round % 10).encode() * 500_000)
        """
    )
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(20):
                data = target.read_bytes()
                assert len(data) == 500_000
                assert len(set(data)) == 1
            writer.send_signal(signal.SIGKILL)
        data = target.read_bytes()
        assert (len(data), len(set(data))) == (500_000, 1)


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert folder.find(PreflightReport) is None
    sha256 = folder.save(REPORT)
    assert sha256 == sha256_hex(encode(REPORT)) == folder.sha256(PreflightReport)
    assert RunFolder.open(tmp_path / "run").load(PreflightReport) == REPORT
    assert folder.find(PreflightReport) == REPORT
    assert folder.file_name(PreflightReport) == "preflight.json"


def test_a_stage_that_has_not_run_is_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(InputError, match=r"preflight\.json does not exist"):
        folder.load(PreflightReport)


def test_the_manifest_notices_every_change(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert folder.check_manifest() == [f"{MANIFEST} is missing"]
    folder.save(REPORT)
    folder.write("logs/engine.log", b"line\n")
    folder.write("samples/prose.jsonl", b"{}\n")
    assert folder.check_manifest() == []
    (folder.logs / "engine.log").write_bytes(b"LINE\n")
    (folder.samples / "prose.jsonl").unlink()
    assert folder.check_manifest() == [
        "logs/engine.log was changed after it was written",
        "samples/prose.jsonl is missing",
    ]
    for broken in (b"", b"[]", b'{"files": 3}', b'{"files": {"a": {}}}', b"\xff", b"[" * 100_000):
        (folder.path / MANIFEST).write_bytes(broken)
        assert folder.check_manifest() == [f"{MANIFEST} cannot be read"]


def test_a_run_never_overwrites_a_run(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").save(REPORT)
    with pytest.raises(InputError, match="exists and is not an empty folder"):
        RunFolder.create(tmp_path / "run")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError):
        RunFolder.create(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert RunFolder.create(tmp_path / "empty").logs.is_dir()


def test_a_folder_without_records_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run folder"):
        RunFolder.open(tmp_path)
    with pytest.raises(InputError, match="is no run folder"):
        RunFolder.open(tmp_path / "missing")


def test_a_second_writer_in_another_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from freehold.records.folder import RunFolder
        with RunFolder(Path(sys.argv[1])).lock():
            print("held", flush=True)
            sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(PrerequisiteError, match="in use by another freehold"), folder.lock():
            pytest.fail("two writers hold one folder")
        first.send_signal(signal.SIGKILL)
    with folder.lock():
        pass


def test_a_run_is_named_after_its_time_and_recipe() -> None:
    moment = datetime(2026, 11, 30, 22, 40, 13, tzinfo=UTC)
    assert run_name("smollm2", moment) == "20261130T224013Z-smollm2"
    assert run_name("../we ird/näme", moment) == "20261130T224013Z-we-ird-n-me"
    assert run_name("///", moment) == "20261130T224013Z-run"
    assert len(run_name("x" * 500, moment)) == len("20261130T224013Z-") + 60


def test_a_later_write_does_not_declare_a_changed_file_correct(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    folder.write("recipe.yaml", b"name: one\n")
    folder.write("other.txt", b"other\n")
    (folder.path / "recipe.yaml").write_bytes(b"name: two\n")
    folder.write("other.txt", b"another\n")
    assert folder.check_manifest() == ["recipe.yaml was changed after it was written"]
    folder.write("recipe.yaml", b"name: three\n")
    assert folder.check_manifest() == []


def test_what_grows_by_nature_is_entered_as_it_is_now(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    (folder.logs / "engine-0.log").write_text("one\n")
    folder.write("other.txt", b"other\n")
    (folder.logs / "engine-0.log").write_text("one\ntwo\n")
    folder.write("other.txt", b"other\n")
    assert folder.check_manifest() == []


def test_what_is_set_aside_leaves_the_manifest_whole(tmp_path):
    from datetime import UTC, datetime

    from freehold.records.plan import Plan

    folder = RunFolder.create(tmp_path / "run")
    folder.write("plan.json", b"{}\n")
    folder.set_aside([Plan], datetime(2026, 11, 30, tzinfo=UTC))
    assert folder.check_manifest() == []
    assert [p.name for p in folder.path.glob("superseded/*/*")] == ["plan.json"]


def test_a_manifest_that_names_what_is_no_file_of_the_run_is_a_finding(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (tmp_path / "secret").write_text("x")
    names = ["../secret", str(tmp_path / "secret"), "a" * 5000, "logs"]
    entries = {name: {"sha256": "0"} for name in names}
    (folder.path / MANIFEST).write_text(json.dumps({"schema": "freehold.manifest/1", "files": entries}))
    assert folder.check_manifest() == [
        "../secret is outside the run folder",
        f"{tmp_path / 'secret'} is outside the run folder",
        f"{'a' * 200} cannot be read: File name too long",
        "logs is missing",
    ]


def test_a_file_without_an_end_is_not_read_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"12345")
    assert read_limited(tmp_path / "key", 5) == b"12345"
    for path in (tmp_path / "key", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is longer than 4 bytes"):
            read_limited(path, 4)
