"""How is CUDA C++ compiled without a compiler installed?

By NVRTC, the compiler library that CUDA builds of torch bring along, called through ctypes. The sources need no
headers, so the library alone is enough, and no GPU is needed to compile.

Read first: ``compile_cubin``.
Does not do: cache results or load them.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from freehold_kernels.errors import CompileError

__all__ = ["ARCHITECTURES", "compile_cubin", "nvrtc_version"]

# Arch-native targets only. sm_121 (GB10) is compiled in the tests and not yet validated on hardware.
ARCHITECTURES = ("sm_90a", "sm_100a", "sm_120a", "sm_121a")


@cache
def _library() -> ctypes.CDLL:
    names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    folders = [Path(p) / "nvidia" for p in sys.path if p and (Path(p) / "nvidia").is_dir()]
    found = [p for f in folders for n in names for p in sorted(f.glob(f"*/lib/{n}"))]
    for path in found:
        try:
            # NVRTC opens its builtins by bare name, which finds them only when they are loaded already
            for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompileError(
        "the CUDA run-time compiler (NVRTC) was not found",
        why=f"none of {', '.join(names)} is installed beside torch or on the library path",
        fix="pip install 'nvidia-cuda-nvrtc>=13.0,<13.1'",
    )


def _check(code: int, doing: str, log: str = "") -> None:
    if code:
        text = _library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise CompileError(f"{doing} failed: {text(code).decode()}", why=log.strip())


def nvrtc_version() -> str:
    """Return the library's version, e.g. ``13.0``."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "asking NVRTC for its version")
    return f"{major.value}.{minor.value}"


def compile_cubin(source: str, name: str, arch: str, defines: dict[str, int] | None = None) -> bytes:
    """Compile a self-contained CUDA C++ source to machine code of one architecture.

    Args:
        source: The text; it includes nothing.
        name: File name shown in messages.
        arch: Target, e.g. ``sm_90a``.
        defines: Macros set before the first line.

    Returns:
        The cubin.

    Raises:
        CompileError: NVRTC is missing or refuses the source; ``why`` holds its log.
    """
    lib = _library()
    program = ctypes.c_void_p()
    create = lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), ctypes.c_int(0), None, None)
    _check(create, f"reading {name}")
    try:
        options = [f"--gpu-architecture={arch}", "--std=c++17", "--extra-device-vectorization"]
        options += [f"-D{k}={v}" for k, v in (defines or {}).items()]
        argv = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        code = lib.nvrtcCompileProgram(program, ctypes.c_int(len(options)), argv)
        size = ctypes.c_size_t()
        _check(lib.nvrtcGetProgramLogSize(program, ctypes.byref(size)), "reading the compiler's log")
        log = ctypes.create_string_buffer(size.value)
        _check(lib.nvrtcGetProgramLog(program, log), "reading the compiler's log")
        _check(code, f"compiling {name} for {arch}", log.value.decode(errors="replace"))
        _check(lib.nvrtcGetCUBINSize(program, ctypes.byref(size)), f"reading the machine code of {name}")
        cubin = ctypes.create_string_buffer(size.value)
        _check(lib.nvrtcGetCUBIN(program, cubin), f"reading the machine code of {name}")
        return cubin.raw
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))
