"""How are the gate and up projections joined?

Read first: ``activate``.
Does not do: quantize.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

__all__ = ["Activation", "activate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A gated activation.

    Attributes:
        kind: ``silu``: gate · σ(gate) · up. ``situ``: β · tanh(gate / β) · σ(gate) · up', with
            up' = β₂ · tanh(up / β₂) when ``linear_beta`` is set, else up.
        beta: β of SiTU; Kimi K3 uses 4.
        linear_beta: β₂ of SiTU; Kimi K3 uses 25.
    """

    kind: Literal["silu", "situ"] = "silu"
    beta: float = 1.0
    linear_beta: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("silu", "situ"):
            raise ValueError(f"activation is 'silu' or 'situ', got {self.kind!r}")
        if not self.beta > 0 or (self.linear_beta is not None and not self.linear_beta > 0):
            raise ValueError(f"activation betas are positive, got {self.beta} and {self.linear_beta}")


def activate(gate: torch.Tensor, up: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Join gate and up element by element, in the dtype given."""
    if activation.kind == "silu":
        return gate * torch.sigmoid(gate) * up
    if activation.linear_beta is not None:
        up = activation.linear_beta * torch.tanh(up / activation.linear_beta)
    return activation.beta * torch.tanh(gate / activation.beta) * torch.sigmoid(gate) * up
