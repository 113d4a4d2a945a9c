"""Running a stage again loses nothing: not beside a living server, and not when the server is gone."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from freehold.errors import InputError, PrerequisiteError
from freehold.evidence import Evidence
from freehold.journey.ending import stop_run
from freehold.journey.rerun import rerun_stage
from freehold.journey.steps import Choices, Scene, save_recipe
from freehold.launch.process import ProcessRecord, argv_sha256, write_record
from freehold.launch.status import living_pids
from freehold.progress import ignore
from freehold.recipes.read import embedded_recipe
from freehold.records.deployment import Deployment, OwnedProcess
from freehold.records.folder import RunFolder
from freehold.records.journey import Journey
from freehold.records.verdict import Outcome
from freehold.records.verification import Verification
from freehold.world import LocalWorld


@pytest.mark.parametrize("stage", ["plan", "preflight", "launch"])
def test_a_running_server_is_neither_doubled_nor_forgotten(tmp_path: Path, stage: str) -> None:
    world = LocalWorld()
    folder = RunFolder.create(tmp_path / "run")
    scene = Scene(folder=folder, world=world, listener=ignore, choices=Choices(cache=tmp_path, command="x"))
    save_recipe(scene, embedded_recipe())
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    pid = world.spawn(argv, env={}, log=folder.logs / "engine-0.log")
    try:
        facts = world.process(pid)
        assert facts is not None
        process = OwnedProcess(
            node="localhost",
            pid=pid,
            started_at=facts.started_at,
            argv_sha256=argv_sha256(argv),
            argv=argv,
            env={},
            log="engine-0.log",
        )
        write_record(folder, ProcessRecord(name="process-0.json", process=process))
        before = sorted(path.name for path in folder.path.iterdir())
        with pytest.raises(InputError) as caught:
            rerun_stage(scene, stage)
        assert caught.value.what == f"the server of {folder.path} is running"
        assert str(pid) in caught.value.why
        assert f"freehold stop {folder.path}" in caught.value.fix
        assert living_pids(folder, world) == (pid,)
        assert sorted(path.name for path in folder.path.iterdir()) == before
    finally:
        os.kill(pid, signal.SIGKILL)
        while world.exit_status(pid) is None:
            time.sleep(0.01)


@pytest.mark.parametrize("stage", ["verify", "bench"])
def test_an_attached_server_that_is_gone_takes_no_figures_along(tmp_path: Path, stage: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    missing = Evidence.not_measured("the server was not started by freehold", "s")
    folder = RunFolder.create(tmp_path / "run")
    folder.save(
        Deployment(
            made_from={},
            origin="attached",
            base_url=f"http://127.0.0.1:{port}/v1",
            model="m",
            engine="openai",
            engine_version=None,
            ready_s=missing,
            memory_predicted_bytes=missing,
            memory_actual_bytes=missing,
        )
    )
    folder.save(
        Verification(
            made_from={},
            checkpoint_sha256=None,
            scope="self-consistency only",
            verdicts=(),
            outcome=Outcome.INCONCLUSIVE,
            passed=False,
        )
    )
    before = {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()}
    scene = Scene(folder=folder, world=LocalWorld(), listener=ignore, choices=Choices(cache=tmp_path, command="x"))
    with pytest.raises(PrerequisiteError):
        rerun_stage(scene, stage)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()} == before


def test_a_run_that_was_stopped_later_serves_no_more(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.save(
        Journey(
            name="one",
            version="0",
            command="x",
            started_at="2026-11-30T00:00:00Z",
            stages=(),
            is_serving=True,
            base_url="http://127.0.0.1:1/v1",
        )
    )
    stop_run(folder, LocalWorld(), timeout_s=1)
    journey = folder.load(Journey)
    assert (journey.is_serving, journey.base_url) == (False, None)
