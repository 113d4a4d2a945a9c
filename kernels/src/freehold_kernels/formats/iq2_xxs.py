"""What does an IQ2_XXS block say? 256 weights in 66 bytes, eight at a time from a codebook of 256.

Layout (bytes): d 0–1 (fp16) · 8 × (4 codebook indices, uint32) 2–65. In each uint32: four 7-bit sign
patterns from bit 0, a 4-bit scale code s on top. Value: d · (0.5 + s) · 0.25 · row · sign.
Source: ggml ``block_iq2_xxs``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, fp16_at, u32_at
from freehold_kernels.formats.codebooks import iq2_xxs_grid, sign_patterns

__all__ = ["IQ2_XXS"]


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    words = u32_at(blocks, 2, 16).reshape(n, 8, 2)
    index = np.ascontiguousarray(words[..., 0]).astype("<u4").view(np.uint8).reshape(n, 8, 4)
    signs = sign_patterns()[(words[..., 1, None] >> np.array([0, 7, 14, 21], np.uint32)) & 127]  # [n, 8, 4, 8]
    code = (words[..., 1] >> 28).astype(np.float32)  # [n, 8]
    scale = fp16_at(blocks, 0) * (np.float32(0.5) + code) * np.float32(0.25)
    rows = iq2_xxs_grid()[index].astype(np.float32)
    weights: F32Array = (scale[:, :, None, None] * rows * signs.astype(np.float32)).reshape(n, 256)
    return weights


IQ2_XXS = BlockFormat(name="IQ2_XXS", ggml_type=16, block_weights=256, block_bytes=66, dequantize_blocks=_dequantize)
