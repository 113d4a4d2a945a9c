"""How is machine code loaded and launched on the GPU that torch uses?

Through the driver library (libcuda) with ctypes: load a cubin, raise its shared-memory limit, launch on torch's
current stream. Launches are capturable in CUDA graphs.

Read first: ``Function.launch``.
Does not do: initialise the GPU; torch has done that when a tensor lives there.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from freehold_kernels.errors import DeviceError

__all__ = ["Function", "load_function", "shared_memory_limit"]

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, cuda.h
_SHARED_LIMIT = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, cuda.h
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE, cuda.h
_OVERLAP = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, cuda.h


class _Attribute(ctypes.Structure):  # CUlaunchAttribute: id, padding to 8, a 64-byte union
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):  # CUlaunchConfig
    _fields_ = (
        *[(n, ctypes.c_uint) for n in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")],
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    )


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            "the NVIDIA driver library was not found", why=str(error), fix="run on a machine with a GPU"
        ) from error


def _check(code: int, doing: str) -> None:
    if code:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        raise DeviceError(f"{doing} failed", why=f"CUDA error {code}: {(text.value or b'unknown').decode()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A kernel loaded on one device, with its block size and shared memory.

    Attributes:
        handle: The driver's CUfunction.
        module: The driver's CUmodule, kept so that it stays loaded.
        num_threads: Threads per block.
        shared_bytes: Dynamic shared memory per block.
    """

    handle: int
    module: int
    num_threads: int
    shared_bytes: int

    def launch(
        self, arguments: ctypes.Structure, *, num_blocks: int, stream: int, cooperative: bool, overlap: bool
    ) -> None:
        """Start the kernel with one structure as its only parameter.

        Args:
            arguments: Copied by the driver before this returns.
            num_blocks: Grid size.
            stream: The CUstream as an integer.
            overlap: The kernel may be prepared, and its weights asked for, while the one before it still runs.
            cooperative: All blocks must be resident together; the driver refuses a grid too large for that.

        Raises:
            DeviceError: The driver refused.
        """
        config = _Config(num_blocks, 1, 1, self.num_threads, 1, 1, self.shared_bytes, stream, None, 0)
        wanted = [number for number, is_on in ((_COOPERATIVE, cooperative), (_OVERLAP, overlap)) if is_on]
        attributes = (_Attribute * len(wanted))()
        for attribute, number in zip(attributes, wanted, strict=True):
            attribute.id, attribute.value[0] = number, 1
        if wanted:
            config.attributes = ctypes.cast(attributes, ctypes.POINTER(_Attribute))
            config.num_attributes = len(wanted)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        code = _library().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(self.handle), parameters, None)
        _check(code, f"starting {num_blocks} blocks of {self.num_threads} threads")


def shared_memory_limit(device_idx: int) -> int:
    """Return the bytes of shared memory one block may have: 232,448 on sm_90 and sm_100, 101,376 on sm_120.

    Raises:
        DeviceError: The driver does not know the device.
    """
    device, limit = ctypes.c_int(), ctypes.c_int()
    _check(_library().cuDeviceGet(ctypes.byref(device), ctypes.c_int(device_idx)), f"finding device {device_idx}")
    code = _library().cuDeviceGetAttribute(ctypes.byref(limit), ctypes.c_int(_SHARED_LIMIT), device)
    _check(code, f"asking device {device_idx} for its shared memory")
    return limit.value


def load_function(cubin: bytes, name: str, *, num_threads: int, shared_bytes: int) -> Function:
    """Load a cubin into the current CUDA context and look up one kernel.

    Raises:
        DeviceError: The driver refused the image, the name or the shared memory.
    """
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_library().cuModuleLoadData(ctypes.byref(module), cubin), f"loading {name}")
    _check(_library().cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"finding {name}")
    limit = ctypes.c_int(shared_bytes)
    code = _library().cuFuncSetAttribute(function, ctypes.c_int(_MAX_DYNAMIC_SHARED), limit)
    _check(code, f"giving {name} {shared_bytes} bytes of shared memory")
    return Function(
        handle=function.value or 0, module=module.value or 0, num_threads=num_threads, shared_bytes=shared_bytes
    )
