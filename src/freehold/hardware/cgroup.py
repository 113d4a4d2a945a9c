"""What limits a process on Linux beside the machine itself: memory and processor quotas of its control groups.

Containers, batch systems and service managers set them; a planner that only looks at the machine's memory is killed by
them. Version 1, version 2 and both at once are read, and every parent counts, because each may be tighter than its
children. Read :func:`read_memory_limits`, then :func:`read_cpu_quota`.

All paths are taken below ``root``, so that a test can lay out the files of another machine.

Does not do: the machine's own memory (``hardware/memory.py``), or changing a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["MemoryLimit", "read_cpu_quota", "read_memory_limits", "read_text"]

_NO_LIMIT_BYTES = 2**62
"""Version 1 writes the largest page-aligned number for "no limit"; nothing real comes near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """One group's memory limit.

    Args:
        limit_bytes: What its processes may use together.
        used_bytes: What they use, file cache that can be dropped at once not counted; None where it is not told.
        path: The file of the limit.
    """

    limit_bytes: int
    used_bytes: int | None
    path: str

    @property
    def name(self) -> str:
        """Name of the file alone; the group's own name belongs to this machine and goes into no record."""
        return PurePosixPath(self.path).name

    @property
    def free_bytes(self) -> int:
        """What is left, at least 0; the whole limit where the use is not told."""
        return max(0, self.limit_bytes - (self.used_bytes or 0))


def read_text(root: Path, path: str) -> str | None:
    """A file of the kernel, None where it does not exist or may not be read."""
    try:
        return (root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def read_memory_limits(root: Path) -> tuple[MemoryLimit, ...]:
    """Every memory limit that holds for this process, from its own group up to the root.

    Args:
        root: Where ``/proc`` and ``/sys`` are.

    Source: kernel documentation, admin-guide/cgroup-v2.rst (memory.max, memory.high, memory.stat) and
        admin-guide/cgroup-v1/memory.rst (hierarchical use, total_inactive_file).
    """
    limits = []
    for folder in _folders(root, "memory", is_v2=True):
        stat = _counters(read_text(root, f"{folder}/memory.stat"))
        used = _working_set(_number(read_text(root, f"{folder}/memory.current")), stat.get("inactive_file"))
        for name in ("memory.max", "memory.high"):
            limit = _number(read_text(root, f"{folder}/{name}"))
            if limit is not None:
                limits.append(MemoryLimit(limit_bytes=limit, used_bytes=used, path=f"{folder}/{name}"))
    for folder in _folders(root, "memory", is_v2=False):
        limit = _number(read_text(root, f"{folder}/memory.limit_in_bytes"))
        if limit is None or limit >= _NO_LIMIT_BYTES:
            continue
        stat = _counters(read_text(root, f"{folder}/memory.stat"))
        used = _working_set(
            _number(read_text(root, f"{folder}/memory.usage_in_bytes")), stat.get("total_inactive_file")
        )
        limits.append(MemoryLimit(limit_bytes=limit, used_bytes=used, path=f"{folder}/memory.limit_in_bytes"))
    return tuple(limits)


def read_cpu_quota(root: Path) -> float | None:
    """How many processors' worth of time the tightest group allows, None without a quota.

    Args:
        root: Where ``/proc`` and ``/sys`` are.
    """
    quotas = []
    for folder in _folders(root, "cpu", is_v2=True):
        parts = (read_text(root, f"{folder}/cpu.max") or "").split()
        if len(parts) == 2:
            quotas.append(_share(_number(parts[0]), _number(parts[1])))
    for folder in _folders(root, "cpu", is_v2=False):
        quota = _number(read_text(root, f"{folder}/cpu.cfs_quota_us"))
        quotas.append(_share(quota, _number(read_text(root, f"{folder}/cpu.cfs_period_us"))))
    return min((q for q in quotas if q is not None), default=None)


def _share(quota_us: int | None, period_us: int | None) -> float | None:
    if quota_us is None or not period_us or quota_us <= 0:
        return None
    return quota_us / period_us


def _number(text: str | None) -> int | None:
    """A whole number, None for ``max``, ``-1`` and anything else."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _counters(text: str | None) -> dict[str, int]:
    pairs = (line.split() for line in (text or "").splitlines())
    return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[1].isdigit()}


def _working_set(usage: int | None, inactive_file: int | None) -> int | None:
    return None if usage is None else max(0, usage - (inactive_file or 0))


def _folders(root: Path, controller: str, *, is_v2: bool) -> Iterator[str]:
    """The group's folder and those of its parents, the deepest first."""
    own = _own_group(root, controller, is_v2=is_v2)
    mount = _mount(root, controller, is_v2=is_v2)
    if own is None or mount is None:
        return
    point, mounted_group = mount
    group = PurePosixPath(own)
    inside = group.relative_to(mounted_group) if group.is_relative_to(mounted_group) else PurePosixPath()
    if ".." in inside.parts:
        inside = PurePosixPath()  # a group outside of this namespace: only the mount itself can be seen
    for part in (inside, *inside.parents) if inside.parts else (inside,):
        folder = str(PurePosixPath(point) / part)
        if (root / folder.lstrip("/")).is_dir():
            yield folder


def _own_group(root: Path, controller: str, *, is_v2: bool) -> str | None:
    for line in (read_text(root, "/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (is_v2 and number == "0" and not controllers) or (not is_v2 and controller in controllers.split(",")):
            return path or "/"
    return None


def _mount(root: Path, controller: str, *, is_v2: bool) -> tuple[str, str] | None:
    """Where the hierarchy is mounted, and which group is the top of that mount."""
    for line in (read_text(root, "/proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 5 or not right:
            continue
        if is_v2 and right[0] != "cgroup2":
            continue
        if not is_v2 and (right[0] != "cgroup" or controller not in right[-1].split(",")):
            continue
        return _unescape(left[4]), _unescape(left[3])
    return None


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
