"""Which quantization types are known, and what does a block of each say?

One module per type; each opens with the byte layout. Read first: ``FORMAT_BY_NAME``.
Does not do: fast decoding; that is in ``cuda``.
"""

from __future__ import annotations

from freehold_kernels.formats.block import BlockFormat
from freehold_kernels.formats.iq1_m import IQ1_M
from freehold_kernels.formats.iq1_s import IQ1_S
from freehold_kernels.formats.iq2_xxs import IQ2_XXS
from freehold_kernels.formats.iq3_xxs import IQ3_XXS
from freehold_kernels.formats.iq4_xs import IQ4_XS
from freehold_kernels.formats.mxfp4 import MXFP4
from freehold_kernels.formats.q2_k import Q2_K
from freehold_kernels.formats.q4_k import Q4_K
from freehold_kernels.formats.q8_0 import Q8_0

__all__ = [
    "FORMAT_BY_NAME",
    "IQ1_M",
    "IQ1_S",
    "IQ2_XXS",
    "IQ3_XXS",
    "IQ4_XS",
    "MXFP4",
    "Q2_K",
    "Q4_K",
    "Q8_0",
    "BlockFormat",
]

FORMAT_BY_NAME: dict[str, BlockFormat] = {
    f.name: f for f in (Q8_0, IQ1_S, IQ1_M, IQ2_XXS, IQ3_XXS, IQ4_XS, Q2_K, Q4_K, MXFP4)
}
