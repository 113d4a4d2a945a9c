"""Which part of a tensor each rank holds: exact slices along one axis, never through a quantisation block.

A block-quantised tensor is a row-major array of blocks along its last axis. Cutting another axis is free; cutting the
last one is only possible between blocks. 1,536 weights in blocks of 256 are 6 blocks: 2 or 3 ranks get whole ones, 4
would get one and a half each. Read :func:`even_slices`, :func:`uneven_slices`, then :func:`byte_runs`.

Does not do: which axis of which tensor is cut (``plan/legality.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from freehold.errors import PlanError

__all__ = ["ShardSlice", "byte_runs", "even_slices", "objection", "padded_length", "uneven_slices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSlice:
    """What one rank holds of a tensor.

    Args:
        rank: The rank.
        axis: The axis that is cut, counted from the front.
        start: First index on that axis.
        stop: Index after the last one.
        bytes: Payload of the slice.
    """

    rank: int
    axis: int
    start: int
    stop: int
    bytes: int

    @property
    def length(self) -> int:
        """Indices on the axis."""
        return self.stop - self.start


def objection(length: int, block: int, ranks: int) -> str | None:
    """Why an axis cannot be divided evenly; None where it can.

    Args:
        length: Elements on the axis.
        block: Elements that cannot be parted on it: the block on the last axis, 1 on any other.
        ranks: Ranks to divide between.

    Returns:
        The sum: ``1536/4 = 384 = 1.5 blocks of 256``, or ``128/3 = 42.67``.
    """
    if length % ranks:
        return f"{length}/{ranks} = {length / ranks:.2f}"
    share = length // ranks
    if share % block:
        return f"{length}/{ranks} = {share} = {share / block:.4g} blocks of {block}"
    return None


def padded_length(length: int, block: int, ranks: int) -> int:
    """The axis with as many more elements as an even division in whole blocks needs.

    Args:
        length: Elements on the axis.
        block: Elements that cannot be parted.
        ranks: Ranks to divide between.
    """
    quantum = block * ranks
    return -(-length // quantum) * quantum


def even_slices(
    shape: Sequence[int], *, axis: int, ranks: int, block: int = 1, block_bytes: int = 1
) -> tuple[ShardSlice, ...]:
    """Divide a tensor evenly along one axis.

    Args:
        shape: Row-major shape.
        axis: Axis to cut; negative ones count from the end.
        ranks: Ranks to divide between (>= 1).
        block: Weights per block along the last axis.
        block_bytes: Bytes per block.

    Raises:
        PlanError: It cannot be divided that way; the sum is given.
        ValueError: The arguments describe no tensor.
    """
    place = _check(shape, axis, ranks, block)
    why = objection(shape[place], block if place == len(shape) - 1 else 1, ranks)
    if why is not None:
        raise PlanError(
            f"the axis cannot be divided between {ranks} ranks: {why}",
            why="a block of quantised weights shares one scale and cannot be parted",
            fix="divide whole experts, divide unevenly between blocks, pad the axis, or choose another number of ranks",
        )
    share = shape[place] // ranks
    return _slices(shape, place, [share] * ranks, block, block_bytes)


def uneven_slices(
    shape: Sequence[int], *, axis: int, ranks: int, block: int = 1, block_bytes: int = 1
) -> tuple[ShardSlice, ...]:
    """Divide a tensor along one axis in whole blocks, as evenly as they allow; the first ranks get the more.

    Args:
        shape: Row-major shape.
        axis: Axis to cut; negative ones count from the end.
        ranks: Ranks to divide between (>= 1).
        block: Weights that cannot be parted on that axis.
        block_bytes: Bytes per block of the last axis.

    Returns:
        One slice per rank; a rank may get none where there are fewer blocks than ranks.

    Raises:
        ValueError: The arguments describe no tensor.
    """
    place = _check(shape, axis, ranks, block)
    if shape[place] % block:
        raise ValueError(f"an axis of {shape[place]} is no whole number of blocks of {block}")
    units, more = divmod(shape[place] // block, ranks)
    return _slices(shape, place, [(units + (rank < more)) * block for rank in range(ranks)], block, block_bytes)


def byte_runs(
    shape: Sequence[int], part: ShardSlice, *, block: int = 1, block_bytes: int = 1
) -> Iterator[tuple[int, int]]:
    """Where a slice lies in the tensor's data: offset and length of each contiguous run, in order.

    Args:
        shape: Row-major shape of the whole tensor.
        part: The slice.
        block: Weights per block along the last axis.
        block_bytes: Bytes per block.
    """
    if part.length == 0:
        return
    outer = prod(shape[: part.axis])
    inner = prod(shape[part.axis + 1 :])  # elements below one index of the axis
    stride = shape[part.axis] * inner // block * block_bytes
    offset, size = part.start * inner // block * block_bytes, part.length * inner // block * block_bytes
    if size == stride:
        yield 0, outer * stride
        return
    for position in range(outer):
        yield position * stride + offset, size


def _check(shape: Sequence[int], axis: int, ranks: int, block: int) -> int:
    if not shape or min(shape) < 1 or ranks < 1 or block < 1 or not -len(shape) <= axis < len(shape):
        raise ValueError(f"no division: shape {tuple(shape)}, axis {axis}, {ranks} ranks, blocks of {block}")
    return axis % len(shape)


def _slices(
    shape: Sequence[int], axis: int, lengths: Sequence[int], block: int, block_bytes: int
) -> tuple[ShardSlice, ...]:
    others = prod(shape) // shape[axis]
    slices, start = [], 0
    for rank, length in enumerate(lengths):
        slices.append(
            ShardSlice(
                rank=rank, axis=axis, start=start, stop=start + length, bytes=others * length // block * block_bytes
            )
        )
        start += length
    return tuple(slices)
