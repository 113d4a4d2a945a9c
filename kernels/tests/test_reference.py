"""The references against arithmetic by hand, and every module's exported names."""

import importlib
import math
import pkgutil

import numpy as np
import pytest
import torch

import freehold_kernels
from freehold_kernels.formats import IQ1_S, Q8_0
from freehold_kernels.reference import Activation, activate, linear, routed_experts


def iq1_s_row(d: float, blocks: int) -> np.ndarray:
    """A row whose weights are all d · (−1 + 1/8): codes zero."""
    row = np.zeros((blocks, 50), dtype=np.uint8)
    row[:, :2] = np.array([d], dtype=np.float16).view(np.uint8)
    return row.reshape(-1)


def test_linear_by_hand() -> None:
    block = np.zeros((1, 34), dtype=np.uint8)
    block[0, :2] = np.array([0.5], dtype=np.float16).view(np.uint8)
    block[0, 2:5] = np.array([1, -2, 3], dtype=np.int8).view(np.uint8)
    x = torch.zeros(1, 32)
    x[0, :3] = torch.tensor([10.0, 20.0, 30.0])
    # 0.5 · (1·10 − 2·20 + 3·30) = 30
    assert linear(x, torch.from_numpy(block), Q8_0).item() == 30.0


def test_routed_experts_by_hand() -> None:
    # one expert of width 256: gate rows −0.875, up rows −1.75, down rows −0.875; x = 1/256 everywhere
    gate_up = torch.from_numpy(np.stack([iq1_s_row(1.0, 1)] * 256 + [iq1_s_row(2.0, 1)] * 256))[None]
    down = torch.from_numpy(np.stack([iq1_s_row(1.0, 1)] * 3))[None]
    x = torch.full((1, 256), 1 / 256)
    hidden = -0.875 / (1 + math.exp(0.875)) * -1.75
    out = routed_experts(x, gate_up, down, torch.tensor([[0, -1]]), torch.tensor([[0.5, 9.0]]), IQ1_S, Activation())
    assert out.tolist()[0] == pytest.approx([0.5 * 256 * hidden * -0.875] * 3, rel=1e-12)


def test_situ_by_hand() -> None:
    gate, up = torch.tensor([2.0]).double(), torch.tensor([50.0]).double()
    plain = 4 * math.tanh(0.5) / (1 + math.exp(-2.0))
    assert activate(gate, up, Activation(kind="situ", beta=4.0)).item() == pytest.approx(plain * 50)
    clipped = activate(gate, up, Activation(kind="situ", beta=4.0, linear_beta=25.0)).item()
    assert clipped == pytest.approx(plain * 25 * math.tanh(2.0))


def test_exported_names_exist_and_are_sorted() -> None:
    modules = [m.name for m in pkgutil.walk_packages(freehold_kernels.__path__, "freehold_kernels.")]
    assert "freehold_kernels.cuda.moe" in modules
    for name in modules:
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", [])
        assert [n for n in exported if not hasattr(module, n)] == []
        assert module.__doc__, name
