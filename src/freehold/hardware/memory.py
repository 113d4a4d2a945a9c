"""How much memory this process can really take: the machine's, or less where a control group says so.

Does not do: asking what is enough (``plan/``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from freehold.hardware.cgroup import read_memory_limits, read_text

__all__ = ["MemoryState", "read_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """Memory as the kernel reports it at one moment.

    Args:
        total_bytes: What this process could use at most.
        free_bytes: What it could take now without swapping; None where nobody says.
        swap_used_bytes: Swap in use; None where nobody says.
        total_source: Where the total comes from.
        free_source: Where the free amount comes from.
    """

    total_bytes: int
    free_bytes: int | None
    swap_used_bytes: int | None
    total_source: str
    free_source: str


def read_memory(root: Path = Path("/")) -> MemoryState:
    """Memory of this machine and the limits on this process; the smallest of them counts.

    Args:
        root: Where ``/proc`` and ``/sys`` are. Without a ``/proc/meminfo`` there, as on macOS, psutil is asked.

    Source: proc_meminfo(5): ``MemAvailable`` is what a new process can take without swapping, file cache included.
    """
    fields = _meminfo(read_text(root, "/proc/meminfo"))
    if "MemTotal" not in fields:
        return _from_psutil()
    free = fields.get("MemAvailable")
    free_source = "MemAvailable in /proc/meminfo"
    if free is None and "MemFree" in fields:
        free = fields["MemFree"] + fields.get("Cached", 0)
        free_source = "MemFree + Cached in /proc/meminfo (no MemAvailable)"
    swap = fields["SwapTotal"] - fields["SwapFree"] if {"SwapTotal", "SwapFree"} <= set(fields) else None
    total, total_source = fields["MemTotal"], "MemTotal in /proc/meminfo"
    for limit in read_memory_limits(root):
        if limit.limit_bytes < total:
            total, total_source = limit.limit_bytes, f"{limit.name} of a control group"
        if free is not None and limit.free_bytes < free:
            free, free_source = limit.free_bytes, f"{limit.name} of a control group less what it uses"
    return MemoryState(
        total_bytes=total,
        free_bytes=free,
        swap_used_bytes=swap,
        total_source=total_source,
        free_source=free_source,
    )


def _meminfo(text: str | None) -> dict[str, int]:
    fields = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if parts and parts[0].isdigit():
            fields[name] = int(parts[0]) * (1024 if parts[1:] == ["kB"] else 1)
    return fields


def _from_psutil() -> MemoryState:
    import psutil

    memory = psutil.virtual_memory()
    return MemoryState(
        total_bytes=memory.total,
        free_bytes=memory.available,
        swap_used_bytes=psutil.swap_memory().used,
        total_source="psutil.virtual_memory().total",
        free_source="psutil.virtual_memory().available",
    )
