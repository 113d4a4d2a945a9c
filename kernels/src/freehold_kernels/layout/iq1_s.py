"""How are IQ1_S weights laid out for the kernels?

A unit is 32 rows × 256 weights: 1536 bytes of words and 64 bytes of scales, the same 1600 bytes as in
the file. Lane (r, q), r = lane // 4, q = lane % 4, owns rows r and r + 8 of two 16-row tiles and in
each the weight groups q and 4 + q: eight scale codes and 32 codebook indices of 11 bits, which are
twelve 32-bit words:

- lookup L = ((tile · 2 + h) · 4 + j) · 2 + half is codebook row j of group 4h + q in row 8·half + r;
- word i < 11 holds lookup 2i in bits 2–12 and lookup 2i + 1 in bits 13–23 (an index moved left by two is
  a byte offset into the codebook);
- lookup 22 + i, i < 10, sits in the bits left over: its bits 1–8 in bits 24–31 of word i, bits 9–10 in
  bits 0–1 of word i, bit 0 in word 10 (bits 24–31, 0, 1);
- word 11 holds eight nibbles, c = (tile · 2 + h) · 2 + half: scale code in bits 0–2, bit 3 for a shift of −1/8.

Words are stored [3][32 lanes][4], so that each of a lane's three loads is 16 bytes and a warp's is 512.
Scales are stored [r][tile · 2 + half].

Read first: ``pack_iq1_s``.
Does not do: sharding; rows and columns must be cut to a rank's part before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from freehold_kernels.errors import InputError

__all__ = ["UNIT_ROWS", "PackedIQ1S", "pack_gate_up_iq1_s", "pack_iq1_s", "unpack_iq1_s"]

UNIT_ROWS = 32
_BLOCK_BYTES = 50
# Bytes of int64 scratch that packing may use at once; far below any expert tensor.
_SCRATCH_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedIQ1S:
    """IQ1_S rows in unit order.

    Attributes:
        words: ``[experts, tiles, blocks, 3, 32, 4]`` int32.
        scales: ``[experts, tiles, blocks, 8, 4]`` int16, the bits of fp16 numbers.
        num_rows: Rows per expert before padding to 32 (for gate and up: of both together).
    """

    words: torch.Tensor
    scales: torch.Tensor
    num_rows: int

    @property
    def num_bytes(self) -> int:
        """Bytes of both tensors."""
        return self.words.numel() * 4 + self.scales.numel() * 2


def _check(weight: torch.Tensor) -> None:
    if weight.dtype != torch.uint8 or weight.dim() != 3 or weight.shape[2] % _BLOCK_BYTES or not weight.numel():
        raise InputError(
            f"IQ1_S weights are uint8 [experts, rows, 50 · blocks], got {weight.dtype} {list(weight.shape)}",
            fix="cut shards at whole blocks of 256 weights",
        )


def _to_int32(words: torch.Tensor) -> torch.Tensor:
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def _pack_units(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, 32, blocks, 50] uint8, row = 16·tile + 8·half + r → words [n, blocks, 3, 32, 4], scales [n, blocks, 8, 4]."""
    n, _, blocks, _ = rows.shape
    wide = rows.to(torch.int64)
    d = wide[..., 0] | wide[..., 1] << 8  # [n, 32, blocks]
    high = (wide[..., 34::2] | wide[..., 35::2] << 8).unsqueeze(-1)  # [n, 32, blocks, 8, 1]
    shifts = torch.tensor([0, 3, 6, 9], device=rows.device)
    index = wide[..., 2:34].reshape(n, UNIT_ROWS, blocks, 8, 4) | ((high >> shifts) & 7) << 8
    code = (high.squeeze(-1) >> 12) & 15  # shift sign on top of the 3-bit code, as in the file
    # [n, tile, half, r, blocks, h, q, j] → [n, blocks, r, q, tile, h, j, half]
    index = index.reshape(n, 2, 2, 8, blocks, 2, 4, 4).permute(0, 4, 3, 6, 1, 5, 7, 2).reshape(n, blocks, 32, 32)
    code = code.reshape(n, 2, 2, 8, blocks, 2, 4).permute(0, 4, 3, 6, 1, 5, 2).reshape(n, blocks, 32, 8)
    words = torch.zeros(n, blocks, 32, 12, dtype=torch.int64, device=rows.device)
    words[..., :11] = index[..., 0:22:2] << 2 | index[..., 1:22:2] << 13
    spare = index[..., 22:32]
    words[..., :10] |= ((spare >> 1) & 255) << 24 | spare >> 9
    low = spare & 1
    place = torch.tensor([24, 25, 26, 27, 28, 29, 30, 31, 0, 1], device=rows.device)
    words[..., 10] |= (low << place).sum(-1)
    words[..., 11] = (code << torch.arange(0, 32, 4, device=rows.device)).sum(-1)
    words = _to_int32(words).reshape(n, blocks, 32, 3, 4).transpose(2, 3)
    d = d.reshape(n, 2, 2, 8, blocks).permute(0, 4, 3, 1, 2).reshape(n, blocks, 8, 4)
    return words, torch.where(d >= 1 << 15, d - (1 << 16), d).to(torch.int16)


def _pack_tiles(weight: torch.Tensor, order: torch.Tensor, num_rows: int) -> PackedIQ1S:
    """Pack ``weight`` with row ``order[k]`` in place k; −1 stands for a row of zeros."""
    experts, _, row_bytes = weight.shape
    blocks, tiles = row_bytes // _BLOCK_BYTES, len(order) // UNIT_ROWS
    words = torch.empty(experts, tiles, blocks, 3, 32, 4, dtype=torch.int32, device=weight.device)
    scales = torch.empty(experts, tiles, blocks, 8, 4, dtype=torch.int16, device=weight.device)
    padding = (order < 0).reshape(tiles, UNIT_ROWS)
    take = order.clamp(min=0).reshape(tiles, UNIT_ROWS)
    # scratch per tile: about five int64 copies of its bytes
    step = max(1, _SCRATCH_BYTES // (5 * 8 * UNIT_ROWS * row_bytes))
    for e in range(experts):
        for t in range(0, tiles, step):
            rows = weight[e, take[t : t + step].reshape(-1)].reshape(-1, UNIT_ROWS, blocks, _BLOCK_BYTES)
            rows = rows.masked_fill(padding[t : t + step, :, None, None], 0)
            words[e, t : t + step], scales[e, t : t + step] = _pack_units(rows)
    return PackedIQ1S(words=words, scales=scales, num_rows=num_rows)


def pack_iq1_s(weight: torch.Tensor) -> PackedIQ1S:
    """Lay out plain rows (the down projection): unit row k is weight row k.

    Shapes:
        weight: [experts, rows, 50 · blocks] uint8, as in the file.

    Raises:
        InputError: Wrong dtype or shape.
    """
    _check(weight)
    rows = weight.shape[1]
    order = torch.arange(-(-rows // UNIT_ROWS) * UNIT_ROWS, device=weight.device)
    return _pack_tiles(weight, torch.where(order < rows, order, -1), rows)


def pack_gate_up_iq1_s(weight: torch.Tensor) -> PackedIQ1S:
    """Lay out merged gate and up rows: each unit holds 16 gate rows and the 16 up rows they meet.

    Shapes:
        weight: [experts, 2 · width, 50 · blocks] uint8, the gate rows first.

    Raises:
        InputError: Wrong dtype or shape, or an odd number of rows.
    """
    _check(weight)
    if weight.shape[1] % 2:
        raise InputError(f"merged gate and up rows come in pairs, got {weight.shape[1]} rows")
    return _pack_tiles(weight, _gate_up_order(weight.shape[1] // 2, weight.device), weight.shape[1])


def _gate_up_order(width: int, device: torch.device) -> torch.Tensor:
    gate = torch.arange(-(-width // 16) * 16, device=device)
    gate = torch.where(gate < width, gate, -1).reshape(-1, 1, 16)
    return torch.cat([gate, torch.where(gate < 0, -1, gate + width)], dim=1).reshape(-1)


def unpack_iq1_s(packed: PackedIQ1S, *, is_gate_up: bool = False) -> torch.Tensor:
    """Give back the file's bytes; the inverse of both pack functions.

    Shapes:
        returns: [experts, rows, 50 · blocks] uint8.
    """
    experts, tiles, blocks = packed.words.shape[:3]
    device = packed.words.device
    words = packed.words.to(torch.int64) & 0xFFFFFFFF
    words = words.transpose(3, 4).reshape(experts, tiles, blocks, 32, 12)
    index = torch.empty(experts, tiles, blocks, 32, 32, dtype=torch.int64, device=device)
    index[..., 0:22:2] = (words[..., :11] >> 2) & 2047
    index[..., 1:22:2] = (words[..., :11] >> 13) & 2047
    place = torch.tensor([24, 25, 26, 27, 28, 29, 30, 31, 0, 1], device=device)
    index[..., 22:] = (words[..., 10:11] >> place) & 1 | (words[..., :10] >> 24) << 1 | (words[..., :10] & 3) << 9
    code = (words[..., 11:12] >> torch.arange(0, 32, 4, device=device)) & 15
    # [.., r, q, tile, h, j, half] → [.., tile, half, r, blocks, h, q, j]
    index = index.reshape(experts, tiles, blocks, 8, 4, 2, 2, 4, 2).permute(0, 1, 5, 8, 3, 2, 6, 4, 7)
    index = index.reshape(experts, tiles * UNIT_ROWS, blocks, 8, 4)
    code = code.reshape(experts, tiles, blocks, 8, 4, 2, 2, 2).permute(0, 1, 5, 7, 3, 2, 6, 4)
    code = code.reshape(experts, tiles * UNIT_ROWS, blocks, 8)
    d = packed.scales.to(torch.int64).reshape(experts, tiles, blocks, 8, 2, 2).permute(0, 1, 4, 5, 3, 2)
    d = d.reshape(experts, tiles * UNIT_ROWS, blocks) & 0xFFFF
    high = code << 12 | ((index >> 8) << torch.tensor([0, 3, 6, 9], device=device)).sum(-1)
    out = torch.empty(experts, tiles * UNIT_ROWS, blocks, _BLOCK_BYTES, dtype=torch.uint8, device=device)
    out[..., 0], out[..., 1] = (d & 255).to(torch.uint8), (d >> 8).to(torch.uint8)
    out[..., 2:34] = (index & 255).reshape(*index.shape[:3], 32).to(torch.uint8)
    out[..., 34::2], out[..., 35::2] = (high & 255).to(torch.uint8), (high >> 8).to(torch.uint8)
    out = out.reshape(experts, tiles * UNIT_ROWS, blocks * _BLOCK_BYTES)
    if not is_gate_up:
        return out[:, : packed.num_rows]
    order = _gate_up_order(packed.num_rows // 2, device)
    result = torch.empty(experts, packed.num_rows, out.shape[2], dtype=torch.uint8, device=device)
    result[:, order[order >= 0]] = out[:, order >= 0]
    return result
