"""Which kernel should run for a shape on a device: ours or the released one?

The rules come from measurements (docs/kernels.md): ours is chosen only where it was measured faster, on hardware where
its results were checked. Every answer carries its reason.

Read first: ``choose_linear`` and ``choose_routed_experts``. Both are pure: no GPU is asked.
Does not do: run anything, or know an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from freehold_kernels.cuda.linear import linear_tokens_per_launch
from freehold_kernels.cuda.moe import MoeShape, tokens_per_launch
from freehold_kernels.errors import InputError

__all__ = ["Choice", "Device", "choose_linear", "choose_routed_experts"]

_VALIDATED = {(9, 0): "H200, 2026-11-30"}
_COMPILED_ONLY = {(10, 0), (12, 0), (12, 1)}
_MAX_TOKENS = 8  # measured range; more tokens are prefill, which the released tensor-core kernels serve
_MAX_PADDING_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What the choice depends on.

    Attributes:
        capability: Compute capability, e.g. ``(9, 0)``.
        shared_limit: Bytes of shared memory one block may have.
    """

    capability: tuple[int, int]
    shared_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The answer and why.

    Attributes:
        kernel: Name of our kernel, or ``None`` for the released one.
        reason: One sentence.
    """

    kernel: str | None
    reason: str


def _refuse_device(device: Device, allow_unvalidated: bool) -> str | None:
    if device.capability in _VALIDATED:
        return None
    major, minor = device.capability
    if device.capability in _COMPILED_ONLY:
        return None if allow_unvalidated else f"compute capability {major}.{minor} compiles but was never validated"
    return f"compute capability {major}.{minor} is not one the kernels are compiled for"


def _refuse_tokens(tokens: int) -> str | None:
    return None if 1 <= tokens <= _MAX_TOKENS else f"{tokens} tokens: measured for 1 to {_MAX_TOKENS} only"


def choose_linear(
    format_name: str, rows: int, columns: int, tokens: int, device: Device, *, allow_unvalidated: bool = False
) -> Choice:
    """Choose for a dense product.

    Args:
        format_name: ggml's name of the weight type.
        rows: Output width on this rank.
        columns: Input width on this rank.
        tokens: Rows of activations.
        device: Where it runs.
        allow_unvalidated: Accept devices for which the kernels only compile.
    """
    if format_name != "Q8_0":
        return Choice(kernel=None, reason=f"no dense kernel for {format_name}")
    refusal = _refuse_device(device, allow_unvalidated) or _refuse_tokens(tokens)
    if refusal:
        return Choice(kernel=None, reason=refusal)
    padded = -(-rows // 16) * 16 * (-(-columns // 256) * 256)
    if padded > (1 + _MAX_PADDING_SHARE) * rows * columns:
        share = padded / (rows * columns) - 1
        return Choice(kernel=None, reason=f"padding to tiles of 16 × 256 would add {share:.0%} of memory")
    try:
        linear_tokens_per_launch(columns, device.shared_limit)
    except InputError as error:
        return Choice(kernel=None, reason=error.what)
    return Choice(kernel="q8_0_linear", reason="faster at every measured shape (1.5 to 12.6 times, H200)")


def choose_routed_experts(
    format_name: str, shape: MoeShape, tokens: int, device: Device, *, allow_unvalidated: bool = False
) -> Choice:
    """Choose for the routed experts of a layer; both projections have the same weight type.

    Args:
        format_name: ggml's name of the weight type.
        shape: The layer on this rank.
        tokens: Rows of activations.
        device: Where it runs.
        allow_unvalidated: Accept devices for which the kernels only compile.
    """
    if format_name != "IQ1_S":
        return Choice(kernel=None, reason=f"no routed-expert kernel for {format_name}")
    refusal = _refuse_device(device, allow_unvalidated) or _refuse_tokens(tokens)
    if refusal:
        return Choice(kernel=None, reason=refusal)
    padded1, padded2 = -(-shape.width // 16) * 16 / shape.width, -(-shape.num_rows2 // 32) * 32 / shape.num_rows2
    if max(padded1, padded2) > 1 + _MAX_PADDING_SHARE:
        return Choice(kernel=None, reason="padding rows to tiles of 16 and 32 would add more than 2 % of memory")
    try:
        tokens_per_launch(shape, device.shared_limit)
    except InputError as error:
        return Choice(kernel=None, reason=error.what)
    return Choice(kernel="iq1_s_moe", reason="faster at every measured shape (2.5 to 4.6 times, H200)")
