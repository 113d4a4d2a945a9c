"""What is the product of activations with a quantized matrix?

Read first: ``linear``.
Does not do: run fast.
"""

from __future__ import annotations

import torch

from freehold_kernels.formats import BlockFormat

__all__ = ["linear"]


def linear(x: torch.Tensor, weight: torch.Tensor, block_format: BlockFormat) -> torch.Tensor:
    """Multiply in float64 with the weights exactly as the file states them.

    Shapes:
        x: [tokens, K], any float dtype.
        weight: [N, row_bytes] uint8, packed as in the file.
        returns: [tokens, N] float64, on the CPU.
    """
    expanded = torch.from_numpy(block_format.dequantize(weight.cpu().numpy())).double()
    return x.detach().cpu().double() @ expanded.T
