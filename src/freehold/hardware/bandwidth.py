"""How fast this machine reads memory, measured now, over as many bytes as one decode step reads.

Decoding one token reads every weight it needs once, so this rate over those bytes bounds the decode speed. The bound
holds only if nothing reads faster than the measurement did. So all usable cores read at once; the C library's
``memchr`` (looking for a byte that is not there) and ``memcmp`` (of equal halves) are both tried, because both read
every byte with the processor's widest instructions and hardly compute; and the best stretch counts, not the mean.

Caches are part of the truth: a working set of the same size, read again and again, stays in them as far as the weights
would. A larger one is measured over :data:`MAX_WORKING_SET_BYTES`, of which a cache holds a larger share, so the bound
becomes looser, never tighter. On a busy machine the other processes take their share of the bandwidth, and the
figure can then be too low: preflight warns.

Read :func:`measure_read_bandwidth`.

Does not do: writing, random access, or an accelerator's own memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from freehold.evidence import Evidence
from freehold.units import format_bandwidth, format_memory

__all__ = ["MAX_WORKING_SET_BYTES", "ReadCall", "best_and_median", "measure_read_bandwidth", "slice_rates"]

MAX_WORKING_SET_BYTES = 256 * 2**20
"""More is not read: it is beyond most caches, and filling it takes time."""
_FREE_SHARE = 8
"""At most one part in this many of the free memory is taken."""
_PIECE_BYTES = 8 * 2**20
_MIN_WORKING_SET_BYTES = 2**20
_KERNEL_S = 0.35
_SLICE_S = 0.05
_MIN_SLICES = 5
_PRESENT, _ABSENT = 1, 0


@dataclass(frozen=True, slots=True)
class ReadCall:
    """One call of a reading function: when it began and ended, and how many bytes it read."""

    began_s: float
    ended_s: float
    read_bytes: int


Kernel = Callable[[int, int], bool]
"""Reads ``size`` bytes at an address; False if it stopped early."""


def measure_read_bandwidth(
    working_set_bytes: int, *, num_threads: int, free_memory_bytes: int | None, date: str | None = None
) -> Evidence:
    """Memory read bandwidth of all usable cores together, in bytes per second.

    Takes about one second, and never more than two plus the time to fill the buffer once.

    Args:
        working_set_bytes: What one decode step reads.
        num_threads: Cores to use, one thread each.
        free_memory_bytes: Free memory; at most an eighth of it is taken. None takes the working set as it is.
        date: When, for the record.

    Returns:
        The best stretch, measured, with the number of stretches and the median in its source; not measured where
        there is not enough memory or no C library to ask.
    """
    size = max(min(working_set_bytes, MAX_WORKING_SET_BYTES), _MIN_WORKING_SET_BYTES)
    if free_memory_bytes is not None:
        size = min(size, free_memory_bytes // _FREE_SHARE)
    if size < _MIN_WORKING_SET_BYTES:
        return Evidence.not_measured("too little free memory to measure in", "bytes/s")
    try:
        kernels = _kernels()
    except (OSError, AttributeError) as error:
        return Evidence.not_measured(f"the C library cannot be called: {error}", "bytes/s")
    try:
        rates = _run(kernels, size, num_threads)
    except (OSError, MemoryError) as error:
        return Evidence.not_measured(f"no buffer to measure in: {error}", "bytes/s")
    if not rates:
        return Evidence.not_measured("the threads never read at the same time", "bytes/s")
    names = " and ".join(kernels)
    best, median = best_and_median(rates)
    capped = "" if size >= working_set_bytes else f" (a step reads {format_memory(working_set_bytes)})"
    threads = "1 thread" if num_threads == 1 else f"{num_threads} threads"
    return Evidence.measured(
        best,
        "bytes/s",
        source=(
            f"{names} over {format_memory(size)}{capped}, {threads}, best of {len(rates)} stretches of "
            f"{_SLICE_S * 1000:.0f} ms; median {format_bandwidth(median)}"
        ),
        date=date,
        n=len(rates),
    )


def best_and_median(rates: Sequence[float]) -> tuple[float, float]:
    """The largest and the middle of some rates."""
    return max(rates), statistics.median(rates)


def slice_rates(calls_by_thread: Sequence[Sequence[ReadCall]], slice_s: float, min_slices: int) -> list[float]:
    """Bytes per second of all threads together, in equal stretches of the time in which all of them were reading.

    A call that crosses a border counts on both sides by its share of time. Threads start and end at slightly
    different times; outside of the common stretch the others would have the memory to themselves.

    Args:
        calls_by_thread: Each thread's calls in order; each has at least one.
        slice_s: Length of a stretch; shorter ones are taken where the common time does not hold ``min_slices``.
        min_slices: Fewest stretches.
    """
    began = max(calls[0].began_s for calls in calls_by_thread)
    ended = min(calls[-1].ended_s for calls in calls_by_thread)
    if ended <= began:
        return []
    num_slices = max(min_slices, int((ended - began) / slice_s))
    width = (ended - began) / num_slices
    totals = [0.0] * num_slices
    for calls in calls_by_thread:
        for call in calls:
            duration = max(call.ended_s - call.began_s, 1e-9)
            first = max(0, int((call.began_s - began) / width))
            last = min(num_slices - 1, int((call.ended_s - began) / width))
            for i in range(first, last + 1):
                low, high = began + i * width, began + (i + 1) * width
                overlap = min(high, call.ended_s) - max(low, call.began_s)
                totals[i] += call.read_bytes * max(0.0, overlap) / duration
    return [total / width for total in totals]


def _kernels() -> dict[str, Kernel]:
    libc = ctypes.CDLL(None)
    memchr, memcmp = libc.memchr, libc.memcmp
    memchr.argtypes, memchr.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], ctypes.c_void_p
    memcmp.argtypes, memcmp.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
    return {
        "memchr": lambda address, size: memchr(address, _ABSENT, size) is None,
        "memcmp": lambda address, size: memcmp(address, address + size // 2, size // 2) == 0,
    }


def _run(kernels: dict[str, Kernel], size: int, num_threads: int) -> list[float]:
    share = max(size // num_threads // 128, 1) * 128
    failures: list[BaseException] = []
    calls: dict[str, list[list[ReadCall]]] = {name: [] for name in kernels}
    barrier = threading.Barrier(num_threads)

    def work() -> None:
        try:
            with _Buffer(share) as address:
                for name, kernel in kernels.items():
                    barrier.wait(timeout=30)
                    calls[name].append(_read_for(kernel, address, share, _KERNEL_S))
        except BaseException as error:  # noqa: BLE001 — handed to the caller; the other threads must not wait for it
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise next((f for f in failures if not isinstance(f, threading.BrokenBarrierError)), OSError("a thread hangs"))
    return [rate for by_thread in calls.values() for rate in slice_rates(by_thread, _SLICE_S, _MIN_SLICES)]


def _read_for(kernel: Kernel, address: int, size: int, duration_s: float) -> list[ReadCall]:
    """Read a buffer round and round, a piece per call; the calls let go of Python's lock."""
    clock = time.perf_counter
    pieces = [(address + start, min(_PIECE_BYTES, size - start)) for start in range(0, size, _PIECE_BYTES)]
    for piece, length in pieces:
        kernel(piece, length)
    calls = []
    end = clock() + duration_s
    while True:
        for piece, length in pieces:
            began = clock()
            if not kernel(piece, length):
                raise OSError("the memory changed while it was read")
            ended = clock()
            calls.append(ReadCall(began, ended, length))
            if ended >= end:
                return calls


class _Buffer:
    """Private memory whose pages exist: every byte is written once, else all reads would hit one page of zeros."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> int:
        self._map = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages: small ones do
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self._view = (ctypes.c_char * self._size).from_buffer(self._map)
        address = ctypes.addressof(self._view)
        ctypes.memset(address, _PRESENT, self._size)
        return address

    def __exit__(self, *_: object) -> None:
        del self._view
        self._map.close()
