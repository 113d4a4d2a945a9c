"""What does a Q8_0 block say? 32 weights: one fp16 scale, 32 signed bytes.

Layout (34 bytes): d 0–1 (fp16) · quants 2–33 (int8). Value: d · q.
Source: ggml ``block_q8_0``.
Does not do: quantize.
"""

from __future__ import annotations

import numpy as np

from freehold_kernels.formats.block import BlockFormat, F32Array, U8Array, fp16_at

__all__ = ["Q8_0"]


def _dequantize(blocks: U8Array) -> F32Array:
    quants = np.ascontiguousarray(blocks[:, 2:34]).view(np.int8).astype(np.float32)  # [n_blocks, 32]
    return quants * fp16_at(blocks, 0)


Q8_0 = BlockFormat(name="Q8_0", ggml_type=8, block_weights=32, block_bytes=34, dequantize_blocks=_dequantize)
