"""Which loaded kernel belongs to this device and these shapes?

Read first: ``load_kernel``. Compilation happens once per machine (disk cache), loading once per process.
Does not do: decide the defines; the operator modules do.
"""

from __future__ import annotations

from functools import cache

import torch

from freehold_kernels.cuda.cache import CubinCache
from freehold_kernels.cuda.driver import Function, load_function, shared_memory_limit
from freehold_kernels.cuda.nvrtc import compile_cubin, nvrtc_version
from freehold_kernels.cuda.source import read_source, source_key
from freehold_kernels.errors import DeviceError
from freehold_kernels.settings import cache_folder

__all__ = ["arch_of_device", "load_kernel", "num_sms", "shared_limit"]


@cache
def arch_of_device(device_idx: int) -> str:
    """Return the native target of a device, e.g. ``sm_90a``.

    Raises:
        DeviceError: The GPU is older than compute capability 9.0.
    """
    major, minor = torch.cuda.get_device_capability(device_idx)
    if major < 9:
        raise DeviceError(
            f"device {device_idx} has compute capability {major}.{minor}, the kernels need 9.0 or newer",
            fix="leave the released kernels in charge on this GPU",
        )
    return f"sm_{major}{minor}a"


@cache
def num_sms(device_idx: int) -> int:
    """Return the number of multiprocessors of a device."""
    return torch.cuda.get_device_properties(device_idx).multi_processor_count


@cache
def shared_limit(device_idx: int) -> int:
    """Return the bytes of shared memory one block may have on a device."""
    return shared_memory_limit(device_idx)


@cache
def load_kernel(
    kernel: str, device_idx: int, num_threads: int, shared_bytes: int, defines: tuple[tuple[str, int], ...]
) -> Function:
    """Compile (or find compiled), load and return one kernel for one device.

    Raises:
        CompileError: NVRTC is missing or refuses the source.
        DeviceError: The driver refuses the result.
    """
    arch, macros = arch_of_device(device_idx), dict(defines)
    key = source_key(kernel, arch, nvrtc_version(), macros)
    cubin = CubinCache(folder=cache_folder()).get(
        key, lambda: compile_cubin(read_source(kernel), f"{kernel}.cu", arch, macros)
    )
    with torch.cuda.device(device_idx):
        return load_function(cubin, kernel, num_threads=num_threads, shared_bytes=shared_bytes)
