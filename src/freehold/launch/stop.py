"""Ends what a run started, and nothing else.

Only the run folder is read. A process is ended if its pid, its kernel start time and its command line are those that
were written down; a pid that the kernel gave to somebody else since is left alone and named. Running it again is safe.
Read :func:`stop`.

Does not do: ending processes of other runs, or of servers that were attached to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from freehold.errors import EngineError
from freehold.launch.process import ProcessRecord, find_unrecorded, read_records, why_not_ours
from freehold.launch.tree import TreeEnd, end_tree, family
from freehold.progress import Listener, Progress, ignore
from freehold.records.deployment import OwnedProcess
from freehold.records.folder import RunFolder
from freehold.world import ProcessFacts, World

__all__ = ["StopReport", "StoppedProcess", "stop"]

Outcome = Literal["ended", "killed", "gone", "left alone", "still there"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedProcess:
    """What became of one process of a run.

    Args:
        record: File name of its record.
        pid: Its pid; 0 if it never had one.
        outcome: ``ended`` when asked, ``killed``, ``gone`` already, ``left alone`` because it is not ours, or
            ``still there``.
        detail: One sentence.
    """

    record: str
    pid: int
    outcome: Outcome
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """What became of every process of a run, in the order they were started."""

    processes: tuple[StoppedProcess, ...]

    @property
    def is_stopped(self) -> bool:
        """Whether nothing of the run is running any more."""
        return all(one.outcome != "still there" for one in self.processes)

    @property
    def summary(self) -> str:
        """One line for the person who watches."""
        return "; ".join(one.detail for one in self.processes) or "this run started no process"


def stop(folder: RunFolder, world: World, listener: Listener = ignore, timeout_s: float = 15.0) -> StopReport:
    """End every process that a run started, children included.

    Args:
        folder: The run.
        world: For processes and signals.
        listener: Gets one event per process.
        timeout_s: How long a process may take to end before it is killed (seconds).

    Raises:
        InputError: A process record cannot be read or was changed.
        EngineError: A process of the run could not be ended.
    """
    stopped = []
    for record in read_records(folder):
        one = _stop_one(record, world, timeout_s)
        listener(Progress(stage="stop", message=one.detail))
        stopped.append(one)
    report = StopReport(processes=tuple(stopped))
    if not report.is_stopped:
        stuck = [one for one in report.processes if one.outcome == "still there"]
        raise EngineError(
            f"{len(stuck)} of {len(report.processes)} processes of this run are still there",
            why="; ".join(one.detail for one in stuck),
            fix=f"as their owner: `kill -9 {' '.join(str(one.pid) for one in stuck)}`",
            facts={"pids": [one.pid for one in stuck]},
        )
    return report


def _stop_one(record: ProcessRecord, world: World, timeout_s: float) -> StoppedProcess:
    process = record.process
    if process.pid == 0:
        found = find_unrecorded(world, process)
        if found is None:
            return StoppedProcess(record=record.name, pid=0, outcome="gone", detail="a process that never started")
        return _end(record, found, world, timeout_s)
    observed = world.process(process.pid)
    if observed is None:
        detail = f"process {process.pid} has already ended" + _tell_orphans(process, world)
        return StoppedProcess(record=record.name, pid=process.pid, outcome="gone", detail=detail)
    reason = why_not_ours(process, observed)
    if reason is not None:
        return StoppedProcess(
            record=record.name, pid=process.pid, outcome="left alone", detail=f"{reason}; it was left alone"
        )
    return _end(record, observed, world, timeout_s)


def _tell_orphans(process: OwnedProcess, world: World) -> str:
    """Name what is left in the session that an ended process led; without a record of it, it is not ended."""
    left = [f for f in world.processes() if f.session_id == process.pid and f.started_at >= process.started_at - 1]
    if not left:
        return ""
    pids = " ".join(str(facts.pid) for facts in left)
    return f", but its session still holds {pids} (`{' '.join(left[0].argv)[:80]}`); if yours: `kill {pids}`"


def _end(record: ProcessRecord, root: ProcessFacts, world: World, timeout_s: float) -> StoppedProcess:
    end = end_tree(world, root, family(world, root)[1:], timeout_s)
    outcome: Outcome = "still there" if end.remaining else "killed" if root.pid in end.killed else "ended"
    return StoppedProcess(record=record.name, pid=root.pid, outcome=outcome, detail=_tell(root.pid, end, timeout_s))


def _tell(pid: int, end: TreeEnd, timeout_s: float) -> str:
    if end.remaining:
        return f"process {', '.join(map(str, end.remaining))} could not be ended"
    others = len(end.ended) + len(end.killed) - 1
    text = f"process {pid} ended"
    if pid in end.killed:
        text = f"process {pid} did not end within {timeout_s:.0f} s and was killed"
    return text + (f" with {others} of its children" if others else "")
