"""The kernels' own decode and digit functions, compiled for the CPU, are exact for every weight and every integer."""

import ctypes
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold_kernels.cuda.moe import iq1_codebook_words
from freehold_kernels.cuda.source import read_source
from freehold_kernels.formats import IQ1_S
from freehold_kernels.formats.codebooks import iq1_grid
from freehold_kernels.layout import pack_iq1_s

_SHIM = """
#include <cstdint>
typedef uint32_t u32;
#define __device__
#define __forceinline__ inline
static inline u32 __byte_perm(u32 x, u32 y, u32 s) {
    uint64_t both = ((uint64_t)y << 32) | x;
    u32 out = 0;
    for (int k = 0; k < 4; k++) out |= (u32)((both >> (8 * (s >> (4 * k) & 7))) & 255) << (8 * k);
    return out;
}
static inline u32 __funnelshift_r(u32 lo, u32 hi, u32 n) { return (u32)((((uint64_t)hi << 32) | lo) >> (n & 31)); }
"""
_MAIN = """
static int at(u32 word, int byte) { return (int)(word >> (8 * byte) & 255); }
// The exact sum of products of one codebook entry with eight integers, as the kernel forms it: the activations of
// both fragments split into digits, bytes multiplied with digits, digits put together again.
extern "C" int dot_entry(u32 entry, u32 odd, const int* x) {
    u32 both = both_fours(entry, odd), last = last_four(entry, odd), magic = 0x4b400000u, high[2], low[2], a[4];
    for (int k = 0; k < 4; k++) a[k] = (magic + (u32)x[k]) * 8;
    split_digits(a[0], a[1], a[2], a[3], high[0], low[0]);
    for (int k = 0; k < 4; k++) a[k] = (magic + (u32)x[k + 4]) * 2 - a[k];
    split_digits(a[0], a[1], a[2], a[3], high[1], low[1]);
    int sum_high = 0, sum_low = 0;
    for (int k = 0; k < 4; k++) {
        sum_high += at(both, k) * (int8_t)at(high[0], k) + at(last, k) * (int8_t)at(high[1], k);
        sum_low += at(both, k) * (int8_t)at(low[0], k) + at(last, k) * (int8_t)at(low[1], k);
    }
    return 256 * sum_high + sum_low;
}
// Digits of n = −limit … limit with the rounding constant still in place; returns the first wrong n.
extern "C" int first_wrong_split(int limit) {
    for (int n = -limit; n <= limit; n++) {
        u32 high, low, v = 0x4b400000u + (u32)n;
        split_digits(v, v, v, v, high, low);
        for (int k = 0; k < 4; k++)
            if (256 * (int8_t)at(high, k) + (int8_t)at(low, k) != n) return n;
    }
    return limit + 1;
}
// out[32 rows][256]: 8 · (2s + 1) · (g + δ) as an integer, from the words of one unit
extern "C" void decode_unit(const u32* words, const u32* codebook, int* out) {
    for (int lane = 0; lane < 32; lane++) {
        u32 w[12];
        for (int i = 0; i < 12; i++) w[i] = words[(i / 4 * 32 + lane) * 4 + i % 4];
        for (int t = 0; t < 2; t++) for (int h = 0; h < 2; h++)
        for (int p = 0; p < 2; p++) for (int j = 0; j < 4; j++) {
            u32 odd = odd_scale(w[11], (t * 2 + h) * 2 + p);
            u32 entry = *(const u32*)((const char*)codebook + entry_address(w, ((t * 2 + h) * 4 + j) * 2 + p, 0));
            u32 both = both_fours(entry, odd), last = last_four(entry, odd);  // (2s + 1)(a + 4b), 4(2s + 1)b
            u32 minus = group_sum_weight(w[11], (t * 2 + h) * 2 + p, odd);
            for (int k = 0; k < 8; k++)
                out[(t * 16 + p * 8 + lane / 4) * 256 + (4 * h + lane % 4) * 32 + 8 * j + k] =
                    (k < 4 ? 8 * (at(both, k) - at(last, k)) : 2 * at(last, k - 4)) - at(minus, k % 4);
        }
    }
}
"""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler on the PATH to run the kernel's decode functions on the CPU")
    folder = tmp_path_factory.mktemp("decode")
    sources = files("freehold_kernels.cuda")
    text = "".join(
        [_SHIM, *(sources.joinpath(n).read_text("utf-8") for n in ("digits.cuh", "iq1_s_decode.cuh")), _MAIN]
    )
    Path(folder / "decode.cpp").write_text(text)
    command = [
        compiler,
        "-O1",
        "-std=c++17",
        "-fno-strict-aliasing",
        "-shared",
        "-fPIC",
        "decode.cpp",
        "-o",
        "decode.so",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "decode.so"))


def decode(decoder: ctypes.CDLL, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[32, 50] bytes → the kernel's integers [32, 256] and the rows' d."""
    packed = pack_iq1_s(torch.from_numpy(rows).reshape(1, 32, 50))
    words = np.ascontiguousarray(packed.words.numpy())
    codebook = iq1_codebook_words(torch.device("cpu")).numpy()
    out = np.zeros((32, 256), dtype=np.int32)
    decoder.decode_unit(
        words.ctypes.data_as(ctypes.c_void_p),
        codebook.ctypes.data_as(ctypes.c_void_p),
        out.ctypes.data_as(ctypes.c_void_p),
    )
    # scales [r][2·tile + half] → row = 16·tile + 8·half + r
    d = packed.scales.numpy().reshape(8, 2, 2).transpose(1, 2, 0).reshape(32)
    return out, np.ascontiguousarray(d).view(np.float16).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
def test_random_blocks(decoder: ctypes.CDLL, seed: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 256, (32, 50), dtype=np.uint8)
    integers, d = decode(decoder, rows)
    with np.errstate(all="ignore"):
        ours = d[:, None] * (integers.astype(np.float32) / 8)  # exact: integers below 2^8, a division by 8
        expected = IQ1_S.dequantize(rows)
    assert np.array_equal(ours, expected, equal_nan=True)


@pytest.mark.parametrize(
    "scale", [0x0000, 0x8000, 0x7C00, 0x7E00, 0x7BFF, 0x0001], ids=["0", "-0", "inf", "nan", "max", "tiny"]
)
@pytest.mark.parametrize("fill", [0x00, 0xFF])
def test_extreme_scales_and_saturated_codes(decoder: ctypes.CDLL, scale: int, fill: int) -> None:
    rows = np.full((32, 50), fill, dtype=np.uint8)
    rows[:, :2] = np.array([scale], dtype="<u2").view(np.uint8)
    integers, d = decode(decoder, rows)
    with np.errstate(all="ignore"):
        assert np.array_equal(d[:, None] * (integers.astype(np.float32) / 8), IQ1_S.dequantize(rows), equal_nan=True)
    # codes all 0 (values −1), s = 0, shift +1/8: 8 · 1 · (−1 + 1/8) = −7
    # all bits set: s = 7, shift −1/8, and row 2047 is all +1: 8 · 15 · (1 − 1/8) = 105
    assert set(np.unique(integers)) == ({-7} if fill == 0 else {105})


def test_every_codebook_row_and_scale_code(decoder: ctypes.CDLL) -> None:
    seen = set()
    for start in range(0, 2048, 1024):
        rows = np.zeros((32, 50), dtype=np.uint8)
        rows[:, :2] = np.array([1.0], dtype=np.float16).view(np.uint8)
        index = np.arange(start, start + 1024).reshape(32, 8, 4)
        rows[:, 2:34] = (index & 255).reshape(32, 32)
        code = np.arange(256).reshape(32, 8) % 16
        high = (code << 12) | ((index >> 8) << np.array([0, 3, 6, 9])).sum(-1)
        rows[:, 34:] = high.astype("<u2").view(np.uint8).reshape(32, 16)
        integers, _ = decode(decoder, rows)
        assert np.array_equal(integers.astype(np.float32) / 8, IQ1_S.dequantize(rows))
        seen.update(index.reshape(-1).tolist())
    assert len(seen) == 2048


def limit_of(kernel: str) -> int:
    text = read_source(kernel)
    return int(float(text.split("#define LIMIT ")[1].split("f")[0]))


def test_two_digits_hold_every_integer_of_q8_0(decoder: ctypes.CDLL) -> None:
    limit = limit_of("q8_0_linear")
    assert decoder.first_wrong_split(limit) == limit + 1
    # 32,640 + 128 carries into a high digit of 128, which does not fit a signed byte: the check can fail
    assert decoder.first_wrong_split(32_640) == 32_640


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2047), st.integers(0, 7), st.data())
def test_products_of_an_entry_are_exact(decoder: ctypes.CDLL, row: int, code: int, data: st.DataObject) -> None:
    limit = limit_of("iq1_s_moe")
    edge = st.sampled_from([-limit, limit, 0, 1, -1])
    x = data.draw(st.lists(st.one_of(edge, st.integers(-limit, limit)), min_size=8, max_size=8))
    entry = int(iq1_codebook_words(torch.device("cpu"))[row])
    odd = 2 * code + 1
    # codes are one above the codebook's values
    expected = 8 * odd * sum((int(v) + 1) * n for v, n in zip(iq1_grid()[row], x, strict=True))
    assert decoder.dot_entry(entry, odd, (ctypes.c_int * 8)(*x)) == expected
