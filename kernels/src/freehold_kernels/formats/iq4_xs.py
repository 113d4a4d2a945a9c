"""What does an IQ4_XS block say? 256 weights in 136 bytes: 4-bit indices into 16 uneven levels.

Layout (bytes): d 0–1 (fp16) · scales_h 2–3 (uint16) · scales_l 4–7 · quants 8–135. Group g of 32: scale
code = low nibble from scales_l | two bits of scales_h at 2g, minus 32; the low nibbles of its 16
bytes are its first 16 weights. Value: d · scale · level.
Source: ggml ``block_iq4_xs``, ``kvalues_iq4nl``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, fp16_at, u16_at

__all__ = ["IQ4_LEVELS", "IQ4_XS"]

IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8)


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    low = ((blocks[:, 4:8, None] >> np.array([0, 4], np.uint8)) & 15).reshape(n, 8).astype(np.int32)
    high = ((u16_at(blocks, 2, 1) >> np.arange(0, 16, 2, dtype=np.uint32)) & 3).astype(np.int32)  # [n, 8]
    scale = fp16_at(blocks, 0) * ((low | (high << 4)) - 32).astype(np.float32)
    nibbles = (blocks[:, 8:].reshape(n, 8, 1, 16) >> np.array([[0], [4]], np.uint8)) & 15  # [n, 8, 2, 16]
    weights: F32Array = (scale[:, :, None] * IQ4_LEVELS[nibbles].astype(np.float32).reshape(n, 8, 32)).reshape(n, 256)
    return weights


IQ4_XS = BlockFormat(name="IQ4_XS", ggml_type=23, block_weights=256, block_bytes=136, dequantize_blocks=_dequantize)
