"""One request in flight on one raw socket: connect, shake hands, send, and stamp every arrival.

Nothing here waits: :meth:`Connection.advance` does what is possible now and returns. On the way of an arriving chunk
there is one system call, one stamp and two appends; what the bytes mean is looked at only when they may be the end.

Does not do: waiting for many at once (``client/stream.py``), reading the answer (``client/trace.py``).
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from freehold.client.clock import ArrivalClock
from freehold.client.trace import Received
from freehold.client.wire import Intake

__all__ = ["Address", "Connection", "Target"]

Address = tuple[int, tuple[object, ...]]
"""Address family and socket address, as ``getaddrinfo`` gives them."""

_READ_BYTES: Final = 64 * 1024


@dataclass(slots=True, kw_only=True)
class Target:
    """Where all requests of a batch go.

    Args:
        host: Name for messages and for the certificate.
        port: TCP port.
        addresses: What the name stands for, tried in order; one that answered is moved to the front.
        tls: Settings of an encrypted connection, None for a plain one.
    """

    host: str
    port: int
    addresses: list[Address]
    tls: ssl.SSLContext | None = None

    @property
    def label(self) -> str:
        """Host and port as a person writes them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Connection:
    """A request and what arrives for it.

    Args:
        target: Where to.
        request: The whole request, as the pieces to send.
        clock: The batch's clock.
        selector: Where to wait; the connection registers itself.
        max_response_bytes: More than this is given up on.

    Attributes:
        is_over: Whether there is nothing more to come.
        last_active_s: When something last happened, on the caller's monotonic clock.
        done_seen_s: When the end of the stream was announced without the connection ending; None before.
        needs_look: Whether the answer may be over although the connection is not: worth a :meth:`look`.
    """

    __slots__ = (
        "_address_idx",
        "_advance",
        "_clock",
        "_connect_ns",
        "_ended_ns",
        "_failure",
        "_incoming",
        "_intake",
        "_is_hinted_chunked",
        "_is_kernel_stamped",
        "_lag_ns",
        "_max_bytes",
        "_offset_ns",
        "_out",
        "_outgoing",
        "_request",
        "_selector",
        "_sent_ns",
        "_socket",
        "_started_ns",
        "_step_ns",
        "_target",
        "_tls",
        "done_seen_s",
        "is_over",
        "last_active_s",
        "needs_look",
    )

    def __init__(
        self,
        *,
        target: Target,
        request: Sequence[bytes],
        clock: ArrivalClock,
        selector: selectors.BaseSelector,
        max_response_bytes: int,
        now_s: float,
    ) -> None:
        self._target = target
        self._request = b"".join(request)
        self._clock = clock
        self._selector = selector
        self._max_bytes = max_response_bytes
        self._socket: socket.socket | None = None
        self._address_idx = 0
        self._tls: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None
        self._out = memoryview(b"")
        self._intake = Intake()
        self._lag_ns = 0
        self._is_kernel_stamped = clock.is_kernel
        self._is_hinted_chunked = False
        self._failure: str | None = None
        self._started_ns = clock.now_ns()
        self._connect_ns: int | None = None
        self._sent_ns: int | None = None
        self._ended_ns = self._started_ns
        self._offset_ns = self._step_ns = 0
        self.is_over = False
        self.last_active_s = now_s
        self.done_seen_s: float | None = None
        self.needs_look = False
        self._advance: Callable[[], None] = self._finish_connect
        self._connect()

    @property
    def is_connected(self) -> bool:
        """Whether the request is on its way."""
        return self._sent_ns is not None

    @property
    def is_shaking_hands(self) -> bool:
        """Whether the server has accepted and TLS is being agreed on."""
        return self._tls is not None and self._sent_ns is None

    def advance(self, now_s: float) -> None:
        """Do what is possible now; ``now_s`` is the caller's monotonic clock."""
        self.last_active_s = now_s
        self._advance()

    def note_lag(self, lag_ns: int) -> None:
        """Take note that what was just read may have waited so long, longer than its stamp shows."""
        self._lag_ns = max(self._lag_ns, lag_ns)

    def abort(self, reason: str) -> None:
        """Give up, unless the answer turns out to be whole already."""
        if not self.is_over and not self.look():
            self._end(reason)

    def look(self) -> bool:
        """Read what has arrived, which takes a moment; ends the connection and returns True if the answer is over."""
        self.needs_look = False
        is_whole = self._intake.look()
        if is_whole:
            self._end(None)
        return is_whole

    def close(self) -> None:
        """Close the socket; what arrived is kept."""
        sock, self._socket = self._socket, None
        if sock is not None:
            # It may never have been registered, or the selector may be closed already.
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            sock.close()

    def received(self) -> Received:
        """Everything that arrived."""
        return Received(
            sent_ns=self._sent_ns,
            ended_ns=self._ended_ns,
            intake=self._intake,
            is_kernel_stamped=self._is_kernel_stamped,
            failure=self._failure,
            connect_s=None if self._connect_ns is None else (self._connect_ns - self._started_ns) * 1e-9,
            clock_step_s=self._step_ns * 1e-9,
            read_lag_s=self._lag_ns * 1e-9,
        )

    # ------------------------------------------------------------------------------------------- connecting

    def _connect(self) -> None:
        """Begin to connect to the current address, or to the next that can be tried."""
        while True:
            family, address = self._target.addresses[self._address_idx]
            sock = socket.socket(family, socket.SOCK_STREAM)
            self._socket = sock
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clock.enable(sock)
            code = sock.connect_ex(address)
            if code in (0, errno.EINPROGRESS):
                self._selector.register(sock, selectors.EVENT_WRITE, self)
                return
            if not self._try_next_address(code):
                return

    def _try_next_address(self, code: int) -> bool:
        self.close()
        self._address_idx += 1
        if self._address_idx < len(self._target.addresses):
            return True
        self._end(_explain_connect(code, self._target.label))
        return False

    def _finish_connect(self) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            if self._try_next_address(code):
                self._connect()
            return
        if self._address_idx:
            addresses = self._target.addresses
            addresses.insert(0, addresses.pop(self._address_idx))
            self._address_idx = 0
        if self._target.tls is None:
            self._out = memoryview(self._request)
            self._start_sending()
            return
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._target.tls.wrap_bio(self._incoming, self._outgoing, server_hostname=self._target.host)
        self._advance = self._shake_hands
        self._shake_hands()

    def _shake_hands(self) -> None:
        assert self._tls is not None
        assert self._incoming is not None
        assert self._outgoing is not None
        assert self._socket is not None
        if not self._out:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                data = None
            except OSError as error:
                self._end(_explain_reset(error))
                return
            if data:
                self._incoming.write(data)
            elif data is not None:
                self._incoming.write_eof()
        is_done = False
        try:
            self._tls.do_handshake()
            is_done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._end(_explain_tls(error, self._target.label))
            return
        if is_done:
            self._tls.write(self._request)
        pending = bytes(self._out) + self._outgoing.read()
        self._out = memoryview(pending)
        if is_done:
            self._start_sending()
            return
        self._flush()
        if not self.is_over:
            self._wait_for(selectors.EVENT_WRITE if self._out else selectors.EVENT_READ)

    def _start_sending(self) -> None:
        self._offset_ns = self._clock.offset_ns()
        self._advance = self._send
        self._connect_ns = self._sent_ns = self._clock.now_ns()
        self._send()

    def _send(self) -> None:
        self._flush()
        if self.is_over:
            return
        if self._out:
            self._wait_for(selectors.EVENT_READ | selectors.EVENT_WRITE)
            # A server may refuse a long request before it has read all of it.
            self._receive()
            return
        self._advance = self._receive
        self._wait_for(selectors.EVENT_READ)

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._end(_explain_reset(error))

    def _wait_for(self, events: int) -> None:
        assert self._socket is not None
        self._selector.modify(self._socket, events, self)

    # -------------------------------------------------------------------------------------------- receiving

    def _receive(self) -> None:
        assert self._socket is not None
        clock, intake = self._clock, self._intake
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, clock.ancillary_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(_explain_reset(error))
            return
        now = clock.now_ns()
        if not data:
            self._end(None)
            return
        stamp = clock.stamp_ns(ancillary) if ancillary else None
        if stamp is None:
            stamp = now
            self._is_kernel_stamped = False
        elif now - stamp > self._lag_ns:
            self._lag_ns = now - stamp
        if self._tls is not None:
            is_end, data = self._decrypt(data)
            if is_end:
                if data:
                    intake.add(stamp, data)
                self._end(None)
                return
            if not data:
                return
        is_first = intake.num_bytes == 0
        intake.add(stamp, data)
        if intake.num_bytes > self._max_bytes:
            self._end(f"the answer is longer than {self._max_bytes:,} bytes")
            return
        if is_first:
            self._is_hinted_chunked = b"hunked" in data[:2048]
        # Most servers close right after the end. These hints tell when it is worth a look in case one does not; they
        # never decide that the answer is over.
        tail = data[-64:]
        if b"[DONE]" in tail:
            self.needs_look = True
            if self.done_seen_s is None:
                self.done_seen_s = self.last_active_s
        elif b"0\r\n" in tail or len(data) < 8:
            self.needs_look = True
        elif not self._is_hinted_chunked:
            self.needs_look = not intake.response.ends_with_connection

    def _decrypt(self, data: bytes) -> tuple[bool, bytes]:
        assert self._tls is not None
        assert self._incoming is not None
        self._incoming.write(data)
        pieces = []
        try:
            while piece := self._tls.read(_READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return False, b"".join(pieces)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return True, b"".join(pieces)
        except ssl.SSLError as error:
            self._end(_explain_tls(error, self._target.label))
            return True, b"".join(pieces)
        return True, b"".join(pieces)

    def _end(self, failure: str | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._failure = failure
        if failure is not None:
            self._ended_ns = self._clock.now_ns()
        if self._sent_ns is not None:
            self._step_ns = self._clock.offset_ns() - self._offset_ns
        self.close()


def _explain_connect(code: int, label: str) -> str:
    match code:
        case errno.ECONNREFUSED:
            return f"nothing listens at {label} (connection refused)"
        case errno.ENETUNREACH | errno.EHOSTUNREACH:
            return f"{label} cannot be reached from this machine"
        case errno.ETIMEDOUT:
            return f"{label} does not answer"
        case _:
            return f"cannot connect to {label}: {errno.errorcode.get(code, str(code))}"


def _explain_reset(error: OSError) -> str:
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the server broke the connection off"
    return f"the connection failed: {error.strerror or error}"


def _explain_tls(error: ssl.SSLError, label: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {label} is not accepted: {error.verify_message}"
    if "WRONG_VERSION_NUMBER" in str(error) or "HTTP_REQUEST" in str(error):
        return f"{label} does not speak TLS; use http:// instead of https://"
    return f"no encrypted connection to {label}: {error.reason or error}"
