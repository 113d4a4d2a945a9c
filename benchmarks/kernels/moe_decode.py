"""Routed experts with IQ1_S weights at decode: ours, the released plugin's, and the copy bandwidth, in one process.

Method: see harness.py. Weights are random bytes with small fp16 scales, tokens are random. At M = 1 every call of a
graph reads experts that no other call reads; at M > 1 every token of every call chooses at random. Bytes are those of
the distinct experts. The released arm is `ggml_moe_a8_vec` twice, as the plugin calls it: gate and up with
top_k, down with M · top_k rows and top_k 1; activation and weighted sum, which ours includes, are left out of its time
("released: two products") and included in "released: whole layer" (three torch operators).

Usage: moe_decode.py [--released PATH/_C_gguf.abi3.so] [--out results.jsonl] [--tokens 1,2,4,8] [--cases k3-tp3,k3-tp1]
The .so lies in the wheel of vllm-gguf-plugin 0.0.3 (newer wheels need a newer torch).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from freehold_kernels.modules import RoutedExpertsIQ1S
from freehold_kernels.reference import Activation
from harness import CALLS, Arm, Report, copy_bytes_per_s, load_released, time_arms

IQ1_S = 19  # ggml's number


@dataclass(frozen=True)
class Case:
    name: str
    experts: int
    top_k: int
    columns: int
    width: int


CASES = {
    "k3-tp3": Case("K3-Neuron TP3 routed experts", 896, 16, 3584, 512),
    "k3-tp1": Case("K3-Neuron TP1 routed experts", 896, 16, 3584, 1536),
    "k2": Case("Kimi-K2 routed experts (96 of 384)", 96, 8, 7168, 2048),
}


def random_weights(experts: int, rows: int, columns: int) -> torch.Tensor:
    weight = torch.randint(0, 256, (experts, rows, columns // 256, 50), dtype=torch.uint8, device="cuda")
    scale = torch.rand(weight.shape[:3], device="cuda") * 0.002 + 0.001
    weight[..., :2] = scale.to(torch.float16).unsqueeze(-1).view(torch.uint8)
    return weight.reshape(experts, rows, -1)


def choose_experts(case: Case, tokens: int) -> list[torch.Tensor]:
    """One [tokens, top_k] choice per call; tokens choose independently, as a router does."""
    order, used, out = torch.randperm(case.experts, device="cuda"), 0, []
    for _ in range(CALLS):
        if tokens == 1:
            if used + case.top_k > case.experts:
                used = 0
            ids = order[used : used + case.top_k].reshape(1, -1)
            used += case.top_k
        else:
            ids = torch.stack([torch.randperm(case.experts, device="cuda")[: case.top_k] for _ in range(tokens)])
        out.append(ids.to(torch.int32).contiguous())
    return out


def released_arms(
    released: object,
    case: Case,
    weights: tuple[torch.Tensor, torch.Tensor],
    x: torch.Tensor,
    ids: list,
    w: torch.Tensor,
) -> list[Arm]:
    gate_up, down = weights
    tokens, pairs = x.shape[0], x.shape[0] * case.top_k
    rows = torch.randn(pairs, case.width, dtype=torch.bfloat16, device="cuda")

    def products(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        a = released.ggml_moe_a8_vec(x, gate_up, ids[i], case.top_k, IQ1_S, 2 * case.width, tokens)
        return a, released.ggml_moe_a8_vec(rows, down, ids[i], 1, IQ1_S, case.columns, pairs)

    def whole(i: int) -> torch.Tensor:
        a = released.ggml_moe_a8_vec(x, gate_up, ids[i], case.top_k, IQ1_S, 2 * case.width, tokens)
        h = torch.nn.functional.silu(a[:, : case.width]) * a[:, case.width :]
        y = released.ggml_moe_a8_vec(h, down, ids[i], 1, IQ1_S, case.columns, pairs)
        return torch.bmm(w.to(y.dtype).unsqueeze(1), y.view(tokens, case.top_k, -1))

    return [Arm("released: two products", products), Arm("released: whole layer", whole)]


def our_arms(layer: RoutedExpertsIQ1S, x: torch.Tensor, ids: list[torch.Tensor], w: torch.Tensor) -> list[Arm]:
    return [
        Arm("ours: one launch", lambda i: layer(x, ids[i], w)),
        Arm("ours: two launches", lambda i: layer(x, ids[i], w, split=True)),
    ]


def run(case: Case, tokens_list: list[int], released: object | None, report: Report) -> None:
    activation = Activation(kind="situ", beta=4.0, linear_beta=25.0)
    gate_up = random_weights(case.experts, 2 * case.width, case.columns)
    down = random_weights(case.experts, case.columns, case.width)
    layer = RoutedExpertsIQ1S(gate_up, down, activation)
    expert_bytes = (gate_up.numel() + down.numel()) // case.experts
    for tokens in tokens_list:
        ids = choose_experts(case, tokens)
        x = torch.randn(tokens, case.columns, dtype=torch.bfloat16, device="cuda")
        w = torch.rand(tokens, case.top_k, device="cuda")
        w = w / w.sum(1, keepdim=True)
        distinct = sum(len(torch.unique(i)) for i in ids) / len(ids)
        arms = our_arms(layer, x, ids, w)
        if released:
            arms += released_arms(released, case, (gate_up, down), x, ids, w)
        time_arms(arms)
        report.add(
            case.name,
            tokens,
            distinct * expert_bytes,
            arms,
            "released: two products",
            distinct_experts=distinct,
            experts=case.experts,
            top_k=case.top_k,
            columns=case.columns,
            width=case.width,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--released", help="path of _C_gguf.abi3.so")
    parser.add_argument("--out", help="JSONL file to append to")
    parser.add_argument("--tokens", default="1,2,4,8")
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    torch.manual_seed(0)
    ops = load_released(options.released) if options.released else None
    table = Report(options.out, copy_bytes_per_s())
    for key in options.cases.split(","):
        run(CASES[key], [int(t) for t in options.tokens.split(",")], ops, table)
