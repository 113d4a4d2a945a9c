"""What a machine is (facts) and how it is right now (state).

Does not do: probing (``hardware/``).
"""

from __future__ import annotations

from typing import Literal

from freehold.evidence import Evidence
from freehold.records.base import record

__all__ = ["Accelerator", "NodeFacts", "NodeState"]


@record
class Accelerator:
    """One accelerator as its driver reports it.

    Args:
        name: Product name.
        memory_bytes: Its memory in bytes, as the driver counts it.
        compute_capability: Major and minor version of its instruction set, such as ``9.0``.
        driver: Version of the driver.
    """

    name: str
    memory_bytes: int | None = None
    compute_capability: str | None = None
    driver: str | None = None


@record
class NodeFacts:
    """What a machine is; does not change while it is up.

    Args:
        name: Its name in the cluster; ``local`` for a cluster of one.
        system: Operating system and release.
        machine: Processor architecture, such as ``x86_64``.
        processor: Model name of the processor.
        num_cores: Cores this process may use.
        memory_bytes: Memory this process could use: the smaller of physical memory and a cgroup limit.
        accelerators: What ``nvidia-smi`` lists; empty without.
        python: Version of the interpreter.
        libraries: Versions of the packages that matter to the result.
    """

    schema: Literal["freehold.node/1"] = "freehold.node/1"
    name: str
    system: str
    machine: str
    processor: str
    num_cores: int
    memory_bytes: int
    accelerators: tuple[Accelerator, ...] = ()
    python: str
    libraries: dict[str, str]


@record
class NodeState:
    """How a machine is at one moment.

    Args:
        free_memory_bytes: What a new process could take without swapping.
        swap_used_bytes: Swap in use.
        free_disk_bytes: Free on the disk of the run folder and cache.
        read_bandwidth_bytes_per_s: Memory read bandwidth over a working set of the given size, all cores.
        taken_at: UTC ISO time.
    """

    schema: Literal["freehold.node_state/1"] = "freehold.node_state/1"
    free_memory_bytes: Evidence
    swap_used_bytes: Evidence
    free_disk_bytes: Evidence
    read_bandwidth_bytes_per_s: Evidence
    taken_at: str
