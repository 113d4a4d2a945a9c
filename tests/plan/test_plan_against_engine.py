"""The memory plan against the real engine: predicted before, measured after, term by term and in sum."""

from __future__ import annotations

import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from freehold.engines.registry import engine
from freehold.errors import PrerequisiteError
from freehold.evidence import Evidence
from freehold.hardware.probe import probe_facts
from freehold.models.inventory import read_inventory
from freehold.plan.estimate import plan
from freehold.recipes.read import embedded_recipe
from freehold.records.node import NodeState
from freehold.records.plan import Plan
from freehold.records.recipe import OptionValue
from freehold.world import LocalWorld

pytestmark = pytest.mark.engine

MIB = 2**20


def predict(model: Path, context: int, sequences: int, options: dict[str, OptionValue]) -> Plan:
    recipe = replace(embedded_recipe(), context=context, sequences=sequences, options=options)
    unknown = Evidence.not_measured("not needed here")
    state = NodeState(
        free_memory_bytes=unknown,
        swap_used_bytes=unknown,
        free_disk_bytes=unknown,
        read_bandwidth_bytes_per_s=unknown,
        taken_at="2026-11-30T00:00:00Z",
    )
    constants = engine(recipe.engine.name).memory_terms()
    return plan(
        recipe, read_inventory(model), probe_facts(LocalWorld()), state, memory_constants=constants, made_from={}
    )


@pytest.mark.parametrize(
    ("context", "sequences", "options"),
    [(512, 1, {}), (2048, 1, {}), (1024, 2, {"cache-type-k": "q8_0", "cache-type-v": "q8_0", "ubatch-size": 128})],
)
def test_the_process_takes_what_the_plan_said(
    smollm2: Path, tmp_path: Path, context: int, sequences: int, options: dict[str, OptionValue]
) -> None:
    record = predict(smollm2, context, sequences, options)
    terms = {term.name: term.bytes.number for term in record.terms}
    recipe = replace(embedded_recipe(), context=context, sequences=sequences, options=options)
    world, log = LocalWorld(), tmp_path / "engine.log"
    port = world.bindable_port("127.0.0.1", 0)
    (command,) = engine(recipe.engine.name).commands(recipe, model_files=[smollm2], port=port, alias="m")
    pid = world.spawn(command.argv, env=command.env, log=log)
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while not is_up(world, url):
            assert world.exit_status(pid) is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        filling = [20 + i * 37 % 7000 for i in range(context - 40)]
        for prompt in (filling, [1, 2, 3]):
            body = {"prompt": prompt, "n_predict": 16, "cache_prompt": False, "ignore_eos": True}
            reply = world.http("POST", f"{url}/completion", json=body, timeout_s=120)
            assert reply.status == 200, reply.body
            assert json.loads(reply.body)["tokens_predicted"] == 16
        process = world.process(pid)
        assert process is not None
        text = log.read_text()
        assert logged(text, "KV") == pytest.approx(terms["kv_cache"], rel=0.01)
        assert logged(text, "model") == pytest.approx(terms["weights"], rel=0.01)
        assert logged(text, "compute") + logged(text, "output") == pytest.approx(terms["workspace"], rel=0.01)
        peak = record.contract.peak_bytes.number
        assert peak is not None
        assert process.resident_bytes == pytest.approx(peak, rel=0.05)
        assert process.resident_bytes < record.contract.contract_free_bytes.number  # type: ignore[operator]
    finally:
        world.signal(pid, signal.SIGTERM)
        for _ in range(50):
            if world.process(pid) is None:
                break
            time.sleep(0.1)
        else:
            world.signal(pid, signal.SIGKILL)


def is_up(world: LocalWorld, url: str) -> bool:
    try:
        return world.http("GET", f"{url}/health", timeout_s=2).status == 200
    except PrerequisiteError:
        return False


def logged(text: str, name: str) -> float:
    return sum(float(size) for size in re.findall(rf"{name} buffer size = +([\d.]+) MiB", text)) * MIB
