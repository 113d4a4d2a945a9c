"""Says of a run whether its server is still there and still answers.

Does not do: changing anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freehold.errors import FreeholdError, InputError, PrerequisiteError
from freehold.launch.process import read_records, why_not_ours
from freehold.records.deployment import Deployment
from freehold.records.folder import MANIFEST, RunFolder
from freehold.world import World

__all__ = ["RunStatus", "find_runs", "living_pids", "run_status"]

State = Literal["serving", "silent", "stopped", "attached", "not started", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run's server.

    Args:
        name: Name of the run folder.
        state: ``serving``; ``silent`` (its process lives but does not answer); ``stopped``; ``attached`` (not ours);
            ``not started``; ``unreadable``.
        base_url: Its address, where it is known and the process lives.
        detail: One sentence, may be empty.
    """

    name: str
    state: State
    base_url: str | None
    detail: str


def find_runs(folder: Path) -> tuple[RunFolder, ...]:
    """The run at a path, or the runs below it, oldest first.

    Raises:
        InputError: There is no such folder.
    """
    if not folder.is_dir():
        if folder == Path("runs"):
            return ()
        raise InputError(f"{folder} is no folder", why="there is nothing of that name", fix="check the spelling")
    if _is_run(folder):
        return (RunFolder(folder),)
    return tuple(RunFolder(path) for path in sorted(folder.iterdir()) if _is_run(path))


def _is_run(path: Path) -> bool:
    """Whether a folder is a run; one that lost its manifest still is, if it started something that may live."""
    return (path / MANIFEST).is_file() or any(path.glob("process-*.json"))


def living_pids(run: RunFolder, world: World) -> tuple[int, ...]:
    """Processes of a run's servers that still live and are still the ones it started.

    Raises:
        InputError: A process record cannot be read.
    """
    alive = []
    for record in read_records(run):
        observed = world.process(record.process.pid) if record.process.pid else None
        if observed is not None and why_not_ours(record.process, observed) is None:
            alive.append(observed.pid)
    return tuple(alive)


def run_status(run: RunFolder, world: World) -> RunStatus:
    """Look at one run's processes and, if they live, ask the server for its models."""
    name = run.path.name
    try:
        deployment = run.find(Deployment)
        is_started = bool(read_records(run))
        alive = living_pids(run, world)
    except FreeholdError as error:
        return RunStatus(name=name, state="unreadable", base_url=None, detail=error.what)
    base_url = deployment.base_url if deployment is not None else None
    if deployment is not None and deployment.origin == "attached":
        return RunStatus(name=name, state="attached", base_url=base_url, detail="started by somebody else")
    if not is_started:
        return RunStatus(name=name, state="not started", base_url=None, detail="")
    if not alive:
        return RunStatus(name=name, state="stopped", base_url=None, detail="")
    pids = f"pid {', '.join(map(str, alive))}"
    if base_url is None:
        return RunStatus(name=name, state="silent", base_url=None, detail=f"{pids}; it has not answered yet")
    try:
        world.http("GET", f"{base_url}/models", timeout_s=5.0)
    except PrerequisiteError as error:
        return RunStatus(name=name, state="silent", base_url=base_url, detail=f"{pids}; {error.why}")
    return RunStatus(name=name, state="serving", base_url=base_url, detail=pids)
