"""Dense Q8_0 products at decode: ours, the released plugin's, and the copy bandwidth, in one process.

Method: see harness.py. A graph's calls read distinct matrices, together more than four times the L2. Shapes: one rank
of K3-Neuron at TP3, and a large head.

Usage: dense_decode.py [--released PATH/_C_gguf.abi3.so] [--out results.jsonl] [--tokens 1,2,4,8]
"""

from __future__ import annotations

import argparse

import torch
from freehold_kernels.modules import LinearQ8
from harness import Arm, Report, copy_bytes_per_s, load_released, time_arms

Q8_0 = 8  # ggml's number
SHAPES = (  # rows, columns, what it is
    (7168, 3584, "latent up"),
    (3584, 7168, "latent down"),
    (4096, 7168, "KDA q, k or v"),
    (12288, 7168, "KDA q, k, v merged"),
    (7168, 4096, "attention output"),
    (4096, 7168, "shared experts gate+up"),
    (7168, 2048, "shared experts down"),
    (576, 7168, "MLA kv_a"),
    (54592, 7168, "a Q8_0 head"),
)


def random_weight(rows: int, columns: int) -> torch.Tensor:
    weight = torch.randint(0, 256, (rows, columns // 32, 34), dtype=torch.uint8, device="cuda")
    scale = torch.rand(weight.shape[:2], device="cuda") * 0.002 + 0.001
    weight[..., :2] = scale.to(torch.float16).unsqueeze(-1).view(torch.uint8)
    return weight.reshape(rows, -1)


def arms_for(
    x: torch.Tensor, weights: list[torch.Tensor], layers: list[LinearQ8], released: object | None
) -> list[Arm]:
    copies, rows = len(weights), layers[0].packed.num_rows
    arms = [Arm("ours", lambda i: layers[i % copies](x))]
    if released:
        arms.append(Arm("released", lambda i: released.ggml_mul_mat_vec_a8(weights[i % copies], x, Q8_0, rows)))
    return arms


def run(rows: int, columns: int, name: str, tokens_list: list[int], released: object | None, report: Report) -> None:
    num_bytes = rows * columns // 32 * 34
    weights = [random_weight(rows, columns) for _ in range(max(4, min(20, (300 << 20) // num_bytes)))]
    layers = [LinearQ8(w) for w in weights]
    for tokens in tokens_list:
        x = torch.randn(tokens, columns, dtype=torch.bfloat16, device="cuda")
        arms = arms_for(x, weights, layers, released)
        time_arms(arms)
        report.add(f"Q8_0 {rows}×{columns} {name}", tokens, num_bytes, arms, "released", rows=rows, columns=columns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--released", help="path of _C_gguf.abi3.so")
    parser.add_argument("--out", help="JSONL file to append to")
    parser.add_argument("--tokens", default="1,2,4,8")
    options = parser.parse_args()
    torch.manual_seed(0)
    ops = load_released(options.released) if options.released else None
    table = Report(options.out, copy_bytes_per_s())
    for rows_, columns_, name_ in SHAPES:
        run(rows_, columns_, name_, [int(t) for t in options.tokens.split(",")], ops, table)
