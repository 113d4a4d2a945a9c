"""How do packed weights lie in memory so that a warp reads them in whole cache lines?

One module per layout; ``pack`` and ``unpack`` are inverse. Read first: ``iq1_s.pack_iq1_s``.
Does not do: arithmetic on weights; every layout keeps the bits of the blocks it came from.
"""

from __future__ import annotations

from freehold_kernels.layout.iq1_s import PackedIQ1S, pack_gate_up_iq1_s, pack_iq1_s, unpack_iq1_s
from freehold_kernels.layout.q8_0 import PackedQ8, pack_q8_0, unpack_q8_0

__all__ = [
    "PackedIQ1S",
    "PackedQ8",
    "pack_gate_up_iq1_s",
    "pack_iq1_s",
    "pack_q8_0",
    "unpack_iq1_s",
    "unpack_q8_0",
]
