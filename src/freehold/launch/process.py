"""Says whether a running process is one that we started, and keeps the records that allow to say it.

A record is written whole before its process is started (pid 0) and again when the pid is known. A pid alone proves
nothing, the kernel uses it again; pid, kernel start time and command line together do. Read :func:`why_not_ours`.

Does not do: starting or ending processes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from freehold.errors import InputError
from freehold.records.base import decode, encode
from freehold.records.deployment import OwnedProcess
from freehold.records.folder import RunFolder
from freehold.world import ProcessFacts, World

__all__ = [
    "ProcessRecord",
    "argv_sha256",
    "find_unrecorded",
    "is_same_command",
    "next_record_name",
    "read_records",
    "same_start",
    "why_not_ours",
    "with_pid",
    "write_record",
]

_NAME = re.compile(r"process-(\d+)\.json\Z")
# Start times are computed from the kernel's boot time in whole seconds, which another process may read one off.
_START_TOLERANCE_S = 2.0
_SPAWN_WINDOW_S = 10.0  # guess: from writing the record until the kernel has started the process


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process record and the name of its file in the run folder."""

    name: str
    process: OwnedProcess


def argv_sha256(argv: Sequence[str]) -> str:
    """Hash of an argument vector: its arguments as UTF-8, each followed by a zero byte."""
    return hashlib.sha256(b"".join(part.encode("utf-8", "surrogateescape") + b"\0" for part in argv)).hexdigest()


def is_same_command(recorded: Sequence[str], observed: Sequence[str]) -> bool:
    """Whether a running command line is the recorded one.

    A script shows its interpreter in front, and a launcher that became the program shows other first words; so the
    arguments have to be the same, all of them in order at the end of the line. Without arguments only the whole
    line counts.
    """
    if argv_sha256(recorded) == argv_sha256(observed):
        return True
    tail = tuple(recorded[1:])
    return len(tail) > 0 and len(observed) > len(tail) and argv_sha256(tail) == argv_sha256(observed[-len(tail) :])


def same_start(left: float, right: float) -> bool:
    """Whether two readings of a kernel start time (seconds since the epoch) mean the same moment."""
    return abs(left - right) <= _START_TOLERANCE_S


def why_not_ours(recorded: OwnedProcess, observed: ProcessFacts) -> str | None:
    """Why a running process is not the recorded one, None if it is.

    Args:
        recorded: What was written down when it was started.
        observed: The process that has its pid now.
    """
    if not same_start(recorded.started_at, observed.started_at):
        return (
            f"pid {observed.pid} belongs to another process now, started "
            f"{observed.started_at - recorded.started_at:+.0f} s from ours"
        )
    if not is_same_command(recorded.argv, observed.argv):
        return f"pid {observed.pid} runs another command now: `{' '.join(observed.argv)[:120]}`"
    return None


def next_record_name(folder: RunFolder) -> str:
    """File name for one more process of a run."""
    numbers = [int(m[1]) for m in (_NAME.match(p.name) for p in folder.path.glob("process-*.json")) if m]
    return f"process-{max(numbers, default=-1) + 1}.json"


def write_record(folder: RunFolder, record: ProcessRecord) -> None:
    """Write a process record whole.

    Raises:
        PrerequisiteError: The folder cannot be written.
    """
    folder.write(record.name, encode(record.process))


def read_records(folder: RunFolder) -> tuple[ProcessRecord, ...]:
    """Every process record of a run, in the order they were started.

    Raises:
        InputError: One of them cannot be read, or its hash is not that of its arguments.
    """
    paths = sorted(
        (p for p in folder.path.glob("process-*.json") if _NAME.match(p.name)), key=lambda p: int(p.stem[8:])
    )
    records = []
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"{path} is no file",
                why="a process record is a file that freehold wrote",
                fix="remove it, and find the process by hand: `ps -ef`",
            )
        process = decode(OwnedProcess, path.read_bytes(), name=str(path))
        if argv_sha256(process.argv) != process.argv_sha256:
            raise InputError(
                f"{path} contradicts itself",
                why="its hash is not that of its arguments, so it was changed",
                fix="find the process by hand: `ps -ef`",
            )
        records.append(ProcessRecord(name=path.name, process=process))
    return tuple(records)


def find_unrecorded(world: World, recorded: OwnedProcess) -> ProcessFacts | None:
    """The process of a record whose pid was never written, because freehold itself ended in between.

    It has the same command line and was started within ten seconds after the record was written.
    """
    for facts in world.processes():
        delay = facts.started_at - recorded.started_at
        if -_START_TOLERANCE_S <= delay <= _SPAWN_WINDOW_S and is_same_command(recorded.argv, facts.argv):
            return facts
    return None


def with_pid(recorded: OwnedProcess, observed: ProcessFacts) -> OwnedProcess:
    """A record completed by what the kernel says."""
    return replace(recorded, pid=observed.pid, started_at=observed.started_at)
