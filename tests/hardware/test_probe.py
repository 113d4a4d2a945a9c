"""Probing: the tightest limit counts, unknown is a reason, and this very machine answers as other tools say."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from freehold.errors import PrerequisiteError
from freehold.hardware.memory import read_memory
from freehold.hardware.probe import free_disk, probe_facts, probe_state
from freehold.hardware.processor import count_cores, parse_cpu_list, read_processor, read_system
from freehold.records.node import NodeFacts
from freehold.world import Completed, LocalWorld

KIB, MIB, GIB = 2**10, 2**20, 2**30

MEMINFO = """\
MemTotal:       16384000 kB
MemFree:         1000000 kB
MemAvailable:    8192000 kB
Cached:          2000000 kB
SwapTotal:       4096000 kB
SwapFree:        3072000 kB
HugePages_Total:       0
"""


class ScriptedWorld(LocalWorld):
    """This machine, but commands answer from a table; a missing one does not exist."""

    def __init__(self, replies: Mapping[str, Completed]) -> None:
        super().__init__()
        self.replies = replies

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        if argv[0] not in self.replies:
            raise PrerequisiteError(f"cannot run `{argv[0]}`", why="no such file", fix="install it")
        return self.replies[argv[0]]


def answer(stdout: str, returncode: int = 0) -> Completed:
    return Completed(returncode=returncode, stdout=stdout, stderr="")


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# --- memory -----------------------------------------------------------------------------------------------------------


def test_free_memory_is_what_is_available_not_what_is_unused(tmp_path: Path) -> None:
    memory = read_memory(lay_out(tmp_path, {"/proc/meminfo": MEMINFO}))
    assert memory.total_bytes == 16_384_000 * KIB
    assert memory.free_bytes == 8_192_000 * KIB
    assert memory.swap_used_bytes == (4_096_000 - 3_072_000) * KIB
    assert memory.free_source == "MemAvailable in /proc/meminfo"


def test_an_old_kernel_counts_free_and_cached(tmp_path: Path) -> None:
    text = "\n".join(line for line in MEMINFO.splitlines() if "Available" not in line)
    memory = read_memory(lay_out(tmp_path, {"/proc/meminfo": text}))
    assert memory.free_bytes == (1_000_000 + 2_000_000) * KIB
    assert "no MemAvailable" in memory.free_source


def test_what_the_kernel_does_not_say_is_unknown(tmp_path: Path) -> None:
    memory = read_memory(lay_out(tmp_path, {"/proc/meminfo": "MemTotal: 1000 kB\nMemFree: x kB\n"}))
    assert (memory.free_bytes, memory.swap_used_bytes) == (None, None)


def test_a_container_limit_below_the_machine_counts(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "/proc/meminfo": MEMINFO,
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": "31 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "/sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
            "/sys/fs/cgroup/memory.current": f"{GIB}\n",
        },
    )
    memory = read_memory(root)
    assert (memory.total_bytes, memory.free_bytes) == (2 * GIB, GIB)
    assert memory.total_source == "memory.max of a control group"
    assert memory.free_source == "memory.max of a control group less what it uses"


def test_a_container_limit_above_the_machine_changes_nothing(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "/proc/meminfo": MEMINFO,
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": "31 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "/sys/fs/cgroup/memory.max": f"{1024 * GIB}\n",
            "/sys/fs/cgroup/memory.current": "0\n",
        },
    )
    assert read_memory(root).free_bytes == 8_192_000 * KIB


def test_a_system_without_meminfo_is_asked_through_psutil(tmp_path: Path) -> None:
    memory = read_memory(tmp_path)
    assert memory.total_bytes == psutil.virtual_memory().total
    assert memory.free_bytes == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_this_machine_has_no_more_memory_than_psutil_says() -> None:
    memory = read_memory()
    assert 0 < memory.total_bytes <= psutil.virtual_memory().total
    assert memory.free_bytes is not None
    assert 0 < memory.free_bytes <= memory.total_bytes


# --- processor --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("0-1,8,10-11\n", (0, 1, 8, 10, 11)), ("", ()), ("a", ()), ("3-", ())],
)
def test_cpu_lists_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == numbers


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 4)]
)
def test_cores_are_those_of_the_affinity_within_the_quota(tmp_path: Path, quota: str, cores: int) -> None:
    root = lay_out(
        tmp_path,
        {
            "/proc/self/status": "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2,7\n",
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": "31 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "/sys/fs/cgroup/cpu.max": quota,
        },
    )
    assert count_cores(root) == cores


def test_cores_of_a_system_without_proc(tmp_path: Path) -> None:
    assert count_cores(tmp_path) == (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells the affinity")
def test_cores_of_this_machine() -> None:
    assert 1 <= count_cores() <= len(os.sched_getaffinity(0))


def test_names_of_processors(tmp_path: Path) -> None:
    x86 = lay_out(tmp_path / "x86", {"/proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC   9654\n"})
    assert read_processor(ScriptedWorld({}), x86) == "AMD EPYC 9654"
    arm = lay_out(tmp_path / "arm", {"/proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd4f\n"})
    spark = answer("Architecture: aarch64\nModel name:          Cortex-X925\nModel name: Cortex-A725\nModel name: -\n")
    assert read_processor(ScriptedWorld({"lscpu": spark}), arm) == "Cortex-X925 + Cortex-A725"
    assert read_processor(ScriptedWorld({}), arm) == f"{platform.machine()} processor"
    tree = lay_out(tmp_path / "tree", {"/proc/cpuinfo": "x\n", "/proc/device-tree/model": "Raspberry Pi 5\0"})
    assert read_processor(ScriptedWorld({}), tree) == "Raspberry Pi 5"
    mac = tmp_path / "mac"
    assert read_processor(ScriptedWorld({"sysctl": answer("Apple M4 Max\n")}), mac) == "Apple M4 Max"
    assert read_processor(ScriptedWorld({"sysctl": answer("", 1)}), mac) == f"{platform.machine()} processor"


def test_names_of_systems(tmp_path: Path) -> None:
    files = {"/etc/os-release": 'NAME=x\nPRETTY_NAME="DGX OS 7"\n', "/proc/sys/kernel/osrelease": "6.11.0-nvidia\n"}
    assert read_system(lay_out(tmp_path / "a", files)) == "DGX OS 7, Linux 6.11.0-nvidia"
    assert read_system(lay_out(tmp_path / "b", {"/proc/sys/kernel/osrelease": "6.1\n"})) == "Linux 6.1"
    assert platform.system() in read_system(tmp_path / "c")


# --- the whole probe --------------------------------------------------------------------------------------------------


def test_facts_of_this_machine() -> None:
    facts = probe_facts(ScriptedWorld({}))
    assert facts.name == "local"
    assert facts.machine == platform.machine()
    assert facts.accelerators == (), "no nvidia-smi answers here"
    assert facts.python == platform.python_version()
    assert {"freehold", "psutil"} <= set(facts.libraries)
    assert facts.processor
    assert facts.system


def test_state_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freehold.hardware.bandwidth._KERNEL_S", 0.03)
    world = LocalWorld()
    facts = probe_facts(ScriptedWorld({}), "here")
    state = probe_state(world, folder=tmp_path / "not" / "yet", working_set_bytes=4 * MIB, facts=facts)
    assert state.free_memory_bytes.kind == "measured"
    assert state.free_memory_bytes.number == pytest.approx(psutil.virtual_memory().available, rel=0.3)
    assert state.free_disk_bytes.number == pytest.approx(psutil.disk_usage(str(tmp_path)).free, rel=0.05)
    assert state.read_bandwidth_bytes_per_s.kind == "measured"
    assert state.swap_used_bytes.unit == "bytes_memory"
    assert state.taken_at == state.free_memory_bytes.date


def test_what_a_machine_does_not_say_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freehold.hardware.bandwidth._KERNEL_S", 0.03)
    root = lay_out(tmp_path, {"/proc/meminfo": "MemTotal: 16384 kB\n"})
    facts = NodeFacts(
        name="x", system="s", machine="m", processor="p", num_cores=1, memory_bytes=1, python="3", libraries={}
    )
    state = probe_state(LocalWorld(), folder=tmp_path, working_set_bytes=MIB, facts=facts, root=root)
    assert state.free_memory_bytes.is_missing
    assert "does not say" in str(state.free_memory_bytes.reason)
    assert state.swap_used_bytes.is_missing


def test_the_disk_of_a_folder_that_does_not_exist_yet_is_that_of_its_nearest_parent(tmp_path: Path) -> None:
    assert free_disk(tmp_path / "a" / "b").number == pytest.approx(psutil.disk_usage(str(tmp_path)).free, rel=0.05)
