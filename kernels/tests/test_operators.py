"""Operators on a machine without a GPU: fakes, plans, and refusals."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from freehold_kernels.cuda.linear import linear_q8_0, linear_tokens_per_launch
from freehold_kernels.cuda.moe import MoeShape, routed_experts_iq1_s, tokens_per_launch
from freehold_kernels.errors import InputError
from freehold_kernels.modules import RoutedExpertsIQ1S
from freehold_kernels.reference import Activation

SM_90, SM_120 = 232_448, 101_376  # bytes of shared memory a block may have


def test_fakes_give_shape_and_dtype() -> None:
    with FakeTensorMode():
        x = torch.empty(5, 4096, dtype=torch.bfloat16, device="cuda")
        many = [torch.empty(1, 1, 16, device="cuda") for _ in range(6)]
        ids, weights = torch.empty(5, 2, dtype=torch.int32), torch.empty(5, 2)
        out = routed_experts_iq1_s(x, *many, ids, weights, 64, 96, 0.0, 0.0, False)
        assert (out.shape, out.dtype, out.device.type) == ((5, 96), torch.bfloat16, "cuda")
        out = linear_q8_0(x, *many[:4], 77, 4096)
        assert (out.shape, out.dtype) == ((5, 77), torch.bfloat16)


@pytest.mark.parametrize(
    ("shape", "tokens"),
    [
        (MoeShape(blocks1=14, width=512, num_rows2=3584, top_k=16), 8),  # K3-Neuron TP3
        (MoeShape(blocks1=14, width=1536, num_rows2=3584, top_k=16), 8),  # TP1
        (MoeShape(blocks1=28, width=2048, num_rows2=7168, top_k=8), 8),  # Kimi K2
        (MoeShape(blocks1=16, width=32, num_rows2=64, top_k=100), 1),  # 128 pairs
    ],
)
def test_tokens_per_launch(shape: MoeShape, tokens: int) -> None:
    assert tokens_per_launch(shape, SM_90) == tokens
    assert 1 <= tokens_per_launch(shape, SM_120) <= tokens


def test_a_layer_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match="do not fit"):
        tokens_per_launch(MoeShape(blocks1=500, width=512, num_rows2=3584, top_k=16), SM_90)
    with pytest.raises(InputError, match="do not fit"):
        linear_tokens_per_launch(200_000, SM_90)


def test_wide_inputs_take_fewer_tokens_a_launch() -> None:
    # one token of 33,792 inputs: 132 units · (512 + 4) bytes ≈ 68 KB, and 2 KB of segments; three fit into 227 KiB
    assert linear_tokens_per_launch(33_792, SM_90) == 3
    assert linear_tokens_per_launch(7168, SM_90) == 8


def test_weights_that_do_not_belong_together_are_refused() -> None:
    gate_up = torch.zeros(2, 1024, 50, dtype=torch.uint8)  # width 512: down rows have two blocks
    with pytest.raises(InputError, match="needs 100 bytes per row"):
        RoutedExpertsIQ1S(gate_up, torch.zeros(2, 64, 50, dtype=torch.uint8), Activation())


def test_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="'silu' or 'situ'"):
        Activation(kind="relu")
    with pytest.raises(ValueError, match="positive"):
        Activation(kind="situ", beta=-1.0)
