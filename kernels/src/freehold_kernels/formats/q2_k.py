"""What does a Q2_K block say? 256 weights in 84 bytes: 2-bit quants, a 4-bit scale and minimum for each 16.

Layout (bytes): scales 0–15 · quants 16–79 · d 80–81 · dmin 82–83 (fp16). Byte j of the quants' half h
holds weights 128h + 32i + j in its bit pair i. Value: d · (scale & 15) · q − dmin · (scale >> 4).
Source: ggml ``block_q2_K``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, fp16_at

__all__ = ["Q2_K"]


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    scale = fp16_at(blocks, 80) * (blocks[:, :16] & 15).astype(np.float32)  # [n, 16]
    minimum = fp16_at(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    pairs = (blocks[:, 16:80].reshape(n, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8)) & 3  # [n, 2, 4, 32]
    quants = pairs.reshape(n, 16, 16).astype(np.float32)
    return (scale[:, :, None] * quants - minimum[:, :, None]).reshape(n, 256)


Q2_K = BlockFormat(name="Q2_K", ggml_type=10, block_weights=256, block_bytes=84, dequantize_blocks=_dequantize)
