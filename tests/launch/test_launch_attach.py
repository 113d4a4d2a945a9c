"""Attaching: what is known of a server that somebody else started, and every way an address can be wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from freehold.errors import EngineError, FreeholdError, InputError, PrerequisiteError
from freehold.evidence import Kind
from freehold.launch.attach import attach
from freehold.secret import Secret
from freehold.world import LocalWorld

STAND_IN = Path(__file__).resolve().parent.parent / "data" / "launch" / "stand_in.py"


@pytest.fixture
def serve(tmp_path) -> Iterator[object]:
    """Start the stand-in in a mode; gives its port."""
    children = []

    def start(mode: str = "works", *arguments: str) -> int:
        port = LocalWorld().bindable_port("127.0.0.1", 0)
        command = [sys.executable, "-S", str(STAND_IN), "--port", str(port), "--mode", mode, *arguments]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        while not child.stdout.readline().startswith(b"listening"):
            assert child.poll() is None
        return port

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_foreign_server_is_recognised_and_the_rest_is_not_measured(serve):
    port = serve("works", "--alias", "some-model")
    deployment = attach(f"127.0.0.1:{port}", world=LocalWorld(), made_from={})
    assert deployment.origin == "attached"
    assert deployment.base_url == f"http://127.0.0.1:{port}/v1"
    assert (deployment.model, deployment.engine) == ("some-model", "openai")
    assert deployment.process is None
    for evidence in (deployment.ready_s, deployment.memory_predicted_bytes, deployment.memory_actual_bytes):
        assert evidence.kind is Kind.NOT_MEASURED
        assert evidence.reason == "the server was not started by freehold"


def test_a_key_is_sent(serve):
    port = serve("works", "--key", "hush")
    with pytest.raises(PrerequisiteError, match="refuses the key"):
        attach(f"http://127.0.0.1:{port}", world=LocalWorld())
    assert attach(f"http://127.0.0.1:{port}", world=LocalWorld(), api_key=Secret("hush")).origin == "attached"


def test_a_model_that_is_not_offered_is_refused(serve):
    with pytest.raises(InputError, match="has no model 'other'"):
        attach(f"127.0.0.1:{serve()}", world=LocalWorld(), model="other")


def test_a_web_site_is_no_api(serve):
    with pytest.raises(EngineError, match="HTML page"):
        attach(f"http://127.0.0.1:{serve('web_site')}/", world=LocalWorld())


def test_encryption_where_there_is_none_is_told(serve):
    with pytest.raises(PrerequisiteError) as caught:
        attach(f"https://127.0.0.1:{serve()}", world=LocalWorld())
    assert "https://127.0.0.1" in caught.value.what
    assert "SSL" in caught.value.why or "ssl" in caught.value.why.lower()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nowhere.invalid:8000/v1"])
def test_nobody_there(url):
    began = time.monotonic()
    with pytest.raises(PrerequisiteError) as caught:
        attach(url, world=LocalWorld())
    assert caught.value.exit_code == 3
    assert url.removesuffix("/v1") in caught.value.what
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "url", ["", "ftp://127.0.0.1", "http://", "http://user:hush@127.0.0.1:1", "http://127.0.0.1:x"]
)
def test_what_is_no_address_is_refused_without_a_request(url):
    with pytest.raises(FreeholdError) as caught:
        attach(url, world=LocalWorld())
    assert isinstance(caught.value, InputError)
    assert "hush" not in caught.value.what + caught.value.why
