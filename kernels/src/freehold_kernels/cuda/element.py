"""Which element types do activations and outputs have, and what number stands for each in the sources?

Read first: ``check_rows``.
Does not do: convert anything.
"""

from __future__ import annotations

import torch

from freehold_kernels.errors import InputError

__all__ = ["DTYPE_NUMBER", "check_rows"]

DTYPE_NUMBER = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # DTYPE_* in common.cuh


def check_rows(x: torch.Tensor, num_columns: int) -> None:
    """Refuse activations that a kernel cannot read with 16-byte loads.

    Raises:
        InputError: Wrong dtype, shape or alignment.
    """
    if x.dtype not in DTYPE_NUMBER or x.dim() != 2 or x.shape[1] != num_columns or x.stride(1) != 1:
        raise InputError(
            f"activations are [tokens, {num_columns}] float, rows contiguous; got {x.dtype} {list(x.shape)}"
        )
    if x.stride(0) * x.element_size() % 16 or x.data_ptr() % 16:
        raise InputError("activation rows start at multiples of 16 bytes", fix="call .contiguous() on a fresh tensor")
