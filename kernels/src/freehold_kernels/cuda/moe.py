"""How are the routed experts with IQ1_S weights launched?

Read first: ``routed_experts_iq1_s``; its meaning is ``reference.moe.routed_experts``.
Does not do: pack weights (``layout``) or decide when to be used (``dispatch``).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch

from freehold_kernels.cuda.element import DTYPE_NUMBER, check_rows
from freehold_kernels.cuda.kernel import load_kernel, num_sms, shared_limit
from freehold_kernels.errors import InputError
from freehold_kernels.formats.codebooks import iq1_grid

__all__ = ["MAX_PAIRS", "MAX_TOKENS", "MoeShape", "iq1_codebook_words", "routed_experts_iq1_s", "tokens_per_launch"]

MAX_TOKENS = 8  # columns of a tensor-core product ÷ two digits, twice
MAX_PAIRS = 128  # (token, expert) pairs a block sorts in shared memory
_NUM_WARPS = 16
_OVERLAP = True
_DIGIT_BYTES = 576
_CODEBOOK_BYTES = 16 << 10  # 8 KiB, and up to as much to align it
_STATIC_BYTES = 4 << 10  # pair lists
_ROUTING_DTYPES = (torch.int32, torch.float32)
_ROW_BYTES = 128  # 32 rows of float32 sums


class _Arguments(ctypes.Structure):  # MoeArgs in iq1_s_moe.cu
    _fields_ = (
        *[(n, ctypes.c_void_p) for n in ("x", "ids", "weights", "words1", "scales1", "words2", "scales2")],
        *[(n, ctypes.c_void_p) for n in ("codebook", "hidden", "out", "barrier")],
        *[(n, ctypes.c_longlong) for n in ("x_stride", "out_stride")],
        *[(n, ctypes.c_int) for n in ("num_local", "activation")],
        *[(n, ctypes.c_float) for n in ("beta", "linear_beta")],
        *[(n, ctypes.c_int) for n in ("phases", "chunk_pairs")],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """Everything the machine code is specialised for.

    Attributes:
        blocks1: Input width / 256.
        width: Expert width on this rank.
        num_rows2: Output width.
        top_k: Experts per token.
    """

    blocks1: int
    width: int
    num_rows2: int
    top_k: int

    @property
    def blocks2(self) -> int:
        """Blocks of 256 hidden values per expert."""
        return -(-self.width // 256)

    def defines(self, tokens: int, dtype: torch.dtype, num_blocks: int) -> tuple[tuple[str, int], ...]:
        """Macros for the compiler."""
        return (
            ("BLOCKS1", self.blocks1),
            ("BLOCKS2", self.blocks2),
            ("DTYPE", DTYPE_NUMBER[dtype]),
            ("GRID", num_blocks),
            ("ROWS2", self.num_rows2),
            ("TOKENS", tokens),
            ("TOP_K", self.top_k),
            ("WARPS", _NUM_WARPS),
            ("WIDTH", self.width),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    chunk_pairs: int
    shared_bytes: int


def _digit_bytes(blocks: int) -> int:
    return blocks * _DIGIT_BYTES + -(-blocks // 32) * 128  # and a float32 scale each, rounded up to 32


@cache
def _plan(shape: MoeShape, tokens: int, shared_limit: int) -> _Plan | None:
    """Fit one launch into shared memory; ``None`` when that many tokens do not fit."""
    room = shared_limit - _CODEBOOK_BYTES - _STATIC_BYTES
    first = _digit_bytes(tokens * shape.blocks1) + _NUM_WARPS * 3 * tokens * _ROW_BYTES
    sums = _NUM_WARPS * tokens * _ROW_BYTES
    pairs = tokens * shape.top_k
    while _digit_bytes(pairs * shape.blocks2) + sums > room and pairs > tokens:
        pairs -= 1
    second = _digit_bytes(pairs * shape.blocks2) + sums
    if max(first, second) > room:
        return None
    return _Plan(chunk_pairs=pairs, shared_bytes=_CODEBOOK_BYTES + max(first, second))


@cache
def tokens_per_launch(shape: MoeShape, shared_limit: int) -> int:
    """Return how many tokens one launch takes: at most eight, fewer for wide inputs or many experts per token.

    Args:
        shape: The layer.
        shared_limit: Bytes of shared memory a block may have on the device.

    Raises:
        InputError: Not even one token fits.
    """
    for tokens in range(min(MAX_TOKENS, MAX_PAIRS // shape.top_k), 0, -1):
        if _plan(shape, tokens, shared_limit):
            return tokens
    raise InputError(
        f"routed experts of shape {shape} do not fit into shared memory",
        why=f"a block has {shared_limit} bytes of it; at most {MAX_PAIRS} experts per token",
        fix="leave the released kernels in charge of this layer",
    )


@cache
def iq1_codebook_words(device: torch.device) -> torch.Tensor:
    """Return IQ1's codebook as the kernel reads it, [2048] int32: byte j = code j + 4 · code (j + 4)."""
    codes = torch.from_numpy(iq1_grid().astype("int64")) + 1
    return ((codes[:, :4] | codes[:, 4:] << 2) << torch.arange(0, 32, 8)).sum(1).to(torch.int32).to(device)


def _check_routing(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
    if ids.shape != weights.shape or ids.shape[0] != x.shape[0] or (ids.dtype, weights.dtype) != _ROUTING_DTYPES:
        raise InputError(
            f"expert ids are int32 and weights float32 [tokens, top_k]; got {ids.dtype} {list(ids.shape)}, "
            f"{weights.dtype} {list(weights.shape)} for {x.shape[0]} tokens"
        )
    if not (ids.is_contiguous() and weights.is_contiguous()):
        raise InputError("expert ids and weights are contiguous", fix="call .contiguous()")


@torch.library.custom_op(
    "freehold_kernels::routed_experts_iq1_s", mutates_args=("hidden", "barrier"), device_types="cuda"
)
def routed_experts_iq1_s(
    x: torch.Tensor,
    words1: torch.Tensor,
    scales1: torch.Tensor,
    words2: torch.Tensor,
    scales2: torch.Tensor,
    hidden: torch.Tensor,
    barrier: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    width: int,
    num_rows2: int,
    situ_beta: float,
    situ_linear_beta: float,
    split: bool,
) -> torch.Tensor:
    """Run the routed experts of a layer: one launch per ``tokens_per_launch`` tokens.

    Shapes:
        x: [tokens, K]; words and scales: see ``layout.iq1_s``; hidden: [128, ⌈width / 256⌉ · 256] float32, zero at
        first, not shared by concurrent launches; barrier: [1] int32, zero at first; expert_ids: [tokens, top_k] int32;
        expert_weights: the same, float32; returns: [tokens, num_rows2] in x's dtype.

    Args:
        situ_beta: 0 for SiLU, else β of SiTU.
        situ_linear_beta: β₂ of SiTU, or 0 for none.
        split: Use two launches instead of one with a grid barrier.
    """
    check_rows(x, words1.shape[2] * 256)
    _check_routing(x, expert_ids, expert_weights)
    device_idx = x.device.index
    shape = MoeShape(blocks1=words1.shape[2], width=width, num_rows2=num_rows2, top_k=expert_ids.shape[1])
    out = torch.empty(x.shape[0], num_rows2, dtype=x.dtype, device=x.device)
    step, num_blocks = tokens_per_launch(shape, shared_limit(device_idx)), num_sms(device_idx)
    stream = torch.cuda.current_stream(x.device).cuda_stream
    for start in range(0, x.shape[0], step):
        tokens = min(step, x.shape[0] - start)
        plan = _plan(shape, tokens, shared_limit(device_idx))
        assert plan is not None
        function = load_kernel(
            "iq1_s_moe", device_idx, _NUM_WARPS * 32, plan.shared_bytes, shape.defines(tokens, x.dtype, num_blocks)
        )
        arguments = _Arguments(
            x=x[start].data_ptr(),
            ids=expert_ids[start].data_ptr(),
            weights=expert_weights[start].data_ptr(),
            words1=words1.data_ptr(),
            scales1=scales1.data_ptr(),
            words2=words2.data_ptr(),
            scales2=scales2.data_ptr(),
            codebook=iq1_codebook_words(x.device).data_ptr(),
            hidden=hidden.data_ptr(),
            out=out[start].data_ptr(),
            barrier=barrier.data_ptr(),
            x_stride=x.stride(0),
            out_stride=out.stride(0),
            num_local=words1.shape[0],
            activation=1 if situ_beta > 0 else 0,
            beta=situ_beta,
            linear_beta=situ_linear_beta,
            chunk_pairs=plan.chunk_pairs,
        )
        for phases in (1, 2) if split else (3,):
            arguments.phases = phases
            function.launch(arguments, num_blocks=num_blocks, stream=stream, cooperative=phases == 3, overlap=_OVERLAP)
    return out


@routed_experts_iq1_s.register_fake
def _(
    x: torch.Tensor,
    words1: torch.Tensor,
    scales1: torch.Tensor,
    words2: torch.Tensor,
    scales2: torch.Tensor,
    hidden: torch.Tensor,
    barrier: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    width: int,
    num_rows2: int,
    situ_beta: float,
    situ_linear_beta: float,
    split: bool,
) -> torch.Tensor:
    return x.new_empty(x.shape[0], num_rows2)
