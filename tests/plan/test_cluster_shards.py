"""Slices of tensors: every element once, every byte once, never through a block."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.errors import PlanError
from freehold.plan.shards import byte_runs, even_slices, objection, padded_length, uneven_slices

FORMATS = [(1, 2), (32, 34), (256, 50), (16, 9)]


@st.composite
def tensors(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int, int]:
    """Shape, axis, block and bytes per block; rows are whole blocks."""
    block, block_bytes = draw(st.sampled_from(FORMATS))
    leading = draw(st.lists(st.integers(1, 6), max_size=2))
    shape = (*leading, block * draw(st.integers(1, 8)))
    return shape, draw(st.integers(0, len(shape) - 1)), block, block_bytes


@given(tensors(), st.integers(1, 7))
def test_uneven_slices_cover_every_element_and_every_byte_once(
    tensor: tuple[tuple[int, ...], int, int, int], ranks: int
) -> None:
    shape, axis, block, block_bytes = tensor
    unit = block if axis == len(shape) - 1 else 1
    slices = uneven_slices(shape, axis=axis, ranks=ranks, block=unit, block_bytes=1)
    assert [s.start for s in slices[1:]] == [s.stop for s in slices[:-1]]
    assert (slices[0].start, slices[-1].stop) == (0, shape[axis])
    assert all(s.start % unit == 0 and s.stop % unit == 0 for s in slices)
    assert max(s.length for s in slices) - min(s.length for s in slices) <= unit
    seen = bytearray(_payload(shape, block, block_bytes))
    for part in slices:
        for offset, size in byte_runs(shape, part, block=block, block_bytes=block_bytes):
            for i in range(offset, offset + size):
                seen[i] += 1
    assert set(seen) == {1}


@given(tensors(), st.integers(1, 7))
def test_an_even_division_is_exact_or_refused(tensor: tuple[tuple[int, ...], int, int, int], ranks: int) -> None:
    shape, axis, block, block_bytes = tensor
    unit = block if axis == len(shape) - 1 else 1
    why = objection(shape[axis], unit, ranks)
    if why is not None:
        with pytest.raises(PlanError, match="cannot be divided") as refused:
            even_slices(shape, axis=axis, ranks=ranks, block=block, block_bytes=block_bytes)
        assert why in refused.value.what
        return
    slices = even_slices(shape, axis=axis, ranks=ranks, block=block, block_bytes=block_bytes)
    assert len({s.length for s in slices}) == 1
    assert sum(s.bytes for s in slices) == _payload(shape, block, block_bytes)
    runs = sorted(r for s in slices for r in byte_runs(shape, s, block=block, block_bytes=block_bytes))
    assert sum(size for _, size in runs) == _payload(shape, block, block_bytes)
    assert all(a + size <= b for (a, size), (b, _) in pairwise(runs))


def _payload(shape: tuple[int, ...], block: int, block_bytes: int) -> int:
    count = 1
    for axis in shape:
        count *= axis
    return count // block * block_bytes


def test_the_published_case_is_refused_with_its_sum() -> None:
    assert objection(1536, 256, 4) == "1536/4 = 384 = 1.5 blocks of 256"
    assert objection(1536, 256, 8) == "1536/8 = 192 = 0.75 blocks of 256"
    assert [ranks for ranks in range(1, 9) if objection(1536, 256, ranks) is None] == [1, 2, 3, 6]
    assert objection(128, 1, 3) == "128/3 = 42.67"


def test_six_blocks_over_four_ranks_are_two_two_one_one() -> None:
    slices = uneven_slices((896, 3584, 1536), axis=-1, ranks=4, block=256, block_bytes=50)
    assert [s.length for s in slices] == [512, 512, 256, 256]
    assert sum(s.bytes for s in slices) == 896 * 3584 * 1536 // 256 * 50
    assert padded_length(1536, 256, 4) == 2048


def test_more_ranks_than_blocks_leave_some_with_nothing() -> None:
    slices = uneven_slices((4, 512), axis=1, ranks=3, block=256, block_bytes=50)
    assert [s.length for s in slices] == [256, 256, 0]
    assert list(byte_runs((4, 512), slices[2], block=256, block_bytes=50)) == []


@pytest.mark.parametrize(
    ("shape", "axis", "ranks"), [((), 0, 1), ((4, 0), 0, 1), ((4,), 1, 1), ((4,), -2, 1), ((4,), 0, 0)]
)
def test_what_is_no_tensor_is_a_mistake_of_the_caller(shape: tuple[int, ...], axis: int, ranks: int) -> None:
    with pytest.raises(ValueError, match="no division"):
        even_slices(shape, axis=axis, ranks=ranks)
