"""A whole journey with the real model on the real engine, run once and looked at by many tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PROGRAM = Path(sys.executable).parent / "freehold"
LONG_S = 420


@dataclass(frozen=True)
class Ended:
    """A command line that ended."""

    code: int
    stdout: str
    stderr: str


def leftovers(place: Path) -> list[str]:
    """Command lines of running processes that mention a folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(place) in words and process.info["pid"] != os.getpid():
            found.append(words)
    return found


@pytest.fixture
def assert_whole() -> Callable[[Path], None]:
    """Asserts that every file of a run can be read, none is half-written, and no process of it is left."""

    def check(folder: Path) -> None:
        for path in folder.rglob("*.json"):
            json.loads(path.read_bytes())
        assert not [p for p in folder.rglob(".*") if p.name != ".lock"], "a temporary file stayed behind"
        assert leftovers(folder) == []

    return check


@pytest.fixture
def leftovers_of() -> Callable[[Path], list[str]]:
    """Command lines of running processes that mention a folder."""
    return leftovers


def environment(home: Path, cache: Path | None) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("FREEHOLD_", "XDG_"))}
    return {**keep, "HOME": str(home), "NO_COLOR": "1", **({"FREEHOLD_CACHE": str(cache)} if cache else {})}


@pytest.fixture(scope="session")
def run_program(tmp_path_factory: pytest.TempPathFactory, model_cache: Path, smollm2: Path) -> Callable[..., Ended]:
    """Runs ``freehold`` to its end as a person would, with the model already in the cache."""
    home = tmp_path_factory.mktemp("person")

    def run(*words: object, cwd: Path | None = None, timeout_s: float = LONG_S) -> Ended:
        done = subprocess.run(
            [PROGRAM, *map(str, words)],
            cwd=cwd or home,
            env=environment(home, model_cache),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


class Watched:
    """``freehold`` running, its progress lines readable while it goes on."""

    def __init__(self, words: Sequence[object], *, cwd: Path, env: dict[str, str]) -> None:
        self._err = (cwd / "stderr.txt").open("wb")
        self._out = (cwd / "stdout.txt").open("wb")
        self.cwd = cwd
        self.process = subprocess.Popen(
            [PROGRAM, *map(str, words)],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    @property
    def stderr(self) -> str:
        return (self.cwd / "stderr.txt").read_text()

    @property
    def stdout(self) -> str:
        return (self.cwd / "stdout.txt").read_text()

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float = LONG_S) -> None:
        end = time.monotonic() + timeout_s
        while not is_so():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.stderr}"
            assert time.monotonic() < end, f"not within {timeout_s} s: {self.stderr}"
            time.sleep(0.02)

    def interrupt(self, number: int = signal.SIGINT) -> int:
        """Press Ctrl-C in its terminal, which reaches its whole process group; returns the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(timeout=60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._err.close()
        self._out.close()


@pytest.fixture
def start_program(tmp_path: Path, model_cache: Path, smollm2: Path) -> Iterator[Callable[..., Watched]]:
    """Starts ``freehold`` and lets a test watch and interrupt it."""
    running: list[Watched] = []

    def start(*words: object, cache: Path | None = None) -> Watched:
        cwd = tmp_path / f"terminal-{len(running)}"
        cwd.mkdir()
        one = Watched(words, cwd=cwd, env=environment(tmp_path, cache or model_cache))
        running.append(one)
        return one

    yield start
    for one in running:
        one.close()


@dataclass(frozen=True)
class WholeRun:
    """A finished ``freehold up --keep`` whose server goes on serving."""

    folder: Path
    ended: Ended


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory, run_program: Callable[..., Ended]) -> Iterator[WholeRun]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    ended = run_program("up", "--json", "--keep", "--run-dir", folder)
    yield WholeRun(folder, ended)
    run_program("stop", folder)
    assert not leftovers(folder)
