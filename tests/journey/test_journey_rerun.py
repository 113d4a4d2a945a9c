"""A stage before the start is not run again beside the server of the same run."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from freehold.errors import InputError
from freehold.journey.rerun import rerun_stage
from freehold.journey.steps import Choices, Scene, save_recipe
from freehold.launch.process import ProcessRecord, argv_sha256, write_record
from freehold.launch.status import living_pids
from freehold.progress import ignore
from freehold.recipes.read import embedded_recipe
from freehold.records.deployment import OwnedProcess
from freehold.records.folder import RunFolder
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
