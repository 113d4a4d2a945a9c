"""What does an IQ1_M block say? 256 weights in 56 bytes: IQ1's codebook with a scale for each 16 weights.

Layout (bytes): qs 0–31 · qh 32–47 · scales 48–55 (4 × uint16).
Each half byte of qh serves one codebook row: bits 0–2 extend the index, bit 3 makes the shift −1/8.
The four top nibbles of the scale words form d (fp16, lowest nibble first); their twelve low bits
hold four 3-bit scale codes s each. Value: d · (2s + 1) · (row + δ).
Source: ggml ``block_iq1_m``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, u16_at
from freehold_kernels.formats.codebooks import iq1_grid

__all__ = ["IQ1_M"]


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    words = u16_at(blocks, 48, 4)  # [n, 4]
    bits = ((words >> 12) << np.array([0, 4, 8, 12], np.uint32)).sum(axis=1).astype(np.uint16)
    d = bits.view(np.float16).astype(np.float32)  # [n]
    codes = ((words[:, :, None] >> np.array([0, 3, 6, 9], np.uint32)) & 7).reshape(n, 16)
    scale = d[:, None] * (2 * codes + 1).astype(np.float32)  # [n, 16]
    half = ((blocks[:, 32:48, None] >> np.array([0, 4], np.uint8)) & 15).reshape(n, 32).astype(np.uint32)
    index = blocks[:, :32].astype(np.uint32) | ((half & 7) << 8)
    shift = np.where(half & 8, np.float32(-0.125), np.float32(0.125))  # [n, 32]
    rows = iq1_grid()[index].astype(np.float32) + shift[:, :, None]  # [n, 32, 8]
    weights: F32Array = (scale[:, :, None, None] * rows.reshape(n, 16, 2, 8)).reshape(n, 256)
    return weights


IQ1_M = BlockFormat(name="IQ1_M", ggml_type=29, block_weights=256, block_bytes=56, dequantize_blocks=_dequantize)
