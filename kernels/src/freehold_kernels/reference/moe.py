"""What do the routed experts of a mixture-of-experts layer compute?

Read first: ``routed_experts``.
Does not do: route; expert ids and weights are given.
"""

from __future__ import annotations

import torch

from freehold_kernels.formats import BlockFormat
from freehold_kernels.reference.activation import Activation, activate
from freehold_kernels.reference.linear import linear

__all__ = ["routed_experts"]


def routed_experts(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    block_format: BlockFormat,
    activation: Activation,
) -> torch.Tensor:
    """Weighted sum over each token's experts of down(activate(gate(x), up(x))), in float64.

    Ids outside 0 … experts − 1 (an expert of another rank is −1) add nothing.

    Shapes:
        x: [tokens, K]; gate_up: [experts, 2 · width, bytes of K] uint8, gate rows first;
        down: [experts, N, bytes of width] uint8; expert_ids, expert_weights: [tokens, top_k];
        returns: [tokens, N] float64, on the CPU.
    """
    width = gate_up.shape[1] // 2
    out = torch.zeros(x.shape[0], down.shape[1], dtype=torch.float64)
    for token, (ids, weights) in enumerate(zip(expert_ids.tolist(), expert_weights.tolist(), strict=True)):
        for expert, weight in zip(ids, weights, strict=True):
            if not 0 <= expert < gate_up.shape[0]:
                continue
            both = linear(x[token : token + 1], gate_up[expert], block_format)
            hidden = activate(both[:, :width], both[:, width:], activation)
            out[token] += weight * linear(hidden, down[expert], block_format)[0]
    return out
