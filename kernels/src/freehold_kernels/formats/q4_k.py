"""What does a Q4_K block say? 256 weights in 144 bytes: 4-bit quants, a 6-bit scale and minimum for each 32.

Layout (bytes): d 0–1 · dmin 2–3 (fp16) · scales 4–15 · quants 16–143. With a, b, c the three groups of four
scale bytes: scales 0–3 = a & 63, minima 0–3 = b & 63, scales 4–7 = (c & 15) | (a >> 6) << 4, minima 4–7 =
(c >> 4) | (b >> 6) << 4. Each 32 quant bytes hold two groups, low nibbles first.
Value: d · scale · q − dmin · minimum.
Source: ggml ``block_q4_K``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, fp16_at

__all__ = ["Q4_K"]


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    a, b, c = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale_codes = np.concatenate([a & 63, (c & 15) | ((a >> 6) << 4)], axis=1)  # [n, 8]
    min_codes = np.concatenate([b & 63, (c >> 4) | ((b >> 6) << 4)], axis=1)
    scale = fp16_at(blocks, 0) * scale_codes.astype(np.float32)
    minimum = fp16_at(blocks, 2) * min_codes.astype(np.float32)
    nibbles = (blocks[:, 16:].reshape(n, 4, 1, 32) >> np.array([[0], [4]], np.uint8)) & 15  # [n, 4, 2, 32]
    return (scale[:, :, None] * nibbles.reshape(n, 8, 32).astype(np.float32) - minimum[:, :, None]).reshape(n, 256)


Q4_K = BlockFormat(name="Q4_K", ggml_type=12, block_weights=256, block_bytes=144, dequantize_blocks=_dequantize)
