"""When did these bytes arrive? By the kernel's own receive stamp where there is one, else by the clock after reading.

A stamp from the kernel does not depend on how soon the program gets to read, so 256 streams on a busy processor are
stamped as well as one. Such stamps are on the wall clock; :meth:`ArrivalClock.offset_ns` shows whether somebody set it
meanwhile. Read :class:`ArrivalClock`.

Does not do: reading sockets (``client/connection.py``).

Source: Linux ``Documentation/networking/timestamping.rst``, SO_TIMESTAMPNS;
``Documentation/scheduler/sched-stats.rst``, /proc/<pid>/schedstat.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["ArrivalClock"]

_SO_TIMESTAMPNS: Final = 35  # Linux asm-generic/socket.h, SO_TIMESTAMPNS_OLD; the machines below use that header
_GENERIC_MACHINES: Final = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64"})
_TIMESPEC: Final = struct.Struct("@ll")


class ArrivalClock:
    """The clock of one batch of streams; both ends of every duration are read from it.

    Args:
        use_kernel: Ask for kernel stamps where the platform has them.

    Attributes:
        is_kernel: Whether kernel stamps are asked for.
        ancillary_bytes: Room for the stamp in ``recvmsg``; 0 without.
        now_ns: The clock itself: wall clock with kernel stamps, monotonic without.
    """

    def __init__(self, *, use_kernel: bool = True) -> None:
        self.is_kernel = (
            use_kernel and sys.platform == "linux" and os.uname().machine in _GENERIC_MACHINES and _TIMESPEC.size == 16
        )
        self.ancillary_bytes = socket.CMSG_SPACE(_TIMESPEC.size) if self.is_kernel else 0
        self.now_ns: Callable[[], int] = time.time_ns if self.is_kernel else time.monotonic_ns

    def run_delay_ns(self) -> int:
        """How long the calling thread has waited for a processor since it began; 0 where the system does not say.

        While it waits, arrivals pile up, and the kernel keeps one stamp for all that are read together: the last.
        """
        try:
            with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
                return int(file.read(64).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def enable(self, sock: socket.socket) -> None:
        """Ask the kernel to stamp what this socket receives; where it refuses, the clock is read instead."""
        if self.is_kernel:
            try:
                sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            except OSError:
                # A sandboxed kernel without the option: arrivals are stamped by the same clock after reading.
                return

    @staticmethod
    def stamp_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
        """The kernel's stamp among a message's ancillary data, None if there is none."""
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) == _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack(data)
                return int(seconds * 1_000_000_000 + nanoseconds)
        return None

    def offset_ns(self) -> int:
        """Wall clock minus monotonic clock, as well as three tries can tell; it changes only when the clock is set.

        Slewing (NTP) moves both clocks alike and does not show. Always 0 for a batch on the monotonic clock.
        """
        best_width, best = None, 0
        for _ in range(3 if self.is_kernel else 0):
            before = time.monotonic_ns()
            wall = time.time_ns()
            after = time.monotonic_ns()
            if best_width is None or after - before < best_width:
                best_width, best = after - before, wall - (before + after) // 2
        return best
