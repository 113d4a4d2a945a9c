"""What does an IQ1_S block say? 256 weights in 50 bytes, eight at a time from a codebook of 2048.

Layout (bytes): d 0–1 (fp16) · qs 2–33 · qh 34–49 (8 × uint16).
Group g of 32 weights: four codebook rows, index = qs[4g+l] | ((qh[g] >> 3l) & 7) << 8; scale code
s = (qh[g] >> 12) & 7; shift δ = +1/8, or −1/8 when bit 15 of qh[g] is set.
Value: d · (2s + 1) · (row + δ).
Source: ggml ``block_iq1_s``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, fp16_at, u16_at
from freehold_kernels.formats.codebooks import iq1_grid

__all__ = ["IQ1_S"]


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    high = u16_at(blocks, 34, 8)  # [n, 8]
    low = blocks[:, 2:34].reshape(n, 8, 4).astype(np.uint32)
    index = low | (((high[:, :, None] >> np.array([0, 3, 6, 9], np.uint32)) & 7) << 8)  # [n, 8, 4]
    scale = fp16_at(blocks, 0) * (2 * ((high >> 12) & 7) + 1).astype(np.float32)  # [n, 8]
    shift = np.where(high & 0x8000, np.float32(-0.125), np.float32(0.125))
    rows = iq1_grid()[index].astype(np.float32)  # [n, 8, 4, 8]
    weights: F32Array = (scale[:, :, None, None] * (rows + shift[:, :, None, None])).reshape(n, 256)
    return weights


IQ1_S = BlockFormat(name="IQ1_S", ggml_type=19, block_weights=256, block_bytes=50, dequantize_blocks=_dequantize)
