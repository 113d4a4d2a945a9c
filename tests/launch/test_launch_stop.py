"""Stopping: exactly what the run started is ended, and nothing that only has its pid."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from freehold.errors import EngineError, InputError
from freehold.launch.process import ProcessRecord, argv_sha256, read_records, write_record
from freehold.launch.stop import stop
from freehold.records.deployment import OwnedProcess
from freehold.records.folder import RunFolder
from freehold.world import LocalWorld, ProcessFacts

SLEEPER = (sys.executable, "-S", "-c", "import time; time.sleep(1000)", "freehold-test")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(SLEEPER, start_new_session=True)
    yield child
    child.kill()
    child.wait()


def facts_of(pid: int) -> ProcessFacts:
    facts = LocalWorld().process(pid)
    assert facts is not None
    return facts


def recorded(facts: ProcessFacts, **changes: object) -> OwnedProcess:
    process = OwnedProcess(
        node="local",
        pid=facts.pid,
        started_at=facts.started_at,
        argv_sha256=argv_sha256(facts.argv),
        argv=facts.argv,
        env={},
        log="engine-0.log",
    )
    return replace(process, **changes)


def write(folder: RunFolder, *processes: OwnedProcess) -> None:
    for number, process in enumerate(processes):
        write_record(folder, ProcessRecord(name=f"process-{number}.json", process=process))


def is_alive(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is None


def stand_in(launcher, mode: str):
    import importlib.util

    spec = importlib.util.spec_from_file_location("launch_conftest_for_stop", Path(__file__).parent / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return launcher(module.StandInEngine(mode))


def test_the_process_of_a_run_is_ended_once_and_again_is_no_error(folder, sleeper):
    write(folder, recorded(facts_of(sleeper.pid)))
    first = stop(folder, LocalWorld())
    assert [(one.pid, one.outcome) for one in first.processes] == [(sleeper.pid, "ended")]
    assert first.summary == f"process {sleeper.pid} ended"
    assert sleeper.wait(1) == -15
    again = stop(folder, LocalWorld())
    assert [one.outcome for one in again.processes] == ["gone"]
    assert again.is_stopped


def test_a_run_without_processes_has_nothing_to_stop(folder):
    assert stop(folder, LocalWorld()).summary == "this run started no process"


@pytest.mark.parametrize("shift_s", [-3600.0, -3.0, 3.0, 86_400.0])
def test_a_pid_that_was_used_again_is_left_alone(folder, sleeper, shift_s):
    """The kernel gave the pid to a younger (or, by a lying record, older) process with the very same command line."""
    facts = facts_of(sleeper.pid)
    write(folder, recorded(facts, started_at=facts.started_at + shift_s))
    (one,) = stop(folder, LocalWorld()).processes
    assert one.outcome == "left alone"
    assert "belongs to another process now" in one.detail
    assert is_alive(sleeper)


def test_another_command_under_the_same_pid_is_left_alone(folder, sleeper):
    facts = facts_of(sleeper.pid)
    argv = (*facts.argv[:-1], "another-run")
    write(folder, recorded(facts, argv=argv, argv_sha256=argv_sha256(argv)))
    (one,) = stop(folder, LocalWorld()).processes
    assert one.outcome == "left alone"
    assert "runs another command now" in one.detail
    assert is_alive(sleeper)


def test_a_record_that_was_changed_is_refused_and_nothing_is_ended(folder, sleeper):
    write(folder, recorded(facts_of(sleeper.pid)))
    path = folder.path / "process-0.json"
    document = json.loads(path.read_text())
    document["argv"][-1] = "something-else"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="contradicts itself"):
        stop(folder, LocalWorld())
    assert is_alive(sleeper)


def test_a_crash_between_start_and_record_is_repaired_by_the_command_line(folder, sleeper):
    facts = facts_of(sleeper.pid)
    write(folder, recorded(facts, pid=0, started_at=facts.started_at - 0.2))
    (one,) = stop(folder, LocalWorld()).processes
    assert (one.pid, one.outcome) == (sleeper.pid, "ended")
    assert sleeper.wait(1) == -15


@pytest.mark.parametrize("delay_s", [-60.0, 60.0])
def test_the_same_command_of_another_time_is_not_the_crashed_one(folder, sleeper, delay_s):
    facts = facts_of(sleeper.pid)
    write(folder, recorded(facts, pid=0, started_at=facts.started_at + delay_s))
    (one,) = stop(folder, LocalWorld()).processes
    assert (one.pid, one.outcome) == (0, "gone")
    assert is_alive(sleeper)


def test_a_process_that_ignores_the_request_is_killed(launcher):
    deployment = stand_in(launcher, "ignores_term")
    began = time.monotonic()
    (one,) = stop(launcher.folder, launcher.world, timeout_s=0.3).processes
    assert one.outcome == "killed"
    assert "was killed" in one.detail
    assert 0.3 <= time.monotonic() - began < 3
    assert launcher.world.process(deployment.process.pid) is None


@pytest.mark.parametrize("mode", ["has_a_child", "leaves_its_child"])
def test_children_are_ended_with_their_parent(launcher, mode):
    """One child stays in its parent's session, the other opens one of its own."""
    stand_in(launcher, mode)
    server, child = (record.process for record in read_records(launcher.folder))
    assert launcher.world.process(child.pid) is not None
    report = stop(launcher.folder, launcher.world)
    assert [one.outcome for one in report.processes] == ["ended", "gone"]
    assert "with 1 of its children" in report.processes[0].detail
    assert launcher.world.process(server.pid) is None
    assert launcher.world.process(child.pid) is None


def test_a_child_is_ended_even_if_its_parent_died_without_it(launcher):
    stand_in(launcher, "leaves_its_child")
    server, child = (record.process for record in read_records(launcher.folder))
    launcher.world.signal(server.pid, 9)
    while launcher.world.process(server.pid) is not None:
        time.sleep(0.01)
    report = stop(launcher.folder, launcher.world)
    assert [one.outcome for one in report.processes] == ["gone", "ended"]
    assert launcher.world.process(child.pid) is None


def test_what_an_ended_process_left_without_a_record_is_named_not_ended(launcher):
    stand_in(launcher, "has_a_child")
    server, child = (record.process for record in read_records(launcher.folder))
    (launcher.folder.path / "process-1.json").unlink()
    launcher.world.signal(server.pid, 9)
    while launcher.world.process(server.pid) is not None:
        time.sleep(0.01)
    (one,) = stop(launcher.folder, launcher.world).processes
    assert f"`kill {child.pid}`" in one.detail
    assert launcher.world.process(child.pid) is not None
    launcher.world.signal(child.pid, 9)


def test_a_process_that_may_not_be_signalled_is_an_error_that_names_it(folder, sleeper):
    class Powerless(LocalWorld):
        def signal(self, pid: int, number: int) -> None:
            raise PermissionError(1, "Operation not permitted")

        def sleep(self, seconds: float) -> None:
            super().sleep(0.001)

        def monotonic(self) -> float:
            return super().monotonic() * 100

    write(folder, recorded(facts_of(sleeper.pid)))
    with pytest.raises(EngineError, match="1 of 1 processes of this run are still there") as caught:
        stop(folder, Powerless(), timeout_s=0.1)
    assert f"kill -9 {sleeper.pid}" in caught.value.fix
    assert is_alive(sleeper)


def test_a_pid_used_again_between_request_and_kill_is_not_killed(folder, sleeper):
    """The process ends when asked, and its pid belongs to a younger one before it is looked at again."""
    sent: list[tuple[int, int]] = []
    real = facts_of(sleeper.pid)

    class Reused(LocalWorld):
        def process(self, pid: int) -> ProcessFacts | None:
            facts = super().process(pid)
            return replace(facts, started_at=real.started_at + 100) if facts and sent else facts

        def processes(self) -> tuple[ProcessFacts, ...]:
            return ()

        def signal(self, pid: int, number: int) -> None:
            sent.append((pid, number))

    write(folder, recorded(real))
    (one,) = stop(folder, Reused(), timeout_s=0.1).processes
    assert one.outcome == "ended"
    assert sent == [(sleeper.pid, 15)]
    assert is_alive(sleeper)
