"""The read bandwidth is that of memory which is really read, by all threads at once, and its best stretch counts."""

from __future__ import annotations

import ctypes
import mmap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.hardware import bandwidth
from freehold.hardware.bandwidth import (
    MAX_WORKING_SET_BYTES,
    ReadCall,
    best_and_median,
    measure_read_bandwidth,
    slice_rates,
)

MIB = 2**20


def calls(*rows: tuple[float, float, int]) -> list[ReadCall]:
    return [ReadCall(*row) for row in rows]


def test_one_thread_at_a_constant_rate_gives_that_rate_in_every_stretch() -> None:
    reads = calls(*((i * 0.1, (i + 1) * 0.1, 100) for i in range(10)))  # 1,000 B/s for a second
    assert slice_rates([reads], 0.2, 5) == pytest.approx([1000.0] * 5)


def test_threads_add_up_only_while_all_of_them_read() -> None:
    early = calls((0.0, 1.0, 1000), (1.0, 2.0, 1000))
    late = calls((1.0, 2.0, 500), (2.0, 3.0, 500))
    # both read from 1.0 to 2.0: 1,000 + 500 B/s
    assert slice_rates([early, late], 0.5, 1) == pytest.approx([1500.0, 1500.0])


def test_a_slow_stretch_does_not_hide_the_fast_one() -> None:
    reads = calls((0.0, 1.0, 1000), (1.0, 2.0, 100), (2.0, 3.0, 1000))
    assert slice_rates([reads], 1.0, 1) == pytest.approx([1000.0, 100.0, 1000.0])
    assert best_and_median([1000.0, 100.0, 1000.0]) == (1000.0, 1000.0)


def test_a_pause_between_calls_is_time_without_bytes() -> None:
    reads = calls((0.0, 0.5, 500), (1.5, 2.0, 500))
    assert slice_rates([reads], 1.0, 2) == pytest.approx([500.0, 500.0])


def test_threads_that_never_read_together_have_no_common_rate() -> None:
    assert slice_rates([calls((0.0, 1.0, 1)), calls((1.0, 2.0, 1))], 0.1, 5) == []


@given(
    st.lists(st.tuples(st.floats(0.001, 0.1), st.integers(1, 10**9)), min_size=1, max_size=30),
    st.integers(1, 9),
)
def test_no_byte_is_lost_or_counted_twice(rows: list[tuple[float, int]], min_slices: int) -> None:
    reads, now = [], 0.0
    for duration, size in rows:
        reads.append(ReadCall(now, now + duration, size))
        now += duration
    rates = slice_rates([reads], 0.05, min_slices)
    assert len(rates) >= min_slices
    assert sum(rates) * (now / len(rates)) == pytest.approx(sum(size for _, size in rows), rel=1e-6)


# --- the real measurement ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["memchr", "memcmp"])
@pytest.mark.parametrize("place", [0, 1, 4095, MIB // 2 - 1, MIB // 2, MIB - 64, MIB - 1])
def test_the_kernels_read_every_byte(name: str, place: int) -> None:
    """A byte that is not like the others is found wherever it is, so all before it were read."""
    kernel = bandwidth._kernels()[name]
    with bandwidth._Buffer(MIB) as address:
        assert kernel(address, MIB)
        ctypes.memset(address + place, 0, 1)
        assert not kernel(address, MIB)


def test_the_buffer_has_pages_of_its_own() -> None:
    """Without writing, all reads would hit one page of zeros in the cache, and the rate would be a fiction."""
    with bandwidth._Buffer(64 * mmap.PAGESIZE) as address:
        assert ctypes.string_at(address, 64 * mmap.PAGESIZE) == b"\x01" * (64 * mmap.PAGESIZE)


def test_the_rate_is_that_of_reading_and_not_of_calling() -> None:
    """Reading eight times as many bytes takes longer: a kernel that stopped early would not."""
    kernel = bandwidth._kernels()["memchr"]
    with bandwidth._Buffer(64 * MIB) as address:

        def fastest(size: int) -> float:
            durations = []
            for _ in range(9):
                began = time.perf_counter()
                kernel(address, size)
                durations.append(time.perf_counter() - began)
            return min(durations)

        assert fastest(64 * MIB) > 2 * fastest(8 * MIB)


def test_this_machine_is_measured_in_bounded_time() -> None:
    began = time.monotonic()
    evidence = measure_read_bandwidth(8 * MIB, num_threads=2, free_memory_bytes=None, date="2026-11-30")
    assert time.monotonic() - began < 10, "about a second, more on a loaded machine"
    assert evidence.kind == "measured"
    assert evidence.unit == "bytes/s"
    assert evidence.n is not None
    assert evidence.n >= 5
    assert evidence.date == "2026-11-30"
    assert isinstance(evidence.value, float)
    assert 10**8 < evidence.value < 10**13, "between 0.1 GB/s and 10 TB/s"
    assert "memchr and memcmp over 8.0 MiB, 2 threads, best of" in evidence.source
    assert "median" in evidence.source


@pytest.mark.parametrize(
    ("asked", "free", "expected"),
    [
        (100 * MIB, None, "over 100.0 MiB, "),
        (100 * MIB, 400 * MIB, "over 50.0 MiB (a step reads 100.0 MiB), "),
        (10 * MAX_WORKING_SET_BYTES, None, "over 256.0 MiB (a step reads 2.5 GiB), "),
        (1000, None, "over 1.0 MiB, "),
    ],
)
def test_the_working_set_is_capped_and_the_source_says_so(
    monkeypatch: pytest.MonkeyPatch, asked: int, free: int | None, expected: str
) -> None:
    monkeypatch.setattr(bandwidth, "_run", lambda kernels, size, threads: [1e9, 2e9, 3e9, 1e9, 2e9])
    evidence = measure_read_bandwidth(asked, num_threads=1, free_memory_bytes=free)
    assert expected in evidence.source
    assert "1 thread, best of 5" in evidence.source
    assert (evidence.value, evidence.n) == (3e9, 5)


def test_too_little_memory_is_a_reason_and_no_number() -> None:
    evidence = measure_read_bandwidth(MIB, num_threads=1, free_memory_bytes=4 * MIB)
    assert evidence.is_missing
    assert evidence.reason == "too little free memory to measure in"


def test_a_buffer_that_cannot_be_had_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(bandwidth._Buffer):
        def __enter__(self) -> int:
            raise MemoryError("no memory")

    monkeypatch.setattr(bandwidth, "_Buffer", Refused)
    evidence = measure_read_bandwidth(MIB, num_threads=2, free_memory_bytes=None)
    assert evidence.is_missing
    assert "no buffer to measure in: no memory" in str(evidence.reason)


def test_memory_that_changes_under_the_reader_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "_kernels", lambda: {"stops early": lambda address, size: False})
    evidence = measure_read_bandwidth(MIB, num_threads=1, free_memory_bytes=None)
    assert "the memory changed while it was read" in str(evidence.reason)
