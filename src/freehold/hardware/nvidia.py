"""What NVIDIA's driver says about the accelerators: names, memory, and who uses them.

A machine whose accelerator shares the processor's memory (GB10) answers ``[N/A]`` for it; that becomes None, not 0.

Does not do: other vendors' accelerators, or any measurement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from freehold.errors import PrerequisiteError
from freehold.records.node import Accelerator
from freehold.world import World

__all__ = ["AcceleratorUse", "DriverAnswer", "parse_accelerators", "parse_uses", "read_accelerators", "read_uses"]

_TIMEOUT_S = 10.0
_FORMAT = "--format=csv,noheader,nounits"
_FIELDS = "--query-gpu=name,memory.total,compute_cap,driver_version"
_USES = "--query-compute-apps=pid,process_name,used_memory"
_MIB = 2**20
_NO_VALUE = re.compile(r"\[?(N/A|Not Supported|Unknown Error|Insufficient Permissions|Not Found)\]?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorUse:
    """A process that computes on an accelerator.

    Args:
        pid: Its process id, as the driver sees it; another container's may be foreign here.
        name: Its program.
        used_bytes: Accelerator memory it holds; None where the driver does not say.
    """

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAnswer:
    """What the driver's tool said.

    Args:
        accelerators: What it lists.
        uses: Who computes on them.
        problem: Why there is no answer, None when there is one; "" when there is no such tool.
    """

    accelerators: tuple[Accelerator, ...] = ()
    uses: tuple[AcceleratorUse, ...] = ()
    problem: str | None = None


def read_accelerators(world: World) -> DriverAnswer:
    """The accelerators of this machine, by ``nvidia-smi``."""
    text, problem = _ask(world, _FIELDS)
    return DriverAnswer(accelerators=parse_accelerators(text), problem=problem)


def read_uses(world: World) -> DriverAnswer:
    """The processes that compute on this machine's accelerators, by ``nvidia-smi``."""
    text, problem = _ask(world, _USES)
    return DriverAnswer(uses=parse_uses(text), problem=problem)


def _ask(world: World, query: str) -> tuple[str, str | None]:
    try:
        done = world.run(["nvidia-smi", query, _FORMAT], timeout_s=_TIMEOUT_S)
    except PrerequisiteError as error:
        return "", error.what if "did not end" in error.what else ""
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines() or [f"it ended with {done.returncode}"]
        return "", last[0].strip()
    return done.stdout, None


def parse_accelerators(text: str) -> tuple[Accelerator, ...]:
    """Accelerators from the lines of ``--query-gpu=name,memory.total,compute_cap,driver_version``.

    A line of another form is left out: the tool prints warnings between its data.
    """
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 3)]
        if len(parts) != 4 or not parts[0]:
            continue
        name, memory, capability, driver = parts
        if not (memory.isdigit() or _NO_VALUE.fullmatch(memory)):
            continue
        found.append(
            Accelerator(
                name=name,
                memory_bytes=int(memory) * _MIB if memory.isdigit() else None,
                compute_capability=_value(capability),
                driver=_value(driver),
            )
        )
    return tuple(found)


def parse_uses(text: str) -> tuple[AcceleratorUse, ...]:
    """Processes from the lines of ``--query-compute-apps=pid,process_name,used_memory``."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"\s*(\d+)\s*,\s*(.*?)\s*,\s*([^,]+?)\s*", line)
        if match is None:
            continue
        memory = match[3]
        found.append(
            AcceleratorUse(
                pid=int(match[1]), name=match[2], used_bytes=int(memory) * _MIB if memory.isdigit() else None
            )
        )
    return tuple(found)


def _value(text: str) -> str | None:
    return None if not text or _NO_VALUE.fullmatch(text) else text
