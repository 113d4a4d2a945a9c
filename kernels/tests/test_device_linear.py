"""Dense Q8_0 products on a GPU: numbers against the float64 reference, graphs, repeatability, awkward inputs."""

import pytest
import torch

from freehold_kernels.formats import Q8_0
from freehold_kernels.modules import LinearQ8
from freehold_kernels.reference import linear
from sample import random_q8_0
from tolerance import check_close

pytestmark = pytest.mark.device


def activations(tokens: int, columns: int, dtype: torch.dtype, seed: int = 3) -> torch.Tensor:
    g = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(tokens, columns, device="cuda", generator=g).to(dtype)


@pytest.mark.parametrize("tokens", [1, 4, 7, 19])
@pytest.mark.parametrize(
    ("rows", "blocks"),
    [(16, 8), (3584, 112), (576, 224), (37, 5), (1, 1), (50, 41), (7168, 48), (20_000, 16), (130, 1056)],
)
def test_numbers(rows: int, blocks: int, tokens: int) -> None:
    weight = random_q8_0(rows, blocks, device="cuda", seed=rows)
    x = activations(tokens, blocks * 32, torch.float32)
    check_close(LinearQ8(weight)(x), linear(x, weight, Q8_0), "Q8_0")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("tokens", [1, 2, 8])
def test_half_precision_rows(tokens: int, dtype: torch.dtype) -> None:
    weight = random_q8_0(1000, 75, device="cuda")
    x = activations(tokens, 75 * 32, dtype)
    out = LinearQ8(weight)(x)
    assert out.dtype == dtype
    check_close(out, linear(x, weight, Q8_0), "Q8_0")


def test_rows_with_a_stride() -> None:
    weight = random_q8_0(64, 16, device="cuda")
    wide = activations(3, 1024, torch.bfloat16)
    check_close(LinearQ8(weight)(wide[:, 512:]), linear(wide[:, 512:], weight, Q8_0), "Q8_0")


def test_nan_activation_reaches_its_token_only() -> None:
    x = activations(3, 512, torch.float32)
    x[1, 5] = float("inf")
    out = LinearQ8(random_q8_0(48, 16, device="cuda"))(x)
    assert torch.isfinite(out[[0, 2]]).all()
    assert not torch.isfinite(out[1]).any()


def test_ten_thousand_graph_replays_are_bit_equal() -> None:
    layer, x = LinearQ8(random_q8_0(3584, 112, device="cuda")), activations(4, 3584, torch.bfloat16)
    layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(x)
    graph.replay()
    first = out.clone()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(10_000):
        out.fill_(float("nan"))
        graph.replay()
        wrong += (out != first).sum()
    assert int(wrong) == 0
