"""What does an MXFP4 block say? 32 weights in 17 bytes: one power-of-two scale, 32 e2m1 numbers.

Layout (bytes): e 0 (E8M0 exponent) · quants 1–16; the low nibbles are the first 16 weights.
Value: 2^(e − 128) · k with k the e2m1 value doubled; e below 2 gives float32 subnormals.
Source: ggml ``block_mxfp4``; OCP Microscaling Formats specification 1.0.
Does not do: quantize; e = 255 is a NaN in the specification, but ggml expands it as 2^127, and so do we.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array

__all__ = ["E2M1_DOUBLED", "MXFP4"]

E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.int8)


def _dequantize(blocks: U8Array) -> F32Array:
    n = len(blocks)
    e = blocks[:, :1].astype(np.uint32)
    bits = np.where(e < 2, np.uint32(0x00200000) << e, (np.maximum(e, 1) - 1) << np.uint32(23)).astype(np.uint32)
    nibbles = (blocks[:, 1:].reshape(n, 1, 16) >> np.array([[0], [4]], np.uint8)) & 15  # [n, 2, 16]
    weights: F32Array = bits.view(np.float32) * E2M1_DOUBLED[nibbles].reshape(n, 32).astype(np.float32)
    return weights


MXFP4 = BlockFormat(name="MXFP4", ggml_type=39, block_weights=32, block_bytes=17, dequantize_blocks=_dequantize)
