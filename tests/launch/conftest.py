"""A real process that stands in for an engine, and the engine object that starts it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from freehold.engines.interface import LaunchCommand, LogEvent
from freehold.engines.openai.dialect import OpenAIDialect
from freehold.launch.start import launch
from freehold.launch.stop import stop
from freehold.progress import Progress
from freehold.records.deployment import Deployment
from freehold.records.folder import RunFolder
from freehold.records.recipe import EndpointRequest, EngineRequest, Recipe
from freehold.secret import Secret
from freehold.world import LocalWorld, World

STAND_IN = Path(__file__).resolve().parent.parent / "data" / "launch" / "stand_in.py"


class StandInDialect(OpenAIDialect):
    """Says a configuration, as engines do."""

    def __init__(self, effective: Mapping[str, str]) -> None:
        self._effective = dict(effective)

    def effective(self, world: World, endpoint: object) -> dict[str, str]:
        return dict(self._effective)


@dataclass
class StandInEngine:
    """Starts the stand-in in one of its modes."""

    mode: str = "works"
    version: str | None = "1.0"
    key: str | None = None
    effective: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    name: str = "stand-in"

    @property
    def dialect(self) -> StandInDialect:
        return StandInDialect(self.effective)

    def installed_version(self, recipe: Recipe, world: World) -> str | None:
        return self.version

    def check_options(self, recipe: Recipe) -> None:
        return

    def memory_terms(self) -> Mapping[str, object]:
        return {}

    def commands(
        self, recipe: Recipe, *, model_files: Sequence[Path], port: int, alias: str
    ) -> tuple[LaunchCommand, ...]:
        argv = self.argv or (sys.executable, "-S", str(STAND_IN))
        key = ("--key", self.key) if self.key else ()
        return (LaunchCommand(argv=(*argv, "--port", str(port), "--mode", self.mode, "--alias", alias, *key)),)

    def read_line(self, line: str) -> LogEvent | None:
        loading = re.match(r"loading (\d+) of (\d+) bytes", line)
        if loading:
            done, total = int(loading[1]), int(loading[2])
            return LogEvent(kind="loading", message="loading", line=line, done_bytes=done, total_bytes=total)
        for start, kind in (("fatal: ", "fatal"), ("out of memory", "out_of_memory"), ("listening", "listening")):
            if line.startswith(start):
                return LogEvent(kind=kind, message=line.removeprefix("fatal: "), line=line)
        return None

    def last_words(self, log: str) -> tuple[str, ...]:
        return tuple(line for line in log.splitlines() if line.startswith(("fatal", "out of memory")))[:5]


def make_recipe(*, port: int = 0, host: str = "127.0.0.1", version: str | None = None, **more: object) -> Recipe:
    return Recipe(
        name="stand-in",
        model="stand-in.bin",
        engine=EngineRequest(name="stand-in", version=version),
        endpoint=EndpointRequest(host=host, port=port),
        **more,  # type: ignore[arg-type]
    )


@dataclass
class Launcher:
    """Launches into a folder and remembers what was said."""

    folder: RunFolder
    model: Path
    world: LocalWorld = field(default_factory=LocalWorld)
    events: list[Progress] = field(default_factory=list)
    timeout_s: float = 10.0

    def __call__(
        self,
        engine: StandInEngine,
        recipe: Recipe | None = None,
        *,
        keep: bool = True,
        listener: Callable[[Progress], None] | None = None,
        folder: RunFolder | None = None,
        api_key: Secret | None = None,
        plan: object = None,
        timeout_s: float | None = None,
    ) -> Deployment:
        return launch(
            recipe or make_recipe(),
            engine,
            model_files=[self.model],
            plan=plan,  # type: ignore[arg-type]
            folder=folder or self.folder,
            world=self.world,
            listener=listener or self.events.append,
            api_key=api_key,
            made_from={"preflight.json": "0" * 64},
            timeout_s=timeout_s or self.timeout_s,
            keep=keep,
        )


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """A launcher into a fresh run folder; whatever the test left running is stopped."""
    model = tmp_path / "stand-in.bin"
    model.write_bytes(b"0123456789")
    one = Launcher(folder=RunFolder.create(tmp_path / "run"), model=model)
    yield one
    stop(one.folder, one.world, timeout_s=0.3)
