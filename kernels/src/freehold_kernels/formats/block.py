"""What is a block format: how many weights, how many bytes, how is it expanded?

Read first: ``BlockFormat``.
Does not do: hold any format; each has a module of its own beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BlockFormat", "F32Array", "U8Array", "fp16_at", "u16_at", "u32_at"]

U8Array = npt.NDArray[np.uint8]
F32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """A quantization type: name, ggml number, block geometry and its expansion to float32.

    Attributes:
        name: ggml's name, e.g. ``IQ1_S``.
        ggml_type: ggml's number for the type.
        block_weights: Weights in one block.
        block_bytes: Bytes of one block.
        dequantize_blocks: ``[n_blocks, block_bytes]`` uint8 → ``[n_blocks, block_weights]`` float32.
    """

    name: str
    ggml_type: int
    block_weights: int
    block_bytes: int
    dequantize_blocks: Callable[[U8Array], F32Array]

    @property
    def bits_per_weight(self) -> float:
        """Bits per weight, scales included."""
        return 8 * self.block_bytes / self.block_weights

    def row_bytes(self, num_weights: int) -> int:
        """Bytes of one row of ``num_weights`` weights (a multiple of ``block_weights``)."""
        if num_weights % self.block_weights:
            raise ValueError(f"{self.name} rows are multiples of {self.block_weights} weights, got {num_weights}")
        return num_weights // self.block_weights * self.block_bytes

    def dequantize(self, rows: U8Array) -> F32Array:
        """Expand packed rows to float32.

        Shapes:
            rows: [..., row_bytes] uint8; returns: [..., weights] float32.
        """
        if rows.dtype != np.uint8 or rows.shape[-1] % self.block_bytes:
            raise ValueError(f"{self.name} rows are uint8, a multiple of {self.block_bytes} bytes; got {rows.shape}")
        blocks = np.ascontiguousarray(rows).reshape(-1, self.block_bytes)
        # NaN and Inf scales are legal input; their products are the expected result, not a fault.
        with np.errstate(invalid="ignore", over="ignore"):
            out = self.dequantize_blocks(blocks)
        return out.reshape(*rows.shape[:-1], rows.shape[-1] // self.block_bytes * self.block_weights)


def fp16_at(blocks: U8Array, offset: int, count: int = 1) -> F32Array:
    """Read ``count`` little-endian fp16 values per block as float32, ``[n_blocks, count]``."""
    raw = np.ascontiguousarray(blocks[:, offset : offset + 2 * count])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return raw.view("<f2").astype(np.float32)


def u16_at(blocks: U8Array, offset: int, count: int) -> npt.NDArray[np.uint32]:
    """Read ``count`` little-endian uint16 values per block as uint32, ``[n_blocks, count]``."""
    return np.ascontiguousarray(blocks[:, offset : offset + 2 * count]).view("<u2").astype(np.uint32)


def u32_at(blocks: U8Array, offset: int, count: int) -> npt.NDArray[np.uint32]:
    """Read ``count`` little-endian uint32 values per block, ``[n_blocks, count]``."""
    return np.ascontiguousarray(blocks[:, offset : offset + 4 * count]).view("<u4").astype(np.uint32)
