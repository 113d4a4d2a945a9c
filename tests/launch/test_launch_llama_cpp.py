"""The real engine on the real model: starts, answers, fails in words, stops.

The binary's tests need a ``llama-server`` that runs on this machine: ``FREEHOLD_TEST_LLAMA_SERVER`` names it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from freehold.client.api import Endpoint
from freehold.engines.llama_cpp.options import apply_option, facts, options
from freehold.engines.registry import engine, recognise
from freehold.errors import EngineError, FreeholdError, PrerequisiteError
from freehold.launch.attach import attach
from freehold.launch.start import launch
from freehold.launch.stop import stop
from freehold.progress import Progress
from freehold.records.deployment import Deployment
from freehold.records.folder import RunFolder
from freehold.records.recipe import EndpointRequest, EngineRequest, Recipe
from freehold.secret import Secret
from freehold.world import LocalWorld

pytestmark = pytest.mark.engine

SERVER = os.environ.get("FREEHOLD_TEST_LLAMA_SERVER")
RUNTIMES = [
    "embedded",
    pytest.param(
        SERVER or "",
        marks=pytest.mark.skipif(not SERVER, reason="FREEHOLD_TEST_LLAMA_SERVER names no binary"),
        id="binary",
    ),
]
MIB = 2**20


class Starter:
    """Launches into numbered folders and stops everything at the end."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.world = LocalWorld()
        self.model = model
        self.events: list[Progress] = []
        self._root = folder
        self._folders: list[RunFolder] = []

    @property
    def folder(self) -> RunFolder:
        return self._folders[-1]

    def __call__(self, runtime: str = "embedded", *, model: Path | None = None, **more: object) -> Deployment:
        api_key = more.pop("api_key", None)
        given = {"context": 1024, "sequences": 1, "options": {"threads": 2}, **more}
        recipe = Recipe(name="smollm2", model="x", engine=EngineRequest(name="llama.cpp", runtime=runtime), **given)
        self._folders.append(RunFolder.create(self._root / str(len(self._folders))))
        return launch(
            recipe,
            engine("llama.cpp"),
            model_files=[model or self.model],
            plan=None,
            folder=self.folder,
            world=self.world,
            listener=self.events.append,
            api_key=api_key,
            made_from={},
            timeout_s=60,
            keep=False,
        )

    def stop_all(self) -> None:
        for folder in self._folders:
            stop(folder, self.world)

    def post(self, deployment: Deployment, route: str, **payload: object) -> dict[str, object]:
        import json

        reply = self.world.http("POST", deployment.base_url + route, json=payload, timeout_s=60)
        assert reply.status == 200, reply.body
        answer = json.loads(reply.body)
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def start(tmp_path: Path, smollm2: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path, smollm2)
    yield starter
    starter.stop_all()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_whole_life_of_a_server(start, runtime):
    deployment = start(runtime, context=512, sequences=2)
    assert deployment.engine == "llama.cpp"
    assert deployment.engine_version
    assert deployment.effective["context_tokens"] == "512"
    assert deployment.effective["sequences"] == "2"
    assert deployment.effective["threads"] == "2"
    assert deployment.effective["weight_type"] == "Q4_1"
    assert deployment.notes == ()
    # weights 92.1 + KV 2 x 512 x 30 x 2 x 192 x 2 B = 22.5 + compute 15.1 MiB, and an interpreter at most
    assert 115 * MIB < deployment.memory_actual_bytes.number < 220 * MIB
    answer = start.post(deployment, "/completions", prompt="The capital of France is", max_tokens=1, temperature=0)
    assert answer["choices"][0]["text"] == " Paris"
    for route in ("/props", "/slots", "/metrics", "/health"):
        assert start.world.http("GET", deployment.base_url.removesuffix("/v1") + route).status == 200
    attached = attach(deployment.base_url, world=start.world)
    assert (attached.engine, attached.model) == ("llama.cpp", "smollm2")
    began = time.monotonic()
    report = stop(start.folder, start.world)
    assert [one.outcome for one in report.processes] == ["ended"]
    assert time.monotonic() - began < 2.5
    with pytest.raises(PrerequisiteError):
        start.world.http("GET", deployment.base_url + "/models", timeout_s=1)


def test_the_log_of_the_package_tells_what_it_took(start):
    deployment = start(context=1024, sequences=2)
    assert int(deployment.effective["kv_cache_bytes.CPU"]) == 2 * 1024 * 30 * 2 * 192 * 2
    # 512 x (4 x (5 x 576 + 3 x 1,536) + 2 x 1,024) bytes: the widest point of a layer, and the mask
    assert int(deployment.effective["compute_bytes.CPU"]) == pytest.approx(512 * (4 * 7488 + 2 * 1024), rel=0.02)
    assert any(event.total and event.unit == "bytes" for event in start.events)


def test_options_of_the_recipe_arrive(start):
    deployment = start(options={"threads": 1, "cache-type-k": "q8_0", "cache-type-v": "q8_0", "ubatch-size": 128})
    assert deployment.effective["threads"] == "1"
    # q8_0: 34 bytes for 32 values
    assert int(deployment.effective["kv_cache_bytes.CPU"]) == pytest.approx(1024 * 30 * 2 * 192 * 34 / 32, rel=0.01)


def test_another_chat_template_is_another_prompt(start, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}<<{{ m['content'] }}>>{% endfor %}")
    deployment = start(options={"threads": 2, "chat-template-file": str(template)})
    found = recognise(start.world, Endpoint(base_url=deployment.base_url, model=deployment.model))
    prompt = found.dialect.render_chat(
        start.world,
        Endpoint(base_url=deployment.base_url, model=deployment.model),
        [{"role": "user", "content": "hello"}],
    )
    assert prompt == "<<hello>>"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_key_is_asked_for_and_appears_nowhere(start, runtime, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("hush-4711\n")
    deployment = start(runtime, endpoint=EndpointRequest(api_key_file=str(keys)))
    with pytest.raises(FreeholdError, match="refuses the key"):
        attach(deployment.base_url, world=start.world)
    attach(deployment.base_url, world=start.world, api_key=Secret("hush-4711"))
    facts = start.world.process(deployment.process.pid)
    assert "hush" not in " ".join(facts.argv)
    for path in start.folder.path.rglob("*"):
        assert not path.is_file() or b"hush-4711" not in path.read_bytes()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_bad_files_end_in_words(start, runtime, tmp_path, smollm2):
    cut = tmp_path / "cut.gguf"
    with smollm2.open("rb") as source:
        cut.write_bytes(source.read(60_000_000))
    noise = tmp_path / "noise.gguf"
    noise.write_bytes(b"\x00\x01\x02\x03" * 1000)
    for path, words in ((cut, "not within the file bounds"), (noise, "is no GGUF file")):
        with pytest.raises(EngineError) as caught:
            start(runtime, model=path)
        assert words in caught.value.what
        assert "ended with exit status" in caught.value.what
        assert str(start.folder.path / "logs" / "engine-0.log") in caught.value.why


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_context_that_no_machine_holds_ends_in_words(start, runtime):
    with pytest.raises(EngineError) as caught:
        start(runtime, context=20_000_000, options={"threads": 2, "fit": "off"})
    assert "asked for 429.2 GiB" in caught.value.what
    assert "`context`" in caught.value.fix


def test_two_servers_side_by_side_and_a_third_on_a_taken_port(start):
    first = start()
    second = start()
    assert first.base_url != second.base_url
    port = int(first.base_url.removesuffix("/v1").rsplit(":", 1)[1])
    with pytest.raises(PrerequisiteError, match=f"port {port} is taken by process {first.process.pid}"):
        start(endpoint=EndpointRequest(port=port))
    for deployment in (first, second):
        assert start.post(deployment, "/completions", prompt="1 2 3", max_tokens=1)["usage"]["completion_tokens"] == 1


def test_a_request_in_flight_does_not_hold_up_the_end(start):
    deployment = start(context=4096)

    def long_request() -> None:
        try:
            start.post(deployment, "/completions", prompt="Once", max_tokens=3000, ignore_eos=True)
        except (FreeholdError, AssertionError):
            return

    thread = threading.Thread(target=long_request)
    thread.start()
    time.sleep(0.5)
    began = time.monotonic()
    stop(start.folder, start.world)
    assert time.monotonic() - began < 2.5
    thread.join(5)
    assert not thread.is_alive()
    assert "freehold: ended" in (start.folder.path / "logs" / "engine-0.log").read_text()


def test_every_option_of_the_table_is_a_field_of_the_installed_package():
    """The table was made from this package; each mapped option can be set, and what is read back is what was meant."""
    import xllamacpp

    samples = {"toggle": False, "flag": True, "int": 3, "float": 0.5, "text": "abc"}
    checked = 0
    for option in options().values():
        if option.field is None or option.reads_file or option.name in facts()["reserved"]:
            continue
        value = option.words[-1] if option.kind == "choice" else samples[option.kind]
        parameters = xllamacpp.CommonParams()
        apply_option(parameters, xllamacpp, option.name, value)
        owner = parameters
        for step in option.field.split("."):
            owner = getattr(owner, step)
        expected = value
        if isinstance(value, str) and value in option.values:
            expected = option.values[value]
            if isinstance(expected, str):
                expected = getattr(xllamacpp, option.field_kind)[expected]
        elif option.is_inverted:
            expected = not value
        assert int(owner) == int(expected) if option.kind == "choice" else owner == expected, option.name
        checked += 1
    assert checked > 100
