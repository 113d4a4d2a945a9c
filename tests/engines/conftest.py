"""Lets the tests of this folder import the replayed server beside them, and gives the recorded ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

CAPTURES = Path(__file__).resolve().parents[1] / "data" / "dialects"


@pytest.fixture
def llama_server() -> Iterator[object]:
    """A recorded llama.cpp server."""
    from replayed import ReplayedServer

    with ReplayedServer(CAPTURES / "llama_cpp.json") as server:
        yield server


@pytest.fixture
def vllm_server() -> Iterator[object]:
    """A recorded vLLM server."""
    from replayed import ReplayedServer

    with ReplayedServer(CAPTURES / "vllm.json") as server:
        yield server
