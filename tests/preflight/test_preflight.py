"""Every check can say no, none stops another, and nothing passes over an empty set."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freehold.engines.interface import Dialect, LaunchCommand, LogEvent
from freehold.errors import EngineError, InputError, PrerequisiteError
from freehold.evidence import Evidence
from freehold.preflight.accelerators import check_accelerators
from freehold.preflight.checkpoint import check_checkpoint, check_pins
from freehold.preflight.context import check_context
from freehold.preflight.disk import check_disk
from freehold.preflight.engine import check_engine, check_engine_options
from freehold.preflight.exposure import check_exposure, is_loopback
from freehold.preflight.load import busy_cores, check_load, parse_cpu_times
from freehold.preflight.memory import check_memory_contract
from freehold.preflight.port import check_port, describe_process
from freehold.preflight.question import Question
from freehold.preflight.run import CHECKS, run_checks, run_preflight
from freehold.preflight.swap import check_swap
from freehold.records.base import decode, encode
from freehold.records.inventory import Architecture, FileEntry, Inventory
from freehold.records.node import Accelerator, NodeFacts, NodeState
from freehold.records.plan import MemoryContract, MemoryTerm, Plan
from freehold.records.preflight import PreflightReport
from freehold.records.recipe import EndpointRequest, EngineRequest, Recipe
from freehold.records.verdict import Outcome, Verdict, overall
from freehold.world import Completed, LocalWorld, ProcessFacts, World

MIB, GIB = 2**20, 2**30
SHA256 = "ab" * 32


class StandInEngine:
    """An engine that answers what it was told to."""

    name = "llama.cpp"

    def __init__(self, version: str | None = "1.2.3", refusal: InputError | None = None) -> None:
        self.version = version
        self.refusal = refusal

    @property
    def dialect(self) -> Dialect:
        raise NotImplementedError

    def installed_version(self, recipe: Recipe, world: World) -> str | None:
        return self.version

    def check_options(self, recipe: Recipe) -> None:
        if self.refusal is not None:
            raise self.refusal

    def memory_terms(self) -> Mapping[str, object]:
        return {}

    def commands(
        self, recipe: Recipe, *, model_files: Sequence[Path], port: int, alias: str
    ) -> tuple[LaunchCommand, ...]:
        raise NotImplementedError

    def read_line(self, line: str) -> LogEvent | None:
        raise NotImplementedError

    def last_words(self, log: str) -> tuple[str, ...]:
        raise NotImplementedError


class ScriptedWorld(LocalWorld):
    """This machine, but commands answer from a table; a missing one does not exist."""

    def __init__(self, replies: Mapping[str, Completed] | None = None) -> None:
        super().__init__()
        self.replies = replies or {}

    def sleep(self, seconds: float) -> None:
        """Long enough for the kernel's counters of processor time to move, which they do 100 times a second."""
        time.sleep(min(seconds, 0.08))

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        if argv[0] not in self.replies:
            raise PrerequisiteError(f"cannot run `{argv[0]}`", why="no such file", fix="install it")
        return self.replies[argv[0]]


def measured(value: float, unit: str) -> Evidence:
    return Evidence.measured(value, unit, source="test")


def state(**change: Evidence) -> NodeState:
    values = {
        "free_memory_bytes": measured(4 * GIB, "bytes_memory"),
        "swap_used_bytes": measured(0, "bytes_memory"),
        "free_disk_bytes": measured(100 * GIB, "bytes_disk"),
        "read_bandwidth_bytes_per_s": measured(20e9, "bytes/s"),
    } | change
    return NodeState(taken_at="2026-11-30T00:00:00Z", **values)


def plan_of(need: Evidence, *, context: int = 2048, terms: tuple[MemoryTerm, ...] = ()) -> Plan:
    unknown = Evidence.not_measured("test")
    return Plan(
        made_from={},
        model="test",
        engine="llama.cpp",
        context_tokens=context,
        sequences=1,
        terms=terms,
        contract=MemoryContract(contract_free_bytes=need, peak_bytes=need, steady_bytes=need),
        free_memory_bytes=unknown,
        fits=None,
        max_context_tokens=unknown,
        step_bytes=unknown,
        read_bandwidth_bytes_per_s=unknown,
        decode_ceiling_tok_per_s=unknown,
    )


def inventory_of(*files: tuple[str, int], context: int | None = 8192, sha256: str | None = SHA256) -> Inventory:
    return Inventory(
        source="test",
        format="gguf",
        tensor_bytes=1,
        file_bytes=sum(size for _, size in files),
        num_tensors=1,
        by_role={},
        by_type={},
        architecture=Architecture(context_tokens=context),
        files=tuple(FileEntry(name=name, bytes=size) for name, size in files),
        header_sha256="0" * 64,
        checkpoint_sha256=sha256,
    )


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Question]:
    """A question to which every check answers yes, with changes."""
    (tmp_path / "model.gguf").write_bytes(b"x" * 1000)

    def build(**change: Any) -> Question:
        recipe = Recipe(name="test", model="test", engine=EngineRequest(name="llama.cpp"))
        recipe = replace(recipe, **change.pop("recipe", {}))
        values: dict[str, Any] = {
            "recipe": recipe,
            "plan": plan_of(measured(GIB, "bytes_memory")),
            "facts": NodeFacts(
                name="local",
                system="s",
                machine="m",
                processor="p",
                num_cores=2,
                memory_bytes=GIB,
                python="3",
                libraries={},
            ),
            "state": state(),
            "engine": StandInEngine(),
            "world": ScriptedWorld(),
            "cache": tmp_path,
            "run_folder": tmp_path,
            "model_files": (tmp_path / "model.gguf",),
            "inventory": inventory_of(("model.gguf", 1000)),
        }
        return Question(**(values | change))

    return build


Ask = Callable[..., Question]


def outcome(verdict: Verdict | None) -> Outcome:
    assert verdict is not None
    return verdict.outcome


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_compared_to_the_byte(ask: Ask) -> None:
    need = measured(4 * GIB, "bytes_memory")
    assert outcome(check_memory_contract(ask(plan=plan_of(need)))) is Outcome.PASS
    short = check_memory_contract(ask(plan=plan_of(measured(4 * GIB + 64 * MIB, "bytes_memory"))))
    assert short.outcome is Outcome.FAIL
    assert short.observation == "4.1 GiB must be free, 4.0 GiB is"
    assert "64.0 MiB" in short.remedy


def test_memory_that_is_not_known_is_inconclusive(ask: Ask) -> None:
    unknown = Evidence.not_measured("nobody said", "bytes_memory")
    blind = check_memory_contract(ask(state=state(free_memory_bytes=unknown)))
    assert (blind.outcome, "nobody said" in blind.observation) == (Outcome.INCONCLUSIVE, True)
    terms = (
        MemoryTerm(name="weights", bytes=measured(GIB, "bytes_memory"), detail=""),
        MemoryTerm(name="kv_cache", bytes=unknown, detail=""),
    )
    partly = check_memory_contract(ask(plan=plan_of(unknown, terms=terms)))
    assert partly.outcome is Outcome.INCONCLUSIVE
    assert partly.observation == "1.0 GiB of 4.0 GiB is spoken for; not known: kv cache"
    too_much = (MemoryTerm(name="weights", bytes=measured(5 * GIB, "bytes_memory"), detail=""), terms[1])
    assert outcome(check_memory_contract(ask(plan=plan_of(unknown, terms=too_much)))) is Outcome.FAIL


# --- checkpoint and pins ----------------------------------------------------------------------------------------------


def test_the_files_are_those_that_were_read(ask: Ask, tmp_path: Path) -> None:
    assert outcome(check_checkpoint(ask())) is Outcome.PASS
    (tmp_path / "model.gguf").write_bytes(b"x" * 999)
    cut = check_checkpoint(ask())
    assert cut.outcome is Outcome.FAIL
    assert cut.observation == "model.gguf has 999 B, its header was read at 1,000 B"
    (tmp_path / "model.gguf").unlink()
    assert check_checkpoint(ask()).observation == "model.gguf is missing"


def test_a_shard_too_few_or_too_many_is_found(ask: Ask, tmp_path: Path) -> None:
    two = inventory_of(("model.gguf", 1000), ("second.gguf", 5))
    assert check_checkpoint(ask(inventory=two)).observation == "second.gguf is not among the files to serve"
    (tmp_path / "second.gguf").write_bytes(b"y" * 5)
    files = (tmp_path / "model.gguf", tmp_path / "second.gguf")
    assert outcome(check_checkpoint(ask(inventory=two, model_files=files))) is Outcome.PASS
    assert check_checkpoint(ask(model_files=files)).observation == "second.gguf was never read"


def test_no_file_is_no_pass(ask: Ask) -> None:
    assert outcome(check_checkpoint(ask(model_files=()))) is Outcome.FAIL
    assert outcome(check_checkpoint(ask(inventory=None))) is Outcome.INCONCLUSIVE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_found(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").chmod(0)
    assert check_checkpoint(ask()).observation == "model.gguf may not be read"


def test_pins_are_kept_or_said_not_to_be_checked(ask: Ask) -> None:
    assert check_pins(ask()) is None, "a recipe without pins has nothing to pass"
    assert outcome(check_pins(ask(recipe={"pins": {"model": SHA256.upper()}}))) is Outcome.PASS
    wrong = check_pins(ask(recipe={"pins": {"model": "cd" * 32}}))
    assert wrong is not None
    assert (wrong.outcome, SHA256 in wrong.observation) == (Outcome.FAIL, True)
    assert outcome(check_pins(ask(recipe={"pins": {"moon": "full"}}))) is Outcome.INCONCLUSIVE
    unhashed = ask(recipe={"pins": {"model": SHA256}}, inventory=inventory_of(("model.gguf", 1000), sha256=None))
    assert outcome(check_pins(unhashed)) is Outcome.INCONCLUSIVE


# --- engine -----------------------------------------------------------------------------------------------------------


def test_the_engine_is_there_in_the_pinned_version(ask: Ask) -> None:
    assert outcome(check_engine(ask())) is Outcome.PASS
    pinned = {"engine": EngineRequest(name="llama.cpp", version="1.2.3")}
    assert outcome(check_engine(ask(recipe=pinned))) is Outcome.PASS
    other = check_engine(ask(recipe=pinned, engine=StandInEngine("1.2.4")))
    assert other.outcome is Outcome.FAIL
    assert other.observation == "llama.cpp 1.2.4 is installed, the recipe pins 1.2.3"


def test_an_engine_that_is_not_installed_says_how_to_get_it(ask: Ask) -> None:
    missing = check_engine(ask(engine=StandInEngine(None)))
    assert missing.outcome is Outcome.FAIL
    assert missing.remedy == "in freehold's checkout, `pip install '.[llamacpp]'`"
    program = {"engine": EngineRequest(name="llama.cpp", runtime="/opt/llama-server")}
    assert "`engine.runtime`" in check_engine(ask(recipe=program, engine=StandInEngine(None))).remedy


def test_the_extra_that_is_named_exists() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert "llamacpp" in project["optional-dependencies"]


def test_options_the_engine_does_not_know_are_refused_before_the_start(ask: Ask) -> None:
    assert check_engine_options(ask()) is None, "no options, nothing to pass"
    assert outcome(check_engine_options(ask(recipe={"options": {"threads": 2}}))) is Outcome.PASS
    refusal = InputError("unknown option `thread`", why="not in the table", fix="write `threads`")
    bad = check_engine_options(ask(recipe={"options": {"thread": 2}}, engine=StandInEngine(refusal=refusal)))
    assert bad is not None
    assert (bad.outcome, bad.observation, bad.remedy) == (Outcome.FAIL, refusal.what, refusal.fix)


# --- context, swap, disk ----------------------------------------------------------------------------------------------


def test_a_context_beyond_training_is_a_warning(ask: Ask) -> None:
    need = measured(1, "bytes_memory")
    assert outcome(check_context(ask(plan=plan_of(need, context=8192)))) is Outcome.PASS
    beyond = check_context(ask(plan=plan_of(need, context=8193)))
    assert beyond.outcome is Outcome.WARN
    assert beyond.observation == "8,193 tokens are asked, the model was trained for 8,192"
    silent = inventory_of(("model.gguf", 1000), context=None)
    assert outcome(check_context(ask(inventory=silent))) is Outcome.INCONCLUSIVE


def test_swap_in_use_is_a_warning(ask: Ask) -> None:
    assert outcome(check_swap(ask())) is Outcome.PASS
    swapping = check_swap(ask(state=state(swap_used_bytes=measured(GIB, "bytes_memory"))))
    assert (swapping.outcome, swapping.observation) == (Outcome.WARN, "1.0 GiB of swap is in use")
    unknown = Evidence.not_measured("nobody said", "bytes_memory")
    assert outcome(check_swap(ask(state=state(swap_used_bytes=unknown)))) is Outcome.INCONCLUSIVE


def test_the_tighter_disk_counts(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"run": 10**12, "cache": 10**12}

    def usage(path: Path) -> Any:
        return type("Usage", (), {"free": free["cache" if "cache" in str(path) else "run"]})

    monkeypatch.setattr("shutil.disk_usage", usage)
    (tmp_path / "cache").mkdir()
    (tmp_path / "run").mkdir()
    places = {"cache": tmp_path / "cache", "run_folder": tmp_path / "run"}
    assert outcome(check_disk(ask(**places))) is Outcome.PASS
    free["cache"] = 500_000_000
    tight = check_disk(ask(**places))
    assert (tight.outcome, tight.observation) == (Outcome.WARN, "500.0 MB free for the cache, 1.1 GB wanted")
    free["run"] = 1_000_000
    full = check_disk(ask(**places))
    assert (full.outcome, full.observation) == (Outcome.FAIL, "1.0 MB free for the run folder, 67.1 MB wanted")

    def broken(path: Path) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("shutil.disk_usage", broken)
    assert outcome(check_disk(ask(**places))) is Outcome.INCONCLUSIVE


# --- port -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def squatter(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process of its own that listens on a port; its command line holds a secret and a path."""
    script = tmp_path / "squat.py"
    script.write_text(
        "import socket, time\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\n"
        "print(s.getsockname()[1], flush=True)\ntime.sleep(60)\n"
    )
    argv = [sys.executable, str(script), "--api-key", "hunter2-hunter2"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield port, process.pid
        process.kill()


def test_whoever_holds_the_port_is_named_and_left_alone(ask: Ask, squatter: tuple[int, int]) -> None:
    port, pid = squatter
    verdict = check_port(ask(recipe={"endpoint": EndpointRequest(port=port)}, world=LocalWorld()))
    assert verdict.outcome is Outcome.FAIL
    assert f"port {port} is held by pid {pid} (" in verdict.observation
    assert "squat.py --api-key (hidden)" in verdict.observation
    assert "hunter2" not in encode(PreflightReport(made_from={}, verdicts=(verdict,), outcome=verdict.outcome)).decode()
    assert f"`kill {pid}`" in verdict.remedy
    assert LocalWorld().process(pid) is not None, "it still runs"


def test_a_holder_that_cannot_be_seen_is_still_found(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        world = ScriptedWorld()
        monkeypatch.setattr(world, "listener", lambda port: None)
        port = holder.getsockname()[1]
        verdict = check_port(ask(recipe={"endpoint": EndpointRequest(port=port)}, world=world))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.observation == f"cannot listen on 127.0.0.1 port {port}"


def test_a_free_port_and_any_port_pass_and_a_foreign_address_does_not(ask: Ask) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert outcome(check_port(ask(recipe={"endpoint": EndpointRequest(port=port)}))) is Outcome.PASS
    assert "any free port: can be bound" in check_port(ask()).observation
    foreign = EndpointRequest(host="nobody.invalid")
    assert outcome(check_port(ask(recipe={"endpoint": foreign}))) is Outcome.FAIL


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        ((), "pid 7"),
        (("/usr/bin/python3", "-m", "http.server", "8000"), "pid 7 (python3 -m http.server 8000)"),
        (("/opt/llama-server", "--api-key=hunter2"), "pid 7 (llama-server --api-key=(hidden))"),
        (("serve", "--hf-token", "hunter2", "--port", "80"), "pid 7 (serve --hf-token (hidden) --port 80)"),
        (("serve", "sk-abcdefghijklmnop"), "pid 7 (serve (hidden))"),
        (("serve", "--max-tokens", "5"), "pid 7 (serve --max-tokens 5)"),
        (("x" * 500,), f"pid 7 ({'x' * 159}…)"),
    ],
)
def test_a_process_is_described_without_paths_and_secrets(argv: tuple[str, ...], shown: str) -> None:
    assert describe_process(ProcessFacts(pid=7, started_at=0.0, argv=argv, resident_bytes=0)) == shown


# --- exposure ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("LOCALHOST.", True), ("::1", True),
     ("[::1]", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("spark-1", False), ("", False)],
)  # fmt: skip
def test_loopback_is_recognised(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_an_open_address_needs_a_key_that_others_cannot_read(ask: Ask, tmp_path: Path) -> None:
    key = tmp_path / "key"

    def verdict(host: str, file: Path | None) -> Verdict:
        endpoint = EndpointRequest(host=host, api_key_file=None if file is None else str(file))
        return check_exposure(ask(recipe={"endpoint": endpoint}))

    assert verdict("127.0.0.1", None).outcome is Outcome.PASS
    open_door = verdict("0.0.0.0", None)
    assert (open_door.outcome, "no key is asked for" in open_door.observation) == (Outcome.FAIL, True)
    assert verdict("0.0.0.0", key).outcome is Outcome.FAIL, "the file does not exist"
    key.write_text(" \n")
    assert "is empty" in verdict("0.0.0.0", key).observation
    key.write_text("hunter2\n")
    key.chmod(0o644)
    shared = verdict("0.0.0.0", key)
    assert (shared.outcome, "has mode 0644" in shared.observation) == (Outcome.WARN, True)
    assert shared.remedy == f"`chmod 600 {key}`"
    key.chmod(0o600)
    assert verdict("0.0.0.0", key).outcome is Outcome.PASS
    assert verdict("127.0.0.1", key).outcome is Outcome.PASS
    assert "hunter2" not in verdict("0.0.0.0", key).observation


# --- accelerators and load --------------------------------------------------------------------------------------------


def reply(stdout: str, returncode: int = 0) -> ScriptedWorld:
    return ScriptedWorld({"nvidia-smi": Completed(returncode=returncode, stdout=stdout, stderr="")})


def test_busy_accelerators_are_a_warning_with_names(ask: Ask) -> None:
    facts = replace(ask().facts, accelerators=(Accelerator(name="NVIDIA H200"),))
    assert check_accelerators(ask()) is None, "without a driver it does not apply"
    assert check_accelerators(ask(world=reply(""))) is None, "a driver without accelerators has nothing to pass"
    assert outcome(check_accelerators(ask(world=reply(""), facts=facts))) is Outcome.PASS
    busy = check_accelerators(ask(world=reply("41, /usr/bin/python3, 1024\n42, vllm, [N/A]\n"), facts=facts))
    assert busy is not None
    assert busy.outcome is Outcome.WARN
    assert busy.observation == "in use by pid 41 (python3, 1.0 GiB), pid 42 (vllm, unknown memory)"
    many = "".join(f"{pid}, p, 1\n" for pid in range(1, 9))
    assert "and 3 more" in check_accelerators(ask(world=reply(many), facts=facts)).observation  # type: ignore[union-attr]
    broken = check_accelerators(ask(world=reply("Failed to initialize NVML: Driver/library version mismatch\n", 18)))
    assert broken is not None
    assert broken.outcome is Outcome.INCONCLUSIVE
    assert "Driver/library version mismatch" in broken.observation


STAT = """\
cpu  1000 0 1000 8000 0 0 0 0 0 0
cpu0 {busy0} 0 0 {idle0} 10 0 0 0 7 0
cpu1 {busy1} 0 0 {idle1} 10 0 0 0 7 0
intr 5
"""


class MovingWorld(ScriptedWorld):
    """A world in which sleeping moves the counters of ``/proc/stat``."""

    def __init__(self, root: Path, after: str) -> None:
        super().__init__()
        self.path = root / "proc" / "stat"
        self.after = after

    def sleep(self, seconds: float) -> None:
        self.path.write_text(self.after)


def moving(ask: Ask, root: Path, before: str, after: str, allowed: str = "0-1") -> Question:
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "stat").write_text(before)
    (root / "proc" / "self" / "status").write_text(f"Cpus_allowed_list:\t{allowed}\n")
    return ask(world=MovingWorld(root, after), root=root)


def test_a_busy_machine_is_a_warning(ask: Ask, tmp_path: Path) -> None:
    before = STAT.format(busy0=100, idle0=900, busy1=0, idle1=1000)
    after = STAT.format(busy0=125, idle0=925, busy1=50, idle1=1000)
    # processor 0 was busy 25 of 50 ticks, processor 1 all of its 50
    question = moving(ask, tmp_path / "a", before, after)
    assert busy_cores(question, 0.5) == pytest.approx(1.5)
    warned = check_load(moving(ask, tmp_path / "b", before, after))
    assert (warned.outcome, warned.observation) == (Outcome.WARN, "1.5 of 2 cores busy before the start")
    quiet = STAT.format(busy0=102, idle0=998, busy1=1, idle1=1099)
    assert outcome(check_load(moving(ask, tmp_path / "c", before, quiet))) is Outcome.PASS


def test_processors_of_others_do_not_count(ask: Ask, tmp_path: Path) -> None:
    before = STAT.format(busy0=0, idle0=0, busy1=0, idle1=0)
    after = STAT.format(busy0=0, idle0=50, busy1=50, idle1=0)
    assert busy_cores(moving(ask, tmp_path, before, after, allowed="0"), 0.5) == 0.0


def test_counters_that_stand_still_say_nothing(ask: Ask, tmp_path: Path) -> None:
    still = STAT.format(busy0=1, idle0=1, busy1=1, idle1=1)
    assert outcome(check_load(moving(ask, tmp_path, still, still))) is Outcome.INCONCLUSIVE
    assert parse_cpu_times("cpu 1 2\ncpux 1 2 3 4 5 6\nnonsense", None) == {}


def test_a_system_without_proc_is_asked_through_psutil(ask: Ask, tmp_path: Path) -> None:
    busy = busy_cores(ask(root=tmp_path), 0.05)
    assert busy is not None
    assert 0 <= busy <= (os.cpu_count() or 1)


def test_a_busy_process_is_seen_on_this_machine(ask: Ask) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burner:
        try:
            time.sleep(0.2)
            assert check_load(ask(world=LocalWorld())).outcome is Outcome.WARN
        finally:
            burner.kill()


# --- all together -----------------------------------------------------------------------------------------------------


def test_a_good_machine_passes_and_the_report_is_a_record(ask: Ask) -> None:
    question = ask(recipe={"options": {"threads": 2}, "pins": {"model": SHA256}})
    report = run_preflight(
        question.recipe,
        question.plan,
        question.facts,
        question.state,
        question.engine,
        question.world,
        cache=question.cache,
        run_folder=question.run_folder,
        model_files=question.model_files,
        made_from={"plan.json": "0" * 64},
        inventory=question.inventory,
    )
    by_name = {v.check: v.outcome for v in report.verdicts}
    assert set(by_name) == set(CHECKS) - {"accelerators"}, "all that apply"
    assert {name for name, o in by_name.items() if o is not Outcome.PASS} <= {"load", "disk"}
    assert report.outcome is overall(report.verdicts)
    assert decode(PreflightReport, encode(report)) == report
    assert str(question.cache) not in json.dumps(json.loads(encode(report))), "no path of this machine"


def test_every_check_runs_and_one_that_breaks_is_inconclusive(ask: Ask) -> None:
    def breaks(question: Question) -> Verdict:
        raise ZeroDivisionError("division by zero")

    def refuses(question: Question) -> Verdict:
        raise EngineError("the engine says nothing", why="it hangs", fix="end it")

    def fine(question: Question) -> Verdict:
        return Verdict(check="fine", outcome=Outcome.PASS, observation="yes")

    def silent(question: Question) -> Verdict | None:
        return None

    checks = {"breaks": breaks, "refuses": refuses, "silent": silent, "fine": fine}
    verdicts = run_checks(replace(ask(), facts=replace(ask().facts, name="spark-2")), checks)
    assert [(v.check, v.outcome) for v in verdicts] == [
        ("breaks", Outcome.INCONCLUSIVE),
        ("refuses", Outcome.INCONCLUSIVE),
        ("fine", Outcome.PASS),
    ]
    assert verdicts[0].observation == "the check itself failed: ZeroDivisionError: division by zero"
    assert (verdicts[1].why, verdicts[1].remedy) == ("it hangs", "end it")
    assert {v.node for v in verdicts} == {"spark-2"}
    assert overall(verdicts) is Outcome.INCONCLUSIVE


def test_an_empty_set_of_checks_is_no_pass(ask: Ask) -> None:
    assert overall(run_checks(ask(), {})) is Outcome.INCONCLUSIVE


def test_failures_are_all_there_at_once(ask: Ask) -> None:
    question = ask(
        recipe={"endpoint": EndpointRequest(host="nobody.invalid"), "pins": {"model": "00" * 32}},
        engine=StandInEngine(None),
        plan=plan_of(measured(5 * GIB, "bytes_memory"), context=10**6),
        model_files=(),
    )
    failed = {v.check for v in run_checks(question, CHECKS) if v.outcome is Outcome.FAIL}
    assert failed == {"memory_contract", "checkpoint", "pins", "engine", "port", "exposure"}


def test_every_verdict_that_is_no_pass_says_why_and_what_to_do(ask: Ask) -> None:
    unknown = Evidence.not_measured("nobody said", "bytes_memory")
    questions = [
        ask(model_files=(), engine=StandInEngine(None), plan=plan_of(measured(5 * GIB, "bytes_memory"), context=10**6)),
        ask(inventory=None, state=state(free_memory_bytes=unknown, swap_used_bytes=unknown)),
        ask(recipe={"endpoint": EndpointRequest(host="nobody.invalid"), "pins": {"x": "y"}}, world=reply("bad", 1)),
        ask(state=state(swap_used_bytes=measured(GIB, "bytes_memory"))),
    ]
    bad = [v for q in questions for v in run_checks(q, CHECKS) if v.outcome is not Outcome.PASS]
    assert len({v.check for v in bad}) >= 9
    for verdict in bad:
        assert verdict.observation, verdict.check
        assert verdict.why, verdict.check
        assert verdict.remedy, verdict.check
