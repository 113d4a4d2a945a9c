"""Run every kernel once on small awkward shapes, for compute-sanitizer.

Usage: compute-sanitizer --tool memcheck python3 tools/sanitize.py     (and --tool racecheck)
Set PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that every tensor is an allocation of its own and an access past its end shows.
"""

import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent.parent / p) for p in ("src", "tests")]

from freehold_kernels.modules import LinearQ8, RoutedExpertsIQ1S  # noqa: E402
from freehold_kernels.reference import Activation  # noqa: E402
from sample import random_iq1_s, random_q8_0  # noqa: E402

if __name__ == "__main__":
    for experts, blocks, width, rows, top_k, tokens in ((5, 14, 48, 70, 3, 1), (9, 14, 300, 4300, 4, 6)):
        gate_up = random_iq1_s(experts, 2 * width, blocks, device="cuda")
        layer = RoutedExpertsIQ1S(gate_up, random_iq1_s(experts, rows, -(-width // 256), device="cuda"), Activation())
        x = torch.randn(tokens, blocks * 256, device="cuda")
        ids = torch.stack([torch.randperm(experts)[:top_k] for _ in range(tokens)]).to(torch.int32)
        ids[0, 0] = -1
        weights = torch.rand(tokens, top_k, device="cuda")
        for split in (False, True):
            assert torch.isfinite(layer(x, ids.cuda(), weights, split=split)).all()
    for rows, blocks, tokens in ((37, 5, 3), (3000, 24, 8), (576, 24, 1)):
        out = LinearQ8(random_q8_0(rows, blocks, device="cuda"))(torch.randn(tokens, blocks * 32, device="cuda"))
        assert torch.isfinite(out).all()
    torch.cuda.synchronize()
    print("all kernels ran")
