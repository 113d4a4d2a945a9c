"""What should the fast kernels compute? The same operations in float64, slow and obviously right.

Read first: ``moe.routed_experts`` and ``linear.linear``.
Does not do: run fast, or round anything on the way.
"""

from __future__ import annotations

from freehold_kernels.reference.activation import Activation, activate
from freehold_kernels.reference.linear import linear
from freehold_kernels.reference.moe import routed_experts

__all__ = ["Activation", "activate", "linear", "routed_experts"]
