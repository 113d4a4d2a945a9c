"""How are Q8_0 weights laid out for the kernels?

A unit is 16 rows × 256 weights: 4096 bytes of quants and 256 bytes of scales. Lane (r, q), r = lane // 4,
q = lane % 4, reads for each of the eight 32-weight blocks 16 bytes: weights 8q … 8q+3 of rows r and r + 8, then
8q+4 … 8q+7 of both, which is its fragment of a tensor-core product.

- quants: ``[tiles, units, 8 blocks, 32 lanes, 16]``;
- scales: ``[tiles, units, r, half, 8 blocks]`` fp16, row = 8·half + r.

Rows are padded to 16 and columns to 256 with zeros; ``PackedQ8.padding_share`` says what that costs.

Read first: ``pack_q8_0``.
Does not do: sharding; rows and columns must be cut to a rank's part before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from freehold_kernels.errors import InputError

__all__ = ["PackedQ8", "pack_q8_0", "unpack_q8_0"]

_UNIT_ROWS = 16
_BLOCK_BYTES = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedQ8:
    """A Q8_0 matrix in unit order.

    Attributes:
        quants: ``[tiles, units, 8, 32, 16]`` int8.
        scales: ``[tiles, units, 8, 2, 8]`` int16, the bits of fp16 numbers.
        num_rows: Rows before padding.
        num_columns: Weights per row before padding.
    """

    quants: torch.Tensor
    scales: torch.Tensor
    num_rows: int
    num_columns: int

    @property
    def num_bytes(self) -> int:
        """Bytes of both tensors."""
        return self.quants.numel() + self.scales.numel() * 2

    @property
    def padding_share(self) -> float:
        """Extra bytes over the file's, as a share of the file's (0 = none)."""
        return self.num_bytes / (self.num_rows * self.num_columns // 32 * _BLOCK_BYTES) - 1


def pack_q8_0(weight: torch.Tensor) -> PackedQ8:
    """Lay out a Q8_0 matrix for the kernels.

    Shapes:
        weight: [rows, 34 · blocks] uint8, as in the file.

    Raises:
        InputError: Wrong dtype or shape.
    """
    if weight.dtype != torch.uint8 or weight.dim() != 2 or weight.shape[1] % _BLOCK_BYTES or not weight.numel():
        raise InputError(
            f"Q8_0 weights are uint8 [rows, 34 · blocks], got {weight.dtype} {list(weight.shape)}",
            fix="cut shards at whole blocks of 32 weights",
        )
    rows, blocks = weight.shape[0], weight.shape[1] // _BLOCK_BYTES
    tiles, units = -(-rows // _UNIT_ROWS), -(-blocks // 8)
    quants = torch.empty(tiles, units, 8, 32, 16, dtype=torch.int8, device=weight.device)
    scales = torch.empty(tiles, units, 8, 2, 8, dtype=torch.int16, device=weight.device)
    step = max(1, (64 << 20) // (_UNIT_ROWS * weight.shape[1]))
    for t in range(0, tiles, step):
        part = weight[t * _UNIT_ROWS : (t + step) * _UNIT_ROWS].reshape(-1, blocks, _BLOCK_BYTES)
        n = min(step, tiles - t)
        if part.shape[0] != n * _UNIT_ROWS or blocks != units * 8:
            padded = part.new_zeros(n * _UNIT_ROWS, units * 8, _BLOCK_BYTES)
            padded[: part.shape[0], :blocks] = part
            part = padded
        part = part.reshape(n, 2, 8, units, 8, _BLOCK_BYTES)  # [tile, half, r, unit, block, 34]
        q = part[..., 2:].reshape(n, 2, 8, units, 8, 4, 2, 4)  # [.., q, quarter pair, 4]
        quants[t : t + n] = q.permute(0, 3, 4, 2, 5, 6, 1, 7).reshape(n, units, 8, 32, 16).view(torch.int8)
        d = part[..., :2].contiguous().view(torch.int16).squeeze(-1)  # [tile, half, r, unit, block]
        scales[t : t + n] = d.permute(0, 3, 2, 1, 4)
    return PackedQ8(quants=quants, scales=scales, num_rows=rows, num_columns=blocks * 32)


def unpack_q8_0(packed: PackedQ8) -> torch.Tensor:
    """Give back the file's bytes, ``[rows, 34 · blocks]`` uint8; the inverse of ``pack_q8_0``."""
    tiles, units = packed.quants.shape[:2]
    q = packed.quants.view(torch.uint8).reshape(tiles, units, 8, 8, 4, 2, 2, 4)  # [.., block, r, q, pair, half, 4]
    q = q.permute(0, 6, 3, 1, 2, 4, 5, 7).reshape(tiles, 2, 8, units, 8, 32)
    d = packed.scales.permute(0, 3, 2, 1, 4).contiguous().unsqueeze(-1).view(torch.uint8)
    out = torch.cat([d.reshape(tiles, 2, 8, units, 8, 2), q], dim=-1).reshape(
        tiles * _UNIT_ROWS, units * 8, _BLOCK_BYTES
    )
    out = out[: packed.num_rows, : packed.num_columns // 32]
    return out.reshape(packed.num_rows, -1)
