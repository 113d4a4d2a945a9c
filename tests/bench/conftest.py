"""The server of known timing, and a small real dialect that speaks to it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from freehold.client.api import Endpoint
from freehold.engines.interface import Generation, TokenScore
from freehold.world import World

ROOT = Path(__file__).resolve().parents[2]
FAST: dict[str, object] = {"ttft_s": 0.01, "step_s": 0.001, "tokens": 100}


def load_known_server() -> ModuleType:
    name = "freehold_known_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / "known_server.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def known_port() -> Iterator[int]:
    with load_known_server().running() as port:
        yield port


@pytest.fixture
def known(known_port: int) -> Callable[[str], Endpoint]:
    """An endpoint that runs the named script."""
    return lambda script: Endpoint(base_url=f"http://127.0.0.1:{known_port}/v1", model=script)


@pytest.fixture
def own_server() -> Iterator[tuple[Endpoint, Callable[[], None]]]:
    """A server of one's own, and how to end it."""
    stack = contextlib.ExitStack()
    with stack:
        port = stack.enter_context(load_known_server().running())
        yield Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="plain"), stack.close


@dataclass
class KnownDialect:
    """What there is to ask of the server of known timing."""

    script: Mapping[str, object] = field(default_factory=dict)
    has_counters: bool = True
    name: str = "known"

    def recognise(self, world: World, endpoint: Endpoint) -> str | None:
        return "1"

    def generation_fields(self, *, output_tokens: int, is_fixed_length: bool) -> dict[str, object]:
        return {"max_tokens": output_tokens, "script": {**FAST, **self.script}}

    def counters(self, world: World, endpoint: Endpoint) -> dict[str, float] | None:
        if not self.has_counters:
            return None
        reply = world.http("GET", f"{endpoint.root_url}/counters")
        found: dict[str, Any] = json.loads(reply.body)
        return {name: float(value) for name, value in found.items()}

    def tokenize(self, world: World, endpoint: Endpoint, text: str) -> list[int] | None:
        return None

    def score(self, world: World, endpoint: Endpoint, token_ids: Sequence[int]) -> list[TokenScore] | None:
        return None

    def generate(
        self,
        world: World,
        endpoint: Endpoint,
        prompt: str | Sequence[int],
        *,
        output_tokens: int,
        is_fixed_length: bool = False,
    ) -> Generation:
        raise NotImplementedError

    def render_chat(self, world: World, endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> str | None:
        return None

    def effective(self, world: World, endpoint: Endpoint) -> dict[str, str]:
        return {}


@pytest.fixture
def known_dialect() -> Callable[..., KnownDialect]:
    return KnownDialect
