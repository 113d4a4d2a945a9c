"""What does an IQ3_XXS block say? 256 weights in 98 bytes, four at a time from a codebook of 256.

Layout (bytes): d 0–1 (fp16) · indices 2–65 · 8 × uint32 66–97: four 7-bit sign patterns from bit 0,
a 4-bit scale code s on top. Value: d · (0.5 + s) · 0.5 · row · sign.
Source: ggml ``block_iq3_xxs``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, fp16_at, u32_at
from freehold_kernels.formats.codebooks import iq3_xxs_grid, sign_patterns

__all__ = ["IQ3_XXS"]


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    words = u32_at(blocks, 66, 8)  # [n, 8]
    signs = sign_patterns()[(words[..., None] >> np.array([0, 7, 14, 21], np.uint32)) & 127]  # [n, 8, 4, 8]
    scale = fp16_at(blocks, 0) * (np.float32(0.5) + (words >> 28).astype(np.float32)) * np.float32(0.5)
    rows = iq3_xxs_grid()[blocks[:, 2:66]].astype(np.float32).reshape(n, 8, 4, 8)
    weights: F32Array = (scale[:, :, None, None] * rows * signs.astype(np.float32)).reshape(n, 256)
    return weights


IQ3_XXS = BlockFormat(name="IQ3_XXS", ggml_type=18, block_weights=256, block_bytes=98, dequantize_blocks=_dequantize)
