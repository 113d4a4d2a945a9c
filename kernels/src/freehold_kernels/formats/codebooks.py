"""Which vectors do the codebook formats choose from?

Read first: ``iq1_grid``. The tables are data files with a README of origin in ``data/``.
Does not do: decode blocks.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

__all__ = ["iq1_grid", "iq2_xxs_grid", "iq3_xxs_grid", "sign_patterns"]


def _codes(name: str, weights: int, bits: int) -> npt.NDArray[np.int64]:
    raw = np.frombuffer(files("freehold_kernels.formats").joinpath("data", f"{name}.u16").read_bytes(), dtype="<u2")
    shifts = np.arange(weights) * bits
    return (raw.astype(np.int64)[:, None] >> shifts) & ((1 << bits) - 1)


@cache
def iq1_grid() -> npt.NDArray[np.int8]:
    """Return the 2048 vectors of IQ1_S and IQ1_M, ``[2048, 8]`` in {−1, 0, 1}."""
    return (_codes("iq1", 8, 2) - 1).astype(np.int8)


@cache
def iq2_xxs_grid() -> npt.NDArray[np.int8]:
    """Return the 256 vectors of IQ2_XXS, ``[256, 8]`` magnitudes in {8, 25, 43}."""
    return np.array([8, 25, 43, 0], dtype=np.int8)[_codes("iq2_xxs", 8, 2)]


@cache
def iq3_xxs_grid() -> npt.NDArray[np.int8]:
    """Return the 256 vectors of IQ3_XXS, ``[256, 4]`` magnitudes in {4, 12, …, 44, 52, 62}."""
    return np.array([4, 12, 20, 28, 36, 44, 52, 62], dtype=np.int8)[_codes("iq3_xxs", 4, 3)]


@cache
def sign_patterns() -> npt.NDArray[np.int8]:
    """Return the 128 sign vectors ``[128, 8]`` in {1, −1}: seven free signs, the eighth makes the minus count even."""
    seven = (np.arange(128)[:, None] >> np.arange(7)) & 1
    minus = np.concatenate([seven, seven.sum(axis=1, keepdims=True) & 1], axis=1)
    return (1 - 2 * minus).astype(np.int8)
