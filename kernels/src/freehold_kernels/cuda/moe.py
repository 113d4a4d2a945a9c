"""How are the routed experts with IQ1_S weights launched?

Read first: ``routed_experts_iq1_s``; its meaning is ``reference.moe.routed_experts``.
Does not do: pack weights (``layout``) or decide when to be used (``dispatch``).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch

from freehold_kernels.cuda.kernel import load_kernel, num_sms
from freehold_kernels.errors import InputError
from freehold_kernels.formats.codebooks import iq1_grid

__all__ = ["MAX_PAIRS", "MAX_TOKENS", "MoeShape", "iq1_codebook_words", "routed_experts_iq1_s", "tokens_per_launch"]

MAX_TOKENS = 8  # columns of a tensor-core product ÷ two digits, twice
MAX_PAIRS = 128  # (token, expert) pairs a block sorts in shared memory
_NUM_WARPS = 16
_DIGIT_BYTES = 576
_CODEBOOK_BYTES = 8192
_SHARED_BYTES = 222 << 10  # of 227 KiB on sm_90; the rest holds the pair lists
_TARGET_UNITS = 56  # per reduction round: 3.5 for each warp
_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class _Arguments(ctypes.Structure):  # MoeArgs in iq1_s_moe.cu
    _fields_ = (
        *[(n, ctypes.c_void_p) for n in ("x", "ids", "weights", "words1", "scales1", "words2", "scales2")],
        *[(n, ctypes.c_void_p) for n in ("codebook", "hidden", "out", "barrier")],
        *[(n, ctypes.c_longlong) for n in ("x_stride", "out_stride")],
        *[(n, ctypes.c_int) for n in ("dtype", "tokens", "num_local", "activation")],
        *[(n, ctypes.c_float) for n in ("beta", "linear_beta")],
        *[(n, ctypes.c_int) for n in ("phases", "round_items", "chunk_experts")],
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

    def defines(self) -> tuple[tuple[str, int], ...]:
        """Macros for the compiler."""
        return (
            ("BLOCKS1", self.blocks1),
            ("BLOCKS2", self.blocks2),
            ("ROWS2", self.num_rows2),
            ("TOP_K", self.top_k),
            ("WARPS", _NUM_WARPS),
            ("WIDTH", self.width),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    round_items: int
    chunk_experts: int
    shared_bytes: int


def _align(n: int, to: int) -> int:
    return -(-n // to) * to


@cache
def _plan(shape: MoeShape, tokens: int) -> _Plan | None:
    """Fit one launch into shared memory; ``None`` when that many tokens do not fit."""
    digits = tokens * shape.blocks1 * _DIGIT_BYTES + _align(tokens * shape.blocks1, 32) * 4
    unit_bytes = 2 * tokens * 128  # two rounds of partial sums, 32 rows
    room = _SHARED_BYTES - _CODEBOOK_BYTES - digits
    round_items = min(-(-_TARGET_UNITS // shape.blocks1), room // (unit_bytes * shape.blocks1) if room > 0 else 0)
    # every warp must own a unit of a full round: it loads ahead across the round's end
    if round_items * shape.blocks1 < _NUM_WARPS:
        return None
    first = digits + round_items * shape.blocks1 * unit_bytes
    sums = _NUM_WARPS * tokens * 128
    per_expert = tokens * shape.blocks2 * (_DIGIT_BYTES + 4)
    chunk = min(tokens * shape.top_k, (_SHARED_BYTES - _CODEBOOK_BYTES - sums - 128) // per_expert)
    if chunk < 1:
        return None
    second = chunk * per_expert + 128 + sums
    return _Plan(round_items=round_items, chunk_experts=chunk, shared_bytes=_CODEBOOK_BYTES + max(first, second))


@cache
def tokens_per_launch(shape: MoeShape) -> int:
    """Return how many tokens one launch takes: at most eight, fewer for wide inputs or many experts per token.

    Raises:
        InputError: Not even one token fits.
    """
    for tokens in range(min(MAX_TOKENS, MAX_PAIRS // shape.top_k), 0, -1):
        if _plan(shape, tokens):
            return tokens
    raise InputError(
        f"routed experts of shape {shape} do not fit into shared memory",
        why=f"up to {MAX_PAIRS} experts per token, 16 to 300 blocks of 256 inputs, about 300 blocks of hidden values",
        fix="leave the released kernels in charge of this layer",
    )


@cache
def iq1_codebook_words(device: torch.device) -> torch.Tensor:
    """Return IQ1's codebook as the kernel reads it, [2048] int32: byte j = code j | code (j + 4) << 3."""
    codes = torch.from_numpy(iq1_grid().astype("int64")) + 1
    return ((codes[:, :4] | codes[:, 4:] << 3) << torch.arange(0, 32, 8)).sum(1).to(torch.int32).to(device)


def _check(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, blocks1: int) -> None:
    if x.dtype not in _DTYPES or x.dim() != 2 or x.shape[1] != blocks1 * 256 or x.stride(1) != 1:
        raise InputError(
            f"activations are [tokens, {blocks1 * 256}] float, rows contiguous; got {x.dtype} {list(x.shape)}"
        )
    if x.stride(0) * x.element_size() % 16 or x.data_ptr() % 16:
        raise InputError("activation rows start at multiples of 16 bytes", fix="call .contiguous() on a fresh tensor")
    if (
        ids.shape != weights.shape
        or ids.shape[0] != x.shape[0]
        or ids.dtype != torch.int32
        or weights.dtype != torch.float32
    ):
        raise InputError(f"expert ids are int32 and weights float32 [tokens, top_k]; got {ids.dtype}, {weights.dtype}")
    if not (ids.is_contiguous() and weights.is_contiguous()):
        raise InputError("expert ids and weights are contiguous")


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
    _check(x, expert_ids, expert_weights, words1.shape[2])
    device_idx = x.device.index
    shape = MoeShape(blocks1=words1.shape[2], width=width, num_rows2=num_rows2, top_k=expert_ids.shape[1])
    out = torch.empty(x.shape[0], num_rows2, dtype=x.dtype, device=x.device)
    step = tokens_per_launch(shape)
    stream = torch.cuda.current_stream(x.device).cuda_stream
    for start in range(0, x.shape[0], step):
        tokens = min(step, x.shape[0] - start)
        plan = _plan(shape, tokens)
        assert plan is not None
        function = load_kernel("iq1_s_moe", device_idx, _NUM_WARPS * 32, plan.shared_bytes, shape.defines())
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
            dtype=_DTYPES[x.dtype],
            tokens=tokens,
            num_local=words1.shape[0],
            activation=1 if situ_beta > 0 else 0,
            beta=situ_beta,
            linear_beta=situ_linear_beta,
            round_items=plan.round_items,
            chunk_experts=plan.chunk_experts,
        )
        for phases in (1, 2) if split else (3,):
            arguments.phases = phases
            function.launch(arguments, num_blocks=num_sms(device_idx), stream=stream, cooperative=phases == 3)
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
