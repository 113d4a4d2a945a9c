"""Asks a machine what it is and how it is right now.

Read :func:`probe_facts` (does not change while it is up), then :func:`probe_state` (at one moment).

Does not do: judging; ``plan/`` and ``preflight/`` do.
"""

from __future__ import annotations

import platform
from pathlib import Path

from freehold.evidence import Evidence
from freehold.hardware.bandwidth import measure_read_bandwidth
from freehold.hardware.memory import read_memory
from freehold.hardware.nvidia import read_accelerators
from freehold.hardware.processor import count_cores, read_processor, read_system
from freehold.records.node import NodeFacts, NodeState
from freehold.world import World, utc_text

__all__ = ["LIBRARIES", "free_disk", "probe_facts", "probe_state"]

LIBRARIES = ("freehold", "xllamacpp", "vllm", "httpx", "psutil", "pydantic", "pyyaml")
"""Distributions whose version can change a result; those that are installed are recorded."""


def probe_facts(world: World, name: str = "local", *, root: Path = Path("/")) -> NodeFacts:
    """What this machine is.

    Args:
        world: The outside.
        name: Its name in the cluster.
        root: Where ``/proc``, ``/sys`` and ``/etc`` are.
    """
    return NodeFacts(
        name=name,
        system=read_system(root),
        machine=platform.machine(),
        processor=read_processor(world, root),
        num_cores=count_cores(root),
        memory_bytes=read_memory(root).total_bytes,
        accelerators=read_accelerators(world).accelerators,
        python=platform.python_version(),
        libraries=_libraries(),
    )


def probe_state(
    world: World, *, folder: Path, working_set_bytes: int, facts: NodeFacts, root: Path = Path("/")
) -> NodeState:
    """How this machine is at this moment; measures memory bandwidth for about a second.

    Args:
        world: The outside.
        folder: Folder whose disk matters, such as the run folder; it need not exist yet.
        working_set_bytes: What one decode step reads.
        facts: What the machine is.
        root: Where ``/proc`` and ``/sys`` are.
    """
    now = utc_text(world.now())
    memory = read_memory(root)
    if memory.free_bytes is None:
        free = Evidence.not_measured("the system does not say how much memory is free", "bytes_memory")
    else:
        free = Evidence.measured(memory.free_bytes, "bytes_memory", source=memory.free_source, date=now)
    if memory.swap_used_bytes is None:
        swap = Evidence.not_measured("the system does not say how much swap is used", "bytes_memory")
    else:
        swap = Evidence.measured(
            memory.swap_used_bytes, "bytes_memory", source="swap in use, by the system's own count", date=now
        )
    return NodeState(
        free_memory_bytes=free,
        swap_used_bytes=swap,
        free_disk_bytes=free_disk(folder, date=now),
        read_bandwidth_bytes_per_s=measure_read_bandwidth(
            working_set_bytes, num_threads=facts.num_cores, free_memory_bytes=memory.free_bytes, date=now
        ),
        taken_at=now,
    )


def free_disk(folder: Path, *, date: str | None = None) -> Evidence:
    """What an ordinary user can still write to the disk of a folder; the nearest parent that exists is asked.

    Args:
        folder: The folder.
        date: When, for the record.
    """
    import shutil

    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        return Evidence.not_measured(f"the disk does not answer: {error.strerror or error}", "bytes_disk")
    return Evidence.measured(free_bytes, "bytes_disk", source="free space of the file system", date=date)


def _libraries() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
