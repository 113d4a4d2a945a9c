"""How is a dense product with Q8_0 weights launched?

Read first: ``linear_q8_0``; its meaning is ``reference.linear.linear``.
Does not do: pack weights (``layout``) or decide when to be used (``dispatch``).
"""

from __future__ import annotations

import ctypes

import torch

from freehold_kernels.cuda.element import DTYPE_NUMBER, check_rows
from freehold_kernels.cuda.kernel import load_kernel, num_sms, shared_limit
from freehold_kernels.errors import InputError

__all__ = ["linear_defines", "linear_q8_0", "linear_tokens_per_launch"]

_NUM_WARPS = 16
_OVERLAP = True
_MAX_TOKENS = 8
_STATIC_BYTES = 1 << 10
_WHOLE_TILES_LIMIT = 1.25


class _Arguments(ctypes.Structure):  # LinearArgs in q8_0_linear.cu
    _fields_ = (
        *[(n, ctypes.c_void_p) for n in ("x", "quants", "scales", "out", "parts", "counters")],
        *[(n, ctypes.c_longlong) for n in ("x_stride", "out_stride")],
    )


def _shared_bytes(units: int, tokens: int) -> int:
    return tokens * units * 512 + -(-tokens * units // 32) * 128 + _NUM_WARPS * 2 * tokens * 64


def linear_defines(
    num_rows: int, num_columns: int, tokens: int, dtype: torch.dtype, num_blocks: int
) -> tuple[tuple[str, int], ...]:
    """Return the macros for the compiler.

    Blocks take whole tiles where that leaves them at most a quarter more to do than equal shares would: adding up what
    several blocks know of one tile costs about as much.
    """
    tiles = -(-num_rows // 16)
    whole_tiles = tiles >= num_blocks and -(-tiles // num_blocks) * num_blocks <= _WHOLE_TILES_LIMIT * tiles
    return (
        ("COLUMNS", num_columns),
        ("DTYPE", DTYPE_NUMBER[dtype]),
        ("GRID", num_blocks),
        ("ROWS", num_rows),
        ("TOKENS", tokens),
        ("WARPS", _NUM_WARPS),
        ("WHOLE_TILES", int(whole_tiles)),
    )


def linear_tokens_per_launch(num_columns: int, limit: int) -> int:
    """Return how many tokens one launch takes for that many input columns: at most eight.

    Args:
        num_columns: Input width.
        limit: Bytes of shared memory a block may have on the device.

    Raises:
        InputError: Not even one token fits into shared memory.
    """
    units = -(-num_columns // 256)
    for tokens in range(_MAX_TOKENS, 0, -1):
        if _shared_bytes(units, tokens) + _STATIC_BYTES <= limit:
            return tokens
    raise InputError(
        f"{num_columns} input columns do not fit into shared memory", fix="leave the released kernels in charge"
    )


@torch.library.custom_op("freehold_kernels::linear_q8_0", mutates_args=("parts", "counters"), device_types="cuda")
def linear_q8_0(
    x: torch.Tensor,
    quants: torch.Tensor,
    scales: torch.Tensor,
    parts: torch.Tensor,
    counters: torch.Tensor,
    num_rows: int,
    num_columns: int,
) -> torch.Tensor:
    """Multiply by a packed Q8_0 matrix: one launch per ``linear_tokens_per_launch`` tokens.

    Shapes:
        x: [tokens, num_columns]; quants, scales: see ``layout.q8_0``; parts: [≥ SMs, 2, 8, 16] float32; counters:
        [tiles] int32, zero at first; neither is shared by concurrent launches; returns: [tokens, num_rows], x's dtype.
    """
    check_rows(x, num_columns)
    device_idx = x.device.index
    tiles, units = quants.shape[:2]
    num_blocks = min(num_sms(device_idx), tiles * units)
    if parts.shape[0] < num_blocks or counters.numel() < tiles:
        raise InputError(
            f"the workspace serves {parts.shape[0]} blocks and {counters.numel()} tiles; needed: {num_blocks}, {tiles}"
        )
    if tiles * units * num_blocks >= 1 << 31:
        raise InputError(f"a matrix of {num_rows} × {num_columns} is too large for 32-bit shares", fix="split its rows")
    out = torch.empty(x.shape[0], num_rows, dtype=x.dtype, device=x.device)
    step = linear_tokens_per_launch(num_columns, shared_limit(device_idx))
    stream = torch.cuda.current_stream(x.device).cuda_stream
    for start in range(0, x.shape[0], step):
        tokens = min(step, x.shape[0] - start)
        shared = _shared_bytes(units, tokens)
        defines = linear_defines(num_rows, num_columns, tokens, x.dtype, num_blocks)
        function = load_kernel("q8_0_linear", device_idx, _NUM_WARPS * 32, shared, defines)
        arguments = _Arguments(
            x=x[start].data_ptr(),
            quants=quants.data_ptr(),
            scales=scales.data_ptr(),
            out=out[start].data_ptr(),
            parts=parts.data_ptr(),
            counters=counters.data_ptr(),
            x_stride=x.stride(0),
            out_stride=out.stride(0),
        )
        function.launch(arguments, num_blocks=num_blocks, stream=stream, cooperative=False, overlap=_OVERLAP)
    return out


@linear_q8_0.register_fake
def _(
    x: torch.Tensor,
    quants: torch.Tensor,
    scales: torch.Tensor,
    parts: torch.Tensor,
    counters: torch.Tensor,
    num_rows: int,
    num_columns: int,
) -> torch.Tensor:
    return x.new_empty(x.shape[0], num_rows)
