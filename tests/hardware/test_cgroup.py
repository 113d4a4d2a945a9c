"""Limits of control groups are found wherever a container runtime or service manager puts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from freehold.hardware.cgroup import MemoryLimit, read_cpu_quota, read_memory_limits

MIB = 2**20
V2_MOUNT = "31 25 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "35 31 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "32 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
)


def lay_out(root: Path, files: dict[str, str]) -> Path:
    """Write the files of another machine below a folder."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def limits(root: Path) -> list[tuple[int, int | None]]:
    return [(limit.limit_bytes, limit.used_bytes) for limit in read_memory_limits(root)]


def test_a_machine_without_groups_has_no_limit(tmp_path: Path) -> None:
    assert read_memory_limits(tmp_path) == ()
    assert read_cpu_quota(tmp_path) is None


def test_version_2_every_parent_counts_and_file_cache_does_not(tmp_path: Path) -> None:
    group = "/sys/fs/cgroup/user.slice/app.service"
    root = lay_out(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/user.slice/app.service\n",
            "/proc/self/mountinfo": V2_MOUNT,
            f"{group}/memory.max": "max\n",
            f"{group}/memory.high": f"{900 * MIB}\n",
            f"{group}/memory.current": f"{300 * MIB}\n",
            f"{group}/memory.stat": f"anon {200 * MIB}\ninactive_file {100 * MIB}\nactive_file 5\n",
            "/sys/fs/cgroup/user.slice/memory.max": f"{800 * MIB}\n",
            "/sys/fs/cgroup/user.slice/memory.current": f"{700 * MIB}\n",
            f"{group}/cpu.max": "150000 100000\n",
            "/sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
        },
    )
    assert limits(root) == [(900 * MIB, 200 * MIB), (800 * MIB, 700 * MIB)]
    assert [limit.free_bytes for limit in read_memory_limits(root)] == [700 * MIB, 100 * MIB]
    assert read_memory_limits(root)[1].path == "/sys/fs/cgroup/user.slice/memory.max"
    assert read_cpu_quota(root) == 1.5


def test_version_1_its_largest_number_is_no_limit(tmp_path: Path) -> None:
    memory = "/sys/fs/cgroup/memory"
    root = lay_out(
        tmp_path,
        {
            "/proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n",
            "/proc/self/mountinfo": V1_MOUNTS,
            f"{memory}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{memory}/docker/memory.limit_in_bytes": f"{4096 * MIB}\n",
            f"{memory}/docker/memory.usage_in_bytes": f"{1000 * MIB}\n",
            f"{memory}/docker/memory.stat": f"inactive_file 1\ntotal_inactive_file {400 * MIB}\n",
            f"{memory}/docker/abc/memory.limit_in_bytes": f"{2048 * MIB}\n",
            f"{memory}/docker/abc/memory.usage_in_bytes": f"{100 * MIB}\n",
            "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us": "300000\n",
            "/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us": "100000\n",
        },
    )
    assert limits(root) == [(2048 * MIB, 100 * MIB), (4096 * MIB, 600 * MIB)]
    assert read_cpu_quota(root) == 3.0


def test_both_versions_at_once_are_both_read(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "/proc/self/cgroup": "4:memory:/a\n0::/b\n",
            "/proc/self/mountinfo": V1_MOUNTS + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{512 * MIB}\n",
            "/sys/fs/cgroup/unified/b/memory.max": f"{256 * MIB}\n",
        },
    )
    assert limits(root) == [(256 * MIB, None), (512 * MIB, None)]


@pytest.mark.parametrize(
    ("own", "mounted"),
    [("/docker/abc", "/docker/abc"), ("/docker/abc", "/"), ("/", "/"), ("/../../other", "/")],
    ids=["mount shows the own group", "group folder is not visible", "namespace", "outside of the namespace"],
)
def test_a_container_that_only_sees_its_own_group(tmp_path: Path, own: str, mounted: str) -> None:
    root = lay_out(
        tmp_path,
        {
            "/proc/self/cgroup": f"0::{own}\n",
            "/proc/self/mountinfo": V2_MOUNT.replace(" / /sys", f" {mounted} /sys"),
            "/sys/fs/cgroup/memory.max": f"{64 * MIB}\n",
            "/sys/fs/cgroup/memory.current": f"{80 * MIB}\n",
        },
    )
    assert limits(root) == [(64 * MIB, 80 * MIB)]
    assert read_memory_limits(root)[0].free_bytes == 0, "never negative"


def test_a_mount_point_with_a_space_is_unescaped(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": V2_MOUNT.replace("/sys/fs/cgroup", "/sys/my\\040groups"),
            "/sys/my groups/memory.max": "1048576\n",
        },
    )
    assert limits(root) == [(MIB, None)]


@pytest.mark.parametrize("text", ["", "max", "-1", "12x", "²", "nan"])
def test_what_is_no_number_is_no_limit(tmp_path: Path, text: str) -> None:
    root = lay_out(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/\n\nnonsense\n",
            "/proc/self/mountinfo": "nonsense\n" + V2_MOUNT,
            "/sys/fs/cgroup/memory.max": text,
            "/sys/fs/cgroup/cpu.max": f"{text} 100000",
            "/sys/fs/cgroup/memory.stat": "inactive_file x\nodd line here\n",
        },
    )
    assert read_memory_limits(root) == ()
    assert read_cpu_quota(root) is None


def test_a_limit_whose_use_is_not_told_counts_whole() -> None:
    assert MemoryLimit(limit_bytes=5, used_bytes=None, path="/x").free_bytes == 5
