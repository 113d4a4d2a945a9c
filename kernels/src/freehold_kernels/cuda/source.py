"""What is the text of a kernel, and what stands for that text in a cache key?

Read first: ``read_source``. NVRTC gets one text: the shared parts, then the kernel.
Does not do: compile.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

__all__ = ["KERNELS", "read_source", "source_key"]

# kernel → the files that make its source, in order
KERNELS = {
    "iq1_s_moe": ("common.cuh", "digits.cuh", "iq1_s_decode.cuh", "iq1_s_moe.cu"),
    "q8_0_linear": ("common.cuh", "digits.cuh", "q8_0_linear.cu"),
}


@cache
def read_source(kernel: str) -> str:
    """Return the whole text of one kernel, ready for NVRTC."""
    folder = files("freehold_kernels.cuda")
    return "".join(folder.joinpath(n).read_text("utf-8") for n in KERNELS[kernel])


def source_key(kernel: str, arch: str, compiler: str, defines: dict[str, int]) -> str:
    """Return a name that changes with anything that changes the machine code."""
    parts = [read_source(kernel), arch, compiler, repr(sorted(defines.items()))]
    return f"{kernel}-{arch}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}"
