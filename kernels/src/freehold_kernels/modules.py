"""How does a layer own its packed weights and the workspace of its kernel?

Read first: ``RoutedExpertsIQ1S`` and ``LinearQ8``. Both are graph safe: the number of launches depends on the
shapes alone, nothing is copied to the host, and the workspace belongs to the layer.

Does not do: decide whether our kernel is the right one (``dispatch``). One layer object must not run on two streams
at once.
"""

from __future__ import annotations

import torch

from freehold_kernels.cuda.kernel import num_sms
from freehold_kernels.cuda.linear import linear_q8_0
from freehold_kernels.cuda.moe import MAX_PAIRS, routed_experts_iq1_s
from freehold_kernels.errors import InputError
from freehold_kernels.layout import PackedIQ1S, PackedQ8, pack_gate_up_iq1_s, pack_iq1_s, pack_q8_0
from freehold_kernels.reference.activation import Activation

__all__ = ["LinearQ8", "RoutedExpertsIQ1S"]


def _finish_packing(device: torch.device) -> None:
    # a kernel may ask for its weights while the one before it still runs: none may still be writing them
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class RoutedExpertsIQ1S:
    """The routed experts of one layer, with IQ1_S weights."""

    def __init__(self, gate_up: torch.Tensor, down: torch.Tensor, activation: Activation) -> None:
        """Pack the weights of a rank.

        Args:
            gate_up: ``[experts, 2 · width, bytes of K]`` uint8, gate rows first.
            down: ``[experts, N, bytes of width]`` uint8; its columns are padded to whole blocks of 256.
            activation: How gate and up are joined.

        Raises:
            InputError: Shapes do not belong together.
        """
        self.width = gate_up.shape[1] // 2
        blocks2 = -(-self.width // 256)
        if down.shape[0] != gate_up.shape[0] or down.shape[2] != 50 * blocks2:
            raise InputError(
                f"gate and up {list(gate_up.shape)} and down {list(down.shape)} do not belong together",
                why=f"an expert width of {self.width} needs {50 * blocks2} bytes per row of down",
            )
        self.gate_up: PackedIQ1S = pack_gate_up_iq1_s(gate_up)
        self.down: PackedIQ1S = pack_iq1_s(down)
        self.activation = activation
        self.hidden = torch.zeros(MAX_PAIRS, blocks2 * 256, dtype=torch.float32, device=gate_up.device)
        self.barrier = torch.zeros(1, dtype=torch.int32, device=gate_up.device)
        _finish_packing(gate_up.device)

    def __call__(
        self, x: torch.Tensor, expert_ids: torch.Tensor, expert_weights: torch.Tensor, *, split: bool = False
    ) -> torch.Tensor:
        """Return ``reference.moe.routed_experts`` in x's dtype; ``split`` uses two launches instead of one."""
        situ = self.activation.kind == "situ"
        result: torch.Tensor = routed_experts_iq1_s(
            x,
            self.gate_up.words,
            self.gate_up.scales,
            self.down.words,
            self.down.scales,
            self.hidden,
            self.barrier,
            expert_ids,
            expert_weights,
            self.width,
            self.down.num_rows,
            self.activation.beta if situ else 0.0,
            (self.activation.linear_beta or 0.0) if situ else 0.0,
            split,
        )
        return result


class LinearQ8:
    """A dense layer without bias, with Q8_0 weights."""

    def __init__(self, weight: torch.Tensor) -> None:
        """Pack ``weight``, ``[rows, bytes of K]`` uint8."""
        self.packed: PackedQ8 = pack_q8_0(weight)
        device = weight.device
        num_blocks = num_sms(device.index) if device.type == "cuda" else 1
        self.parts = torch.zeros(num_blocks, 2, 8, 16, dtype=torch.float32, device=device)
        self.counters = torch.zeros(self.packed.quants.shape[0], dtype=torch.int32, device=device)
        _finish_packing(device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``reference.linear.linear`` in x's dtype."""
        p = self.packed
        result: torch.Tensor = linear_q8_0(x, p.quants, p.scales, self.parts, self.counters, p.num_rows, p.num_columns)
        return result
