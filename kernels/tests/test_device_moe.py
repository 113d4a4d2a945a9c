"""Routed experts on a GPU: numbers against the float64 reference, graphs, repeatability, awkward inputs."""

import pytest
import torch

from freehold_kernels.formats import IQ1_S
from freehold_kernels.modules import RoutedExpertsIQ1S
from freehold_kernels.reference import Activation, routed_experts
from sample import random_iq1_s
from tolerance import check_close

pytestmark = pytest.mark.device
SILU = Activation()
SITU = Activation(kind="situ", beta=4.0, linear_beta=25.0)


def make(experts: int, blocks1: int, width: int, rows2: int, activation: Activation = SILU):
    gate_up = random_iq1_s(experts, 2 * width, blocks1, device="cuda", seed=1)
    down = random_iq1_s(experts, rows2, -(-width // 256), device="cuda", seed=2)
    return gate_up, down, RoutedExpertsIQ1S(gate_up, down, activation)


def inputs(tokens: int, columns: int, experts: int, top_k: int, dtype: torch.dtype, seed: int = 3):
    g = torch.Generator("cuda").manual_seed(seed)
    x = (torch.randn(tokens, columns, device="cuda", generator=g) * 0.3).to(dtype)
    ids = torch.stack([torch.randperm(experts, device="cuda", generator=g)[:top_k] for _ in range(tokens)])
    weights = torch.rand(tokens, top_k, device="cuda", generator=g)
    return x, ids.to(torch.int32), weights / weights.sum(1, keepdim=True)


def expected_of(layer_input, gate_up, down, activation):
    x, ids, weights = layer_input
    width, padded = gate_up.shape[1] // 2, down.shape[2] // 50 * 256
    if padded != width:  # the reference wants the padded hidden values: add gate and up rows of zeros
        rows = gate_up.new_zeros(gate_up.shape[0], padded - width, gate_up.shape[2])
        gate_up = torch.cat([gate_up[:, :width], rows, gate_up[:, width:], rows], dim=1)
    return routed_experts(x, gate_up, down, ids, weights, IQ1_S, activation)


@pytest.mark.parametrize(
    ("tokens", "dtype"),
    [(t, torch.float32) for t in range(1, 9)] + [(t, d) for t in (1, 5) for d in (torch.bfloat16, torch.float16)],
)
def test_k3_like_small(tokens: int, dtype: torch.dtype) -> None:
    gate_up, down, layer = make(24, 14, 512, 448, SITU)
    given = inputs(tokens, 14 * 256, 24, 16, dtype)
    out = layer(*given)
    assert out.dtype == dtype
    check_close(out, expected_of(given, gate_up, down, SITU), "IQ1_S")
    check_close(layer(*given, split=True), expected_of(given, gate_up, down, SITU), "IQ1_S")


@pytest.mark.parametrize(
    ("experts", "blocks1", "width", "rows2", "top_k"),
    [
        (8, 28, 256, 7168, 4),  # Kimi-K2's input width, one block of hidden values
        (4, 16, 48, 70, 3),  # width and rows that fill no tile
        (40, 8, 768, 100, 8),
        (3, 20, 1536, 33, 2),
        (1, 16, 16, 32, 1),
        (130, 16, 32, 64, 100),  # one token a launch
    ],
)
@pytest.mark.parametrize("tokens", [1, 4, 7, 11])
def test_shapes(experts: int, blocks1: int, width: int, rows2: int, top_k: int, tokens: int) -> None:
    gate_up, down, layer = make(experts, blocks1, width, rows2)
    given = inputs(tokens, blocks1 * 256, experts, top_k, torch.float32)
    check_close(layer(*given), expected_of(given, gate_up, down, SILU), "IQ1_S")


def test_full_k3_tp3_shape() -> None:
    gate_up, down, layer = make(48, 14, 512, 3584, SITU)
    given = inputs(4, 14 * 256, 48, 16, torch.float32)
    check_close(layer(*given), expected_of(given, gate_up, down, SITU), "IQ1_S")


def test_foreign_and_repeated_experts() -> None:
    gate_up, down, layer = make(6, 16, 64, 96)
    x, _, _ = inputs(3, 16 * 256, 6, 4, torch.float32)
    ids = torch.tensor([[-1, 2, 2, 5], [-1, -1, -1, -1], [6, 5, 2, 2]], dtype=torch.int32, device="cuda")
    weights = torch.tensor([[9.0, 0.5, 0.25, 1.0], [1, 1, 1, 1], [7, 1, 2, 3]], device="cuda")
    expected = expected_of((x, ids, weights), gate_up, down, SILU)
    out = layer(x, ids, weights)
    assert (out[1] == 0).all()
    check_close(out[[0, 2]], expected[[0, 2]], "IQ1_S")


def test_all_tokens_choose_the_same_experts() -> None:
    gate_up, down, layer = make(9, 14, 256, 128)
    x, _, weights = inputs(8, 14 * 256, 9, 8, torch.float32)
    ids = torch.arange(8, dtype=torch.int32, device="cuda").repeat(8, 1)
    check_close(layer(x, ids, weights), expected_of((x, ids, weights), gate_up, down, SILU), "IQ1_S")


def test_nan_activation_reaches_its_token_only() -> None:
    _, _, layer = make(4, 16, 64, 64)
    x, ids, weights = inputs(2, 16 * 256, 4, 2, torch.float32)
    x[1, 700] = float("nan")
    out = layer(x, ids, weights)
    assert torch.isfinite(out[0]).all()
    assert torch.isnan(out[1]).all()


def test_zero_tokens_and_zero_activations() -> None:
    _, _, layer = make(4, 16, 64, 64)
    x, ids, weights = inputs(2, 16 * 256, 4, 2, torch.bfloat16)
    assert layer(x[:0], ids[:0], weights[:0]).shape == (0, 64)
    assert (layer(torch.zeros_like(x), ids, weights) == 0).all()


@pytest.mark.parametrize("split", [False, True], ids=["one launch", "two launches"])
def test_ten_thousand_graph_replays_are_bit_equal(split: bool) -> None:
    _, _, layer = make(32, 14, 512, 3584, SITU)
    given = inputs(4, 14 * 256, 32, 16, torch.bfloat16)
    layer(*given, split=split)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(*given, split=split)
    graph.replay()
    first = out.clone()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(10_000):
        out.fill_(float("nan"))
        graph.replay()
        wrong += (out != first).sum()
    assert int(wrong) == 0
    fresh = inputs(4, 14 * 256, 32, 16, torch.bfloat16, seed=9)
    for old, new in zip(given, fresh, strict=True):
        old.copy_(new)
    graph.replay()
    assert torch.equal(out, layer(*fresh, split=split))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor 2.11 imports torch.jit
def test_torch_compile_keeps_the_operator() -> None:
    gate_up, down, layer = make(8, 16, 64, 64)
    given = inputs(2, 16 * 256, 8, 2, torch.float32)
    compiled = torch.compile(lambda x, i, w: layer(x * 2, i, w) + 1, fullgraph=True)
    x, ids, weights = given
    check_close(compiled(*given) - 1, expected_of((x * 2, ids, weights), gate_up, down, SILU), "IQ1_S")
