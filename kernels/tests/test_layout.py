"""Packing moves bits and loses none: unpack gives back the file's bytes for every shape."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold_kernels.errors import InputError
from freehold_kernels.layout import pack_gate_up_iq1_s, pack_iq1_s, pack_q8_0, unpack_iq1_s, unpack_q8_0


def random_bytes(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 70), st.integers(1, 4), st.integers(0, 1 << 30))
def test_iq1_s_round_trip(experts: int, rows: int, blocks: int, seed: int) -> None:
    weight = random_bytes(experts, rows, 50 * blocks, seed=seed)
    assert torch.equal(unpack_iq1_s(pack_iq1_s(weight)), weight)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 4), st.integers(0, 1 << 30))
def test_gate_up_round_trip(experts: int, width: int, blocks: int, seed: int) -> None:
    weight = random_bytes(experts, 2 * width, 50 * blocks, seed=seed)
    assert torch.equal(unpack_iq1_s(pack_gate_up_iq1_s(weight), is_gate_up=True), weight)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(1, 40), st.integers(0, 1 << 30))
def test_q8_0_round_trip(rows: int, blocks: int, seed: int) -> None:
    weight = random_bytes(rows, 34 * blocks, seed=seed)
    assert torch.equal(unpack_q8_0(pack_q8_0(weight)), weight)


def test_no_bytes_are_added_at_whole_tiles() -> None:
    # two experts, gate and up of width 48, K = 512: 2 · 96 rows · 2 blocks · 50 bytes = 19,200
    assert pack_gate_up_iq1_s(random_bytes(2, 96, 100)).num_bytes == 19_200
    # 64 rows of 512 weights: 64 · 16 blocks · 34 bytes = 34,816
    packed = pack_q8_0(random_bytes(64, 34 * 16))
    assert packed.num_bytes == 34_816
    assert packed.padding_share == 0


def test_padding_is_reported() -> None:
    # 17 rows become 32: 32 / 17 − 1
    assert pack_q8_0(random_bytes(17, 34 * 8)).padding_share == pytest.approx(15 / 17)


def test_a_gate_row_sits_beside_its_up_row() -> None:
    weight = torch.zeros(1, 64, 50, dtype=torch.uint8)  # width 32
    weight[0, 5, 0] = 7  # the scale of gate row 5
    weight[0, 32 + 5, 0] = 9  # of up row 5
    scales = pack_gate_up_iq1_s(weight).scales  # [1, 2 tiles, 1, r, 2·tile + half]
    assert scales[0, 0, 0, 5].tolist() == [7, 0, 9, 0]


@pytest.mark.parametrize("shape", [(2, 4, 51), (4, 50), (0, 4, 50)])
def test_wrong_iq1_s_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="IQ1_S weights are uint8"):
        pack_iq1_s(torch.zeros(shape, dtype=torch.uint8))


def test_odd_gate_up_is_refused() -> None:
    with pytest.raises(InputError, match="come in pairs"):
        pack_gate_up_iq1_s(torch.zeros(1, 3, 50, dtype=torch.uint8))


def test_wrong_q8_0_shape_is_refused() -> None:
    with pytest.raises(InputError, match="whole blocks of 32"):
        pack_q8_0(torch.zeros(4, 33, dtype=torch.uint8))
