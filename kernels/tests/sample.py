"""Random packed weights with finite scales, on any device."""

import torch


def random_iq1_s(experts: int, rows: int, blocks: int, *, device: str = "cpu", seed: int = 0) -> torch.Tensor:
    """[experts, rows, 50 · blocks] uint8 with fp16 scales between 0.01 and 0.03."""
    return _random(experts, rows, blocks, 50, device, seed)


def random_q8_0(rows: int, blocks: int, *, device: str = "cpu", seed: int = 0) -> torch.Tensor:
    """[rows, 34 · blocks] uint8 with fp16 scales between 0.01 and 0.03."""
    return _random(1, rows, blocks, 34, device, seed)[0]


def _random(experts: int, rows: int, blocks: int, block_bytes: int, device: str, seed: int) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    shape = (experts, rows, blocks, block_bytes)
    weight = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
    scale = torch.rand(shape[:3], device=device, generator=generator) * 0.02 + 0.01
    weight[..., :2] = scale.to(torch.float16).unsqueeze(-1).view(torch.uint8)
    return weight.reshape(experts, rows, blocks * block_bytes)
