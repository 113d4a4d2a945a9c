"""Which processor it is and how many of its cores this process may use.

Does not do: speed; ``hardware/bandwidth.py`` measures what matters for decoding.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from freehold.errors import PrerequisiteError
from freehold.hardware.cgroup import read_cpu_quota, read_text
from freehold.world import World

__all__ = ["count_cores", "parse_cpu_list", "read_processor", "read_system"]

_TIMEOUT_S = 5.0


def count_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity, or less where a control group's quota says so; at least 1.

    A quota of 1.5 processors counts as one: a second thread would be stopped half of the time, and the others wait
    for it at every step.

    Args:
        root: Where ``/proc`` and ``/sys`` are.
    """
    status = read_text(root, "/proc/self/status") or ""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, flags=re.MULTILINE)
    allowed = len(parse_cpu_list(match[1])) if match else 0
    cores = allowed or os.cpu_count() or 1
    quota = read_cpu_quota(root)
    return max(1, cores if quota is None else min(cores, int(quota)))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The numbers in a kernel CPU list such as ``0-3,8``; empty for text that is none."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            return ()
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(numbers)


def read_processor(world: World, root: Path = Path("/")) -> str:
    """Model name of the processor, as far as the system gives one.

    Args:
        world: The outside, for the systems that answer a command.
        root: Where ``/proc`` is.
    """
    text = read_text(root, "/proc/cpuinfo")
    if text is not None:
        for key in ("model name", "Model", "Hardware", "cpu model"):
            match = re.search(rf"^{key}\s*:\s*(.+)$", text, flags=re.MULTILINE)
            if match:
                return " ".join(match[1].split())
        name = (read_text(root, "/proc/device-tree/model") or "").strip("\0 \n")
        if name:
            return name
        return _from_lscpu(world) or f"{platform.machine()} processor"
    return _first_line(world, "sysctl", "-n", "machdep.cpu.brand_string") or f"{platform.machine()} processor"


def _from_lscpu(world: World) -> str:
    """ARM kernels name parts by number; lscpu has the table."""
    try:
        done = world.run(["lscpu"], timeout_s=_TIMEOUT_S, env={"LC_ALL": "C"})
    except PrerequisiteError:
        return ""
    names = [n.strip() for n in re.findall(r"^Model name:\s*(.+)$", done.stdout, flags=re.MULTILINE)]
    return " + ".join(dict.fromkeys(n for n in names if n and n != "-"))


def _first_line(world: World, *argv: str) -> str:
    try:
        done = world.run(argv, timeout_s=_TIMEOUT_S)
    except PrerequisiteError:
        return ""
    return done.stdout.strip().splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else ""


def read_system(root: Path = Path("/")) -> str:
    """Operating system and kernel, such as ``Debian GNU/Linux 12 (bookworm), Linux 6.1.0``.

    Args:
        root: Where ``/proc`` and ``/etc`` are.
    """
    kernel = read_text(root, "/proc/sys/kernel/osrelease")
    if kernel is None:
        name, release = platform.system(), platform.release()
        version = platform.mac_ver()[0]
        return f"macOS {version}, {name} {release}" if version else f"{name} {release}"
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        match = re.search(r"^PRETTY_NAME=[\"']?(.*?)[\"']?\s*$", read_text(root, path) or "", flags=re.MULTILINE)
        if match:
            return f"{match[1]}, Linux {kernel.strip()}"
    return f"Linux {kernel.strip()}"
