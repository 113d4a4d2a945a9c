"""Every format expands bit for bit as the `gguf` package does, odd scales included."""

import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold_kernels.formats import FORMAT_BY_NAME
from freehold_kernels.formats.codebooks import iq1_grid, iq2_xxs_grid, iq3_xxs_grid, sign_patterns

NAMES = sorted(FORMAT_BY_NAME)


def expand_with_gguf(name: str, rows: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return quants.dequantize(rows, gguf.GGMLQuantizationType[name])


@pytest.mark.parametrize("name", NAMES)
def test_geometry_is_ggmls(name: str) -> None:
    fmt = FORMAT_BY_NAME[name]
    kind = gguf.GGMLQuantizationType[name]
    assert fmt.ggml_type == int(kind)
    assert (fmt.block_weights, fmt.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_expand_bit_exactly(name: str, seed: int) -> None:
    fmt = FORMAT_BY_NAME[name]
    rows = np.random.default_rng(seed).integers(0, 256, (64, 3 * fmt.block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        ours, theirs = fmt.dequantize(rows), expand_with_gguf(name, rows)
    # random scale bytes include NaN, Inf and subnormals; payload bits of NaN may differ
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    keep = ~np.isnan(ours)
    assert np.array_equal(ours[keep].view(np.uint32), theirs[keep].view(np.uint32))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80, 0x7F])
def test_saturated_blocks_expand_bit_exactly(name: str, fill: int) -> None:
    rows = np.full((1, FORMAT_BY_NAME[name].block_bytes), fill, dtype=np.uint8)
    assert np.array_equal(FORMAT_BY_NAME[name].dequantize(rows), expand_with_gguf(name, rows), equal_nan=True)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_any_block_expands_bit_exactly(name: str, data: st.DataObject) -> None:
    size = FORMAT_BY_NAME[name].block_bytes
    rows = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), dtype=np.uint8).reshape(1, size)
    assert np.array_equal(FORMAT_BY_NAME[name].dequantize(rows), expand_with_gguf(name, rows), equal_nan=True)


def test_codebooks_are_the_packages() -> None:
    for cls, ours in ((quants.IQ1_S, iq1_grid()), (quants.IQ2_XXS, iq2_xxs_grid()), (quants.IQ3_XXS, iq3_xxs_grid())):
        cls.init_grid()
        assert np.array_equal(cls.grid.reshape(cls.grid_shape), ours.astype(np.float32))


def test_sign_patterns_are_the_packages() -> None:
    bits = np.frombuffer(quants.IQ2_XXS.ksigns, dtype=np.uint8)[:, None] >> np.arange(8) & 1
    assert np.array_equal(1 - 2 * bits.astype(int), sign_patterns().astype(int))


def test_one_iq1_s_weight_by_hand() -> None:
    block = np.zeros((1, 50), dtype=np.uint8)
    block[0, 0:2] = np.array([1.0], dtype=np.float16).view(np.uint8)
    block[0, 34:36] = np.array([0x8000 | 3 << 12], dtype=np.uint16).view(np.uint8)  # s = 3, shift −1/8
    # codebook row 0 is all −1: 1.0 · (2·3 + 1) · (−1 − 1/8) = −7.875
    assert (FORMAT_BY_NAME["IQ1_S"].dequantize(block)[0, :32] == -7.875).all()


def test_wrong_row_length_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 50 bytes"):
        FORMAT_BY_NAME["IQ1_S"].dequantize(np.zeros((1, 51), dtype=np.uint8))
    with pytest.raises(ValueError, match="multiples of 256"):
        FORMAT_BY_NAME["IQ1_S"].row_bytes(384)


@pytest.mark.parametrize(("name", "bpw"), [("IQ1_S", 1.5625), ("Q8_0", 8.5), ("Q2_K", 2.625), ("MXFP4", 4.25)])
def test_bits_per_weight(name: str, bpw: float) -> None:
    assert FORMAT_BY_NAME[name].bits_per_weight == bpw
