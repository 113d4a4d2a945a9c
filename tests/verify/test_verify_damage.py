"""A real server in a process of its own: the healthy model passes, idle and loaded, and every damaged copy fails.

The damaged files are bound to the reference by hand (as if their hash were the right one), so that what is seen is seen
in the answers, as it would be with a wrong kernel. Their real hashes fail before anything is asked.
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from freehold.client.api import Endpoint
from freehold.engines.registry import recognise
from freehold.models.hashing import hash_checkpoint
from freehold.models.inventory import read_inventory
from freehold.records.verdict import Outcome, Verdict
from freehold.records.verification import Verification
from freehold.verify.binding import judge_binding
from freehold.verify.fingerprint import judge_fingerprint
from freehold.verify.interview import Interview
from freehold.verify.limits import load_limits
from freehold.verify.reference import Reference
from freehold.verify.run import verify
from freehold.verify.texts import load_texts
from freehold.world import LocalWorld

pytestmark = pytest.mark.engine
TOOLS = Path(__file__).resolve().parents[2] / "tools"
WORLD = LocalWorld()
# A healthy statistic stays this factor under its limit, a damaged one goes this factor over it.
CLEAR = 1.5


def load_damage() -> ModuleType:
    spec = importlib.util.spec_from_file_location("damage_gguf", TOOLS / "damage_gguf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def serving(model: Path, log: Path, *options: str) -> Iterator[Endpoint]:
    """Serve a file on a free port until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-P", "-m", "freehold.engines.llama_cpp.serve", "--model", str(model), "--alias", "smollm2"]
    argv += ["--port", str(port), "--context-tokens", "2048", *options]
    there = Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="smollm2")
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + 120
            while recognise(WORLD, there).dialect.name != "llama.cpp":
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < until, "the server did not answer within 120 s"
                time.sleep(0.2)
            yield there
        finally:
            process.terminate()
            process.wait(30)


def run(there: Endpoint, reference: Reference, checkpoint: Path) -> Verification:
    """Verify as if the file were the one the reference was made for."""
    return verify(
        there,
        recognise(WORLD, there).dialect,
        WORLD,
        checkpoint_sha256=reference.checkpoint_sha256,
        reference=reference,
        architecture=read_inventory(checkpoint).architecture,
    )


def outcomes(record: Verification) -> dict[str, Outcome]:
    return {verdict.check: verdict.outcome for verdict in record.verdicts}


def excess(verdicts: Iterable[Verdict]) -> float:
    """Mean absolute difference of the log-probabilities as a multiple of its limit."""
    evidence = next(v.evidence for v in verdicts if v.check == "fingerprint")
    value, limit = (evidence[name].number for name in ("mean_abs_difference", "mean_abs_difference_limit"))
    assert value is not None
    assert limit is not None
    return value / limit


@pytest.fixture(scope="module")
def damaged(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> object:
    """A function that gives a damaged copy of the model."""
    folder, module = tmp_path_factory.mktemp("damaged"), load_damage()

    def make(kind: str, *arguments: str) -> Path:
        path = folder / "damaged.gguf"
        module.damage(smollm2, path, kind, arguments)
        return path

    return make


def test_the_healthy_model_passes_twice_and_with_both_cores_busy(
    smollm2: Path, smollm2_reference: Reference, tmp_path: Path
) -> None:
    spin = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    with serving(smollm2, tmp_path / "log") as there:
        first = run(there, smollm2_reference, smollm2)
        load = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
        try:
            second = run(there, smollm2_reference, smollm2)
        finally:
            for process in load:
                process.kill()
                process.wait()
    for record in (first, second):
        assert set(outcomes(record).values()) == {Outcome.PASS}, record.verdicts
        assert record.passed
        assert excess(record.verdicts) < 1 / CLEAR
    assert excess(first.verdicts) == pytest.approx(excess(second.verdicts), rel=0.05)


def test_shuffled_tensors_fail_the_gate(damaged: object, smollm2_reference: Reference, tmp_path: Path) -> None:
    model = damaged("swap", "blk.14.ffn_up.weight", "blk.15.ffn_up.weight")  # type: ignore[operator]
    with serving(model, tmp_path / "log") as there:
        record = run(there, smollm2_reference, model)
    assert outcomes(record)["fingerprint"] is Outcome.FAIL, record.verdicts
    assert excess(record.verdicts) > CLEAR
    assert not record.passed


@pytest.mark.parametrize(
    "damage",
    [("noise", "0.1"), ("nibbles", "blk.15.attn_v.weight"), ("rope", "10000")],
    ids=["other weights", "wrong unpacking", "wrong rope base"],
)
def test_a_damaged_model_fails_on_its_log_probabilities(
    damage: tuple[str, ...], damaged: object, smollm2_reference: Reference, tmp_path: Path
) -> None:
    model = damaged(*damage)  # type: ignore[operator]
    limits = load_limits()
    with serving(model, tmp_path / "log") as there:
        dialect = recognise(WORLD, there).dialect
        asked = Interview(there, dialect, WORLD, load_texts(), limits, reference=smollm2_reference)
        verdict = judge_fingerprint(smollm2_reference, asked.scores, limits.fingerprint, "today")
    assert verdict.outcome is Outcome.FAIL, verdict
    assert excess([verdict]) > CLEAR


def test_a_damaged_file_already_fails_on_its_hash(damaged: object, smollm2_reference: Reference) -> None:
    model = damaged("swap", "blk.28.attn_q.weight", "blk.29.attn_q.weight")  # type: ignore[operator]
    inventory = hash_checkpoint(read_inventory(model), model)
    verdict = judge_binding(smollm2_reference, inventory.checkpoint_sha256, inventory.architecture, "llama.cpp")
    assert verdict.outcome is Outcome.FAIL
    assert "b179c9523d0e" in verdict.observation


def test_a_wrong_chat_template_fails(damaged: object, smollm2_reference: Reference, tmp_path: Path) -> None:
    model = damaged("template", "message['role'] + '\n'", "message['role'] + '\t'")  # type: ignore[operator]
    with serving(model, tmp_path / "log") as there:
        in_file = run(there, smollm2_reference, model)
        unknown_header = verify(
            there,
            recognise(WORLD, there).dialect,
            WORLD,
            checkpoint_sha256=smollm2_reference.checkpoint_sha256,
            reference=smollm2_reference,
        )
    # The header's own hash gives it away; where the header cannot be seen, the rendered prompt does.
    assert outcomes(in_file)["checkpoint_binding"] is Outcome.FAIL
    assert outcomes(unknown_header)["chat_template"] is Outcome.FAIL
    assert outcomes(unknown_header)["fingerprint"] is Outcome.PASS
    assert not in_file.passed
    assert not unknown_header.passed


def test_a_template_option_of_the_server_fails(smollm2: Path, smollm2_reference: Reference, tmp_path: Path) -> None:
    option = "chat-template={% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} {% endfor %}"
    with serving(smollm2, tmp_path / "log", "--set", option) as there:
        record = run(there, smollm2_reference, smollm2)
        alone = verify(
            there,
            recognise(WORLD, there).dialect,
            WORLD,
            checkpoint_sha256=None,
            reference=None,
            architecture=read_inventory(smollm2).architecture,
        )
    assert outcomes(record)["chat_template"] is Outcome.FAIL
    assert outcomes(alone)["chat_template"] is Outcome.FAIL, "the hashes differ even without a reference"
    assert not record.passed
    assert not alone.passed
