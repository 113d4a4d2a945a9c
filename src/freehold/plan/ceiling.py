"""How fast decoding can be at most: the bytes one step has to read, over the rate at which memory can be read.

It is a bound, never a prediction. On a processor the arithmetic of low-bit formats usually takes longer than the
reading, so a measured speed may lie far below. What is above the bound was not measured right, or not computed.
Read :func:`weights_read_per_step`, then :func:`decode_ceiling_tok_per_s`.

Does not do: measuring the bandwidth (``hardware/bandwidth.py``), links between machines, or prefill.
"""

from __future__ import annotations

from freehold.evidence import Evidence, calculate
from freehold.records.inventory import Inventory, Role

__all__ = ["decode_ceiling", "decode_ceiling_tok_per_s", "step_bytes", "weights_read_per_step", "working_set_bytes"]

_ROUTED = (Role.ROUTED_GATE, Role.ROUTED_UP, Role.ROUTED_DOWN)
_UNUSED = (Role.DRAFT, Role.VISION)


def decode_ceiling_tok_per_s(step_bytes: int, bandwidth_bytes_per_s: float, sequences: int) -> float:
    """Upper bound on decode throughput when memory traffic is the only cost.

    A step cannot be shorter than the time needed to read its bytes once; compute, links and
    launch overhead only add to it.

    Args:
        step_bytes: Bytes one device reads per decode step (weights touched + KV cache).
        bandwidth_bytes_per_s: Peak memory bandwidth of that device, SI bytes per second.
        sequences: Sequences advanced together in the step (>= 1).

    Returns:
        Tokens per second over all sequences.

    Raises:
        ValueError: An argument is not positive.

    Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
    """
    if step_bytes <= 0 or bandwidth_bytes_per_s <= 0 or sequences <= 0:
        raise ValueError(f"all must be positive: {step_bytes} B, {bandwidth_bytes_per_s} B/s, {sequences} sequences")
    return sequences * bandwidth_bytes_per_s / step_bytes


def weights_read_per_step(inventory: Inventory) -> Evidence:
    """Bytes of weights that a decode step of one sequence reads; where in doubt the fewer, so that the bound holds.

    Everything is read once, except: of the routed experts only the chosen share; of the embedding one row, unless it is
    also the output head; nothing of a draft head or a vision part.

    Args:
        inventory: The checkpoint.
    """
    arch = inventory.architecture
    sizes = {role: total.bytes for role, total in inventory.by_role.items()}
    routed = sum(sizes.get(role, 0) for role in _ROUTED)
    unused = sum(sizes.get(role, 0) for role in _UNUSED)
    embedding = sizes.get(Role.TOKEN_EMBD, 0)
    rest = inventory.tensor_bytes - routed - unused - embedding
    if sizes.get(Role.OUTPUT_HEAD):
        rows = arch.vocab_size or 0
        read_embedding = embedding // rows if rows else 0
        how = "one row of the embedding"
    else:
        read_embedding, how = embedding, "the embedding, which is also the output head"
    source = f"tensors in the headers of {inventory.source}"
    inputs = {
        "dense": Evidence.verified(rest, "bytes_memory", source=source),
        "embedding": Evidence.verified(read_embedding, "bytes_memory", source=f"{source}: {how}"),
    }
    if not routed:
        return calculate(
            "bytes_memory", f"all weights once; {how}", lambda dense, embedding: dense + embedding, **inputs
        )
    if arch.num_experts_per_token is None or not arch.num_routed_experts:
        return Evidence.not_measured("the header does not say how many experts a token is sent to", "bytes_memory")
    return calculate(
        "bytes_memory",
        f"dense weights + routed experts × chosen / all; {how}",
        lambda dense, embedding, routed, chosen, experts: dense + embedding + routed * chosen // experts,
        routed=Evidence.verified(routed, "bytes_memory", source=source),
        chosen=Evidence.verified(arch.num_experts_per_token, "", source="experts per token in the header"),
        experts=Evidence.verified(arch.num_routed_experts, "", source="routed experts in the header"),
        **inputs,
    )


def working_set_bytes(inventory: Inventory) -> int:
    """Over how many bytes to measure the bandwidth: what one step reads, or all weights where that is not known.

    Args:
        inventory: The checkpoint.
    """
    known = weights_read_per_step(inventory).number
    return inventory.tensor_bytes if known is None else int(known)


def step_bytes(
    inventory: Inventory, *, depth_tokens: int = 0, kv_bytes_per_token: Evidence, window_tokens: int | None = None
) -> Evidence:
    """Bytes that one decode step of one sequence reads.

    Args:
        inventory: The checkpoint.
        depth_tokens: Tokens already in the KV cache; 0 is the shortest context, where only weights are read.
        kv_bytes_per_token: KV cache of one token.
        window_tokens: Where some layers look back only so far, no more than that is sure to be read.
    """
    weights = weights_read_per_step(inventory)
    if depth_tokens == 0:
        return calculate("bytes_memory", "weights read once, KV cache empty", lambda weights: weights, weights=weights)
    depth = depth_tokens if window_tokens is None else min(depth_tokens, window_tokens)
    return calculate(
        "bytes_memory",
        "weights read once + KV cache of the tokens so far",
        lambda weights, kv_per_token, depth: weights + kv_per_token * depth,
        weights=weights,
        kv_per_token=kv_bytes_per_token,
        depth=Evidence.verified(depth, "tokens", source="the depth that was asked for"),
    )


def decode_ceiling(step: Evidence, bandwidth: Evidence) -> Evidence:
    """Upper bound on the decode speed of one sequence, with its lineage.

    Args:
        step: Bytes of one step.
        bandwidth: Memory read bandwidth.
    """
    return calculate(
        "tok/s",
        "memory read bandwidth / bytes per step",
        lambda bytes_per_step, read_bandwidth: decode_ceiling_tok_per_s(bytes_per_step, read_bandwidth, 1),
        bytes_per_step=step,
        read_bandwidth=bandwidth,
    )
