"""A journey that ends on something nobody foresaw still stops its server and writes its record."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from freehold.journey.course import Course
from freehold.journey.ending import finish
from freehold.journey.steps import Choices, Scene
from freehold.launch.process import ProcessRecord, argv_sha256, write_record
from freehold.progress import ignore
from freehold.records.deployment import OwnedProcess
from freehold.records.folder import RunFolder
from freehold.records.journey import Journey, StageStatus
from freehold.world import LocalWorld


@pytest.mark.parametrize("crash", [ZeroDivisionError("division by zero"), OSError(5, "Input/output error")])
def test_a_bug_in_a_stage_leaves_no_server_and_is_written_down(tmp_path: Path, crash: Exception) -> None:
    world = LocalWorld()
    folder = RunFolder.create(tmp_path / "run")
    scene = Scene(folder=folder, world=world, listener=ignore, choices=Choices(cache=tmp_path, command="x"))
    course = Course(("launch", "stop"), folder=folder, world=world, listener=ignore)
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    pid = world.spawn(argv, env={}, log=folder.logs / "engine-0.log")

    def stages() -> None:
        with course.stage("launch"):
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
            raise crash

    try:
        with pytest.raises(type(crash)) as caught:
            finish(scene, course, "x", stages, stops_server=lambda went_wrong: went_wrong)
        assert caught.value is crash
        assert world.process(pid) is None
    finally:
        if world.process(pid) is not None:
            os.kill(pid, signal.SIGKILL)
    stage = folder.load(Journey).stages[0]
    assert (stage.status, stage.reason) == (StageStatus.FAILED, f"{type(crash).__name__}: {crash}")
