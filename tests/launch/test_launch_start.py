"""Starting: what is written down, what is waited for, what is said when it fails, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from freehold.errors import EngineError, InputError, PrerequisiteError
from freehold.evidence import Evidence, Kind
from freehold.launch.process import argv_sha256, read_records
from freehold.launch.stop import stop
from freehold.progress import Progress
from freehold.records.base import decode
from freehold.records.deployment import OwnedProcess
from freehold.records.folder import RunFolder
from freehold.records.plan import MemoryContract, Plan
from freehold.records.recipe import EndpointRequest
from freehold.secret import Secret
from freehold.world import LocalWorld

HERE = Path(__file__).resolve().parent


def load_stand_in():
    """The classes of this folder's conftest."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("launch_conftest", HERE / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["launch_conftest"] = module
    spec.loader.exec_module(module)
    return module


H = load_stand_in()
StandInEngine, make_recipe = H.StandInEngine, H.make_recipe


def running(port_or_pid: int) -> bool:
    return LocalWorld().process(port_or_pid) is not None


def only_record(folder: RunFolder) -> OwnedProcess:
    (record,) = read_records(folder)
    return record.process


def assert_gone(launcher) -> None:
    """No process of the run is left, whatever its record says."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        left = [r.process.pid for r in read_records(launcher.folder) if r.process.pid and running(r.process.pid)]
        if not left:
            return
        time.sleep(0.02)
    raise AssertionError(f"still running: {left}")


def test_a_launch_answers_and_is_described(launcher):
    deployment = launcher(StandInEngine(effective={"context_tokens": "4096"}))
    assert deployment.origin == "launched"
    assert deployment.engine_version == "1.0"
    assert deployment.ready_s.kind is Kind.MEASURED
    assert 0 < deployment.ready_s.number < 10
    assert deployment.memory_actual_bytes.number > 1_000_000
    assert deployment.memory_predicted_bytes.is_missing
    assert deployment.requested == {"context_tokens": "4096", "sequences": "1"}
    assert deployment.effective == {"context_tokens": "4096"}
    assert deployment.notes == ()
    assert deployment.made_from == {"preflight.json": "0" * 64}
    with socket.create_connection(("127.0.0.1", int(deployment.base_url.split(":")[2].split("/")[0])), timeout=2):
        pass
    process = only_record(launcher.folder)
    assert deployment.process == process
    facts = launcher.world.process(process.pid)
    assert facts is not None
    assert facts.argv == process.argv
    assert abs(facts.started_at - process.started_at) < 0.1
    assert process.argv_sha256 == argv_sha256(facts.argv)
    assert (launcher.folder.path / "logs" / process.log).read_text().startswith("loading 0 of 10 bytes\n")


def test_what_the_log_says_becomes_progress(launcher):
    launcher(StandInEngine())
    told = [(e.message, e.done, e.total, e.unit) for e in launcher.events]
    assert ("loading", 0, 10, "bytes") in told
    assert any(message.startswith("listening on") for message, *_ in told)
    assert {e.stage for e in launcher.events} == {"launch"}


def test_the_record_is_written_before_the_process_runs(launcher):
    seen: list[OwnedProcess] = []

    class Curious(LocalWorld):
        def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
            data = (launcher.folder.path / "process-0.json").read_bytes()
            seen.append(decode(OwnedProcess, data))
            return super().spawn(argv, env=env, log=log)

    launcher.world = Curious()
    deployment = launcher(StandInEngine())
    assert [p.pid for p in seen] == [0]
    assert seen[0].argv == deployment.process.argv
    assert seen[0].argv_sha256 == deployment.process.argv_sha256


def test_a_death_is_told_with_status_last_words_and_log(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("dies"))
    error = caught.value
    assert "ended with exit status 7" in error.what
    assert "the file is no model" in error.what
    assert "`fatal: the file is no model` / `fatal: giving up`" in error.why
    assert str(launcher.folder.path / "logs" / "engine-0.log") in error.why
    assert error.facts["exit_status"] == 7
    assert_gone(launcher)


def test_lack_of_memory_is_the_cause_even_if_other_lines_come_first(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("runs_out_of_memory"))
    assert caught.value.what.endswith("out of memory: 9 GiB asked")
    assert "context" in caught.value.fix


def test_a_silent_death_still_names_status_and_log(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("dies_silently"))
    assert "exit status 3" in caught.value.what
    assert "it said nothing" in caught.value.why
    assert "engine-0.log" in caught.value.why


def test_a_signal_is_named_and_explained(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("illegal_instruction"))
    assert "SIGILL" in caught.value.what
    assert "instruction that this processor does not have" in caught.value.what
    assert "build for this processor" in caught.value.fix


def test_a_death_at_the_first_request_is_a_death_not_readiness(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("dies_at_first_request"))
    assert "exit status 9" in caught.value.what
    assert "head dimension 160" in caught.value.what


def test_patience_ends_with_the_last_line(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("hangs"), timeout_s=0.6)
    assert "did not answer within 600 ms" in caught.value.what
    assert "'loading 5 of 10 bytes'" in caught.value.why
    assert_gone(launcher)


def test_patience_ends_while_a_request_hangs(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("hangs_at_first_request"), timeout_s=1.2)
    assert "it runs and listens" in caught.value.why
    assert_gone(launcher)


def test_an_engine_that_only_fills_the_disk_is_ended(launcher, monkeypatch):
    monkeypatch.setattr("freehold.launch.wait._LOG_LIMIT_BYTES", 5_000_000)
    engine = StandInEngine()
    # Bounded all the same, so that a test that is killed half-way cannot fill a disk.
    engine.argv = ("sh", "-c", "yes not an engine | head -c 200000000; exec sleep 60", "x")
    with pytest.raises(EngineError, match="into its log and has not answered") as caught:
        launcher(engine, timeout_s=60)
    assert "'not an engine'" in caught.value.why
    assert_gone(launcher)


def test_garbage_in_the_log_does_not_matter(launcher):
    assert launcher(StandInEngine("prints_garbage")).origin == "launched"


def test_a_health_route_proves_nothing(launcher):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine("only_health"))
    assert "listens, but completes nothing" in caught.value.what
    assert "no kernel for this shape" in caught.value.why
    assert_gone(launcher)


@pytest.mark.parametrize(("mode", "words"), [("says_nothing", "is empty"), ("web_site", "HTML page")])
def test_an_answer_without_a_completion_is_refused(launcher, mode, words):
    with pytest.raises(EngineError) as caught:
        launcher(StandInEngine(mode))
    assert words in caught.value.what
    assert_gone(launcher)


def test_a_server_that_says_it_is_loading_is_waited_for(launcher):
    deployment = launcher(StandInEngine("loads_a_while"))
    assert deployment.ready_s.number > 0.5


def test_a_child_of_a_dead_engine_is_ended_too(launcher):
    with pytest.raises(EngineError, match="exit status 5"):
        launcher(StandInEngine("child_survives_death"))
    log = (launcher.folder.path / "logs" / "engine-0.log").read_text()
    child = int(log.split("child ")[1].split()[0])
    deadline = time.monotonic() + 2
    while running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(child)


def test_a_port_that_is_taken_is_named_and_its_holder_left_alone(launcher, tmp_path):
    first = launcher(StandInEngine())
    port = int(first.base_url.split(":")[2].split("/")[0])
    other = RunFolder.create(tmp_path / "other")
    with pytest.raises(PrerequisiteError) as caught:
        launcher(StandInEngine(), make_recipe(port=port), folder=other)
    assert f"port {port} is taken by process {first.process.pid}" in caught.value.what
    assert "stand_in.py" in caught.value.why
    assert f"kill {first.process.pid}" in caught.value.fix
    assert running(first.process.pid)
    assert read_records(other) == ()


def test_a_fixed_free_port_is_used(launcher):
    port = launcher.world.bindable_port("127.0.0.1", 0)
    assert launcher(StandInEngine(), make_recipe(port=port)).base_url == f"http://127.0.0.1:{port}/v1"


def test_two_launches_at_once_get_ports_of_their_own(launcher, tmp_path):
    other = RunFolder.create(tmp_path / "other")
    first = launcher(StandInEngine())
    second = launcher(StandInEngine(), folder=other)
    try:
        assert first.base_url != second.base_url
        assert running(first.process.pid)
        assert running(second.process.pid)
    finally:
        stop(other, launcher.world)
    assert running(first.process.pid)


def test_a_foreign_server_on_the_port_never_passes_for_the_engine(launcher, tmp_path):
    other = RunFolder.create(tmp_path / "other")
    foreign = launcher(StandInEngine(), folder=other)
    port = int(foreign.base_url.split(":")[2].split("/")[0])

    class Racy(LocalWorld):
        def bindable_port(self, host: str, wanted: int) -> int:
            return port

    launcher.world, calm = Racy(), launcher.world
    try:
        with pytest.raises(EngineError) as caught:
            launcher(StandInEngine("hangs"))
        assert f"taken by process {foreign.process.pid}" in caught.value.what
        assert running(foreign.process.pid)
        assert_gone(launcher)
    finally:
        launcher.world = calm
        stop(other, calm)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.test"])
def test_no_port_is_opened_to_the_network_without_a_key(launcher, host):
    with pytest.raises(InputError, match="without an API key"):
        launcher(StandInEngine(), make_recipe(host=host))
    assert read_records(launcher.folder) == ()


def test_the_key_of_the_recipe_is_sent_and_stays_out_of_every_file(launcher, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("# mine\n\nhush-4711\n")
    engine = StandInEngine()
    engine.argv = (
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.argv += ['--key', open({str(keys)!r}).read().split()[2]];"
        f"exec(open({str(H.STAND_IN)!r}).read())",
    )
    recipe = make_recipe()
    recipe = type(recipe)(
        name=recipe.name, model=recipe.model, engine=recipe.engine, endpoint=EndpointRequest(api_key_file=str(keys))
    )
    launcher(engine, recipe)
    for path in launcher.folder.path.rglob("*"):
        if path.is_file():
            assert b"hush-4711" not in path.read_bytes(), path


def test_a_wrong_key_ends_the_wait_at_once(launcher):
    began = time.monotonic()
    with pytest.raises(EngineError, match="refuses the key"):
        launcher(StandInEngine(key="right"), api_key=Secret("wrong"))
    assert time.monotonic() - began < 5
    assert_gone(launcher)


@pytest.mark.parametrize(("text", "words"), [(None, "cannot read"), ("# only a remark\n", "holds no key")])
def test_a_key_file_without_a_key_is_refused(launcher, tmp_path, text, words):
    keys = tmp_path / "keys.txt"
    if text is not None:
        keys.write_text(text)
    recipe = make_recipe()
    recipe = type(recipe)(
        name=recipe.name, model=recipe.model, engine=recipe.engine, endpoint=EndpointRequest(api_key_file=str(keys))
    )
    with pytest.raises(InputError, match=words):
        launcher(StandInEngine(), recipe)


def test_another_version_than_the_recipe_insists_on_is_refused(launcher):
    with pytest.raises(PrerequisiteError, match=r"version 1\.0, the recipe insists on 2\.0"):
        launcher(StandInEngine(), make_recipe(version="2.0"))


def test_an_engine_that_is_not_installed_is_refused(launcher):
    with pytest.raises(PrerequisiteError, match="not installed"):
        launcher(StandInEngine(version=None))


def test_what_the_engine_took_instead_becomes_a_note(launcher):
    deployment = launcher(StandInEngine(effective={"context_tokens": "2048", "sequences": "1"}))
    assert deployment.notes == ("context_tokens: asked for 4096, the engine took 2048",)


def test_more_memory_than_planned_becomes_a_note(launcher):
    nothing = Evidence.not_measured("not needed here")
    few = Evidence.assumed(1024, "bytes_memory", source="a test")
    plan = Plan(
        made_from={},
        model="stand-in",
        engine="stand-in",
        context_tokens=4096,
        sequences=1,
        terms=(),
        contract=MemoryContract(contract_free_bytes=few, peak_bytes=few, steady_bytes=few),
        free_memory_bytes=nothing,
        fits=True,
        max_context_tokens=nothing,
        step_bytes=nothing,
        read_bandwidth_bytes_per_s=nothing,
        decode_ceiling_tok_per_s=nothing,
    )
    deployment = launcher(StandInEngine(), plan=plan)
    assert deployment.memory_predicted_bytes == few
    (note,) = deployment.notes
    assert "more memory than planned" in note
    assert "1.0 KiB" in note


def interrupt_soon(delay_s: float) -> None:
    threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT)).start()


@contextmanager
def interrupted_after(delay_s: float) -> Iterator[None]:
    """Press Ctrl-C, and again if it was to no avail: Python drops an interrupt that falls into a destructor."""
    is_over = threading.Event()

    def press() -> None:
        wait_s = delay_s
        while not is_over.wait(wait_s):
            os.kill(os.getpid(), signal.SIGINT)
            wait_s = 4.0

    presser = threading.Thread(target=press)
    presser.start()
    try:
        yield
    finally:
        is_over.set()
        presser.join()


# Python may be interrupted between opening a file and entering its `with`; the file is then closed with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("delay_s", [0.02, 0.2])
def test_ctrl_c_while_waiting_leaves_nothing(launcher, delay_s):
    with pytest.raises(KeyboardInterrupt), interrupted_after(delay_s):
        launcher(StandInEngine("hangs"))
    assert_gone(launcher)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_during_the_first_request_leaves_nothing(launcher):
    def listen(event: Progress) -> None:
        if event.message.startswith("listening"):
            interrupt_soon(0.3)

    with pytest.raises(KeyboardInterrupt):
        launcher(StandInEngine("hangs_at_first_request"), listener=listen)
    assert_gone(launcher)


def test_ctrl_c_between_start_and_record_is_held_until_both_are_done(launcher):
    class Interrupted(LocalWorld):
        def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
            pid = super().spawn(argv, env=env, log=log)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            return pid

    launcher.world = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        launcher(StandInEngine("hangs"))
    assert only_record(launcher.folder).pid > 0
    assert_gone(launcher)


def test_a_disk_that_fills_up_after_the_start_leaves_nothing(launcher):
    pids: list[int] = []

    class FullFolder(RunFolder):
        def write(self, name: str, data: bytes) -> None:
            if pids:
                raise PrerequisiteError("cannot write", why="no space left on device", fix="free some space")
            super().write(name, data)

    class Noting(LocalWorld):
        def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
            pids.append(super().spawn(argv, env=env, log=log))
            return pids[-1]

    launcher.world = Noting()
    with pytest.raises(PrerequisiteError, match="cannot write"):
        launcher(StandInEngine("hangs"), folder=FullFolder(launcher.folder.path))
    assert not running(pids[0])


def test_a_launcher_that_became_the_engine_is_found_again(launcher, tmp_path):
    """A shell script that replaces itself shows another command line than the one it was started with."""
    script = tmp_path / "engine.sh"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S {H.STAND_IN} --alias x "$@"\n')
    script.chmod(0o755)
    deployment = launcher(StandInEngine(argv=(str(script),)))
    assert deployment.process.argv[0] == str(script)
    report = stop(launcher.folder, launcher.world)
    assert [one.outcome for one in report.processes] == ["ended"]
    assert not running(deployment.process.pid)


def test_an_engine_that_changes_its_arguments_is_written_down_as_what_it_became(launcher, tmp_path):
    script = tmp_path / "engine.sh"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S {H.STAND_IN} "$@" --alias renamed\n')
    script.chmod(0o755)
    deployment = launcher(StandInEngine(argv=(str(script),)))
    assert deployment.process.argv[-2:] == ("--alias", "renamed")
    assert only_record(launcher.folder) == deployment.process
    assert [one.outcome for one in stop(launcher.folder, launcher.world).processes] == ["ended"]


OWNER = """
import sys, os, json, importlib.util
spec = importlib.util.spec_from_file_location("launch_conftest", sys.argv[1])
H = importlib.util.module_from_spec(spec)
sys.modules["launch_conftest"] = H
spec.loader.exec_module(H)
from pathlib import Path
from freehold.records.folder import RunFolder
folder = RunFolder.create(Path(sys.argv[2]))
model = Path(sys.argv[2]) / "model.bin"
model.write_bytes(b"0")
one = H.Launcher(folder=folder, model=model)
deployment = one(H.StandInEngine(), keep=sys.argv[3] == "keep")
print(deployment.process.pid, flush=True)
sys.stdin.read()
"""


def start_owner(folder: Path, how: str) -> tuple[subprocess.Popen[str], int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(HERE / "conftest.py"), str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


def end_owner(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.wait()
    for stream in (owner.stdin, owner.stdout):
        assert stream is not None
        stream.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_an_engine_does_not_outlive_a_killed_freehold(tmp_path):
    owner, pid = start_owner(tmp_path / "run", "own")
    assert running(pid)
    (record,) = read_records(RunFolder.open(tmp_path / "run"))
    facts = LocalWorld().process(pid)
    assert facts is not None
    assert facts.argv == record.process.argv
    end_owner(owner)
    deadline = time.monotonic() + 3
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(pid)


def test_a_kept_engine_outlives_freehold_and_is_stopped_from_its_folder(tmp_path):
    owner, pid = start_owner(tmp_path / "run", "keep")
    end_owner(owner)
    time.sleep(0.2)
    assert running(pid)
    report = stop(RunFolder.open(tmp_path / "run"), LocalWorld())
    assert [one.outcome for one in report.processes] == ["ended"]
    assert not running(pid)
