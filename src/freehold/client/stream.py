"""What does a streamed request deliver, and when does each piece arrive? Read :func:`stream`, then :func:`stream_many`.

One thread waits for all streams. Arrivals are stamped by the kernel where it can (``client/clock.py``), the bytes are
put aside, and an answer is read only when no other stream has anything waiting. A request goes out on a connection
that is already set up, so the time to the first token holds the server's work and queue, not the handshake.

Does not do: statistics (``bench/``), or judging the answer.
"""

from __future__ import annotations

import errno
import json
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from freehold.client.api import Endpoint, StreamTrace
from freehold.client.clock import ArrivalClock
from freehold.client.connection import Connection, Target
from freehold.client.trace import read_trace
from freehold.client.wire import encode_request
from freehold.errors import InputError, PrerequisiteError

__all__ = ["INTERRUPTED", "MAX_RESPONSE_BYTES", "StreamBatch", "stream", "stream_many"]

MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""Longest answer: some 200,000 chunks."""
INTERRUPTED: Final = "interrupted"
"""How the error of a request begins that Ctrl-C or the cancel event ended."""
_BASE_BYTES: Final = 1024 * 1024
_BYTES_PER_TOKEN: Final = 16 * 1024
"""Most that one token of an answer takes, head and framing apart: a chunk with 20 alternatives takes some 3 KiB."""
_TICK_S: Final = 0.1
_LINGER_S: Final = 1.0
"""How long a server may keep the connection after it has said ``[DONE]``."""
_LAG_S: Final = 0.005
"""After a pause of this length between two reads it is found out whether the thread had to wait for a processor."""
_LOOK_S: Final = 0.002
"""How long a connection that may be over is given to end by itself before its bytes are read to find out."""
_BACKLOG_S: Final = 1.0
"""How long a finished answer waits for a quiet moment before it is read anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """Streams that were run together.

    Args:
        traces: One per payload, in the payloads' order; None for a request that was never sent, or was not kept.
        is_interrupted: Whether Ctrl-C or the cancel event ended it; requests then in flight have an ``error``.
    """

    traces: tuple[StreamTrace | None, ...]
    is_interrupted: bool


def stream(
    endpoint: Endpoint,
    path: str,
    payload: Mapping[str, object],
    *,
    timeout_s: float = 120.0,
    connect_timeout_s: float = 10.0,
    cancel: threading.Event | None = None,
    tls: ssl.SSLContext | None = None,
) -> StreamTrace:
    """One streamed request, from the first byte sent to the last byte received.

    Args:
        endpoint: The server.
        path: Route below the version prefix: ``/completions`` or ``/chat/completions``.
        payload: The request; it should hold ``"stream": true``.
        timeout_s: Longest silence: without any byte for this long the stream counts as stalled.
        connect_timeout_s: Longest wait for the connection.
        cancel: Ends the stream when it is set.
        tls: Settings for ``https``; the system's certificates by default.

    Returns:
        The trace. A server that refuses, breaks off or answers nonsense gives a trace with ``error``, no exception.

    Raises:
        InputError: The address or the key cannot be used.
        PrerequisiteError: The host's name is unknown, or the system has no socket left.
        KeyboardInterrupt: Ctrl-C was pressed; the connection is closed.
    """
    batch = stream_many(
        endpoint,
        path,
        [payload],
        concurrency=1,
        timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        cancel=cancel,
        tls=tls,
    )
    trace = batch.traces[0]
    if batch.is_interrupted and (cancel is None or not cancel.is_set()):
        raise KeyboardInterrupt
    if trace is None:
        now_s = time.time()
        return StreamTrace(
            sent_at_s=now_s,
            ended_at_s=now_s,
            status=0,
            events=(),
            is_complete=False,
            error="cancelled before it was sent",
        )
    return trace


def stream_many(
    endpoint: Endpoint,
    path: str,
    payloads: Sequence[Mapping[str, object]],
    *,
    concurrency: int,
    timeout_s: float = 120.0,
    connect_timeout_s: float = 10.0,
    on_trace: Callable[[int, StreamTrace], None] | None = None,
    cancel: threading.Event | None = None,
    tls: ssl.SSLContext | None = None,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
    clock: ArrivalClock | None = None,
    keeps_traces: bool = True,
) -> StreamBatch:
    """Run streamed requests with a fixed number in flight: as one ends, the next begins (closed loop).

    Args:
        endpoint: The server.
        path: Route below the version prefix.
        payloads: The requests, in the order they are sent.
        concurrency: Streams in flight (>= 1).
        timeout_s: Longest silence of one stream.
        connect_timeout_s: Longest wait for one connection.
        on_trace: Called with the payload's index and the trace of each request as it is finished, in the order of
            finishing; also for those that an interruption ended. If Ctrl-C strikes inside the call, it is called
            again with the same trace, so that none is lost.
        cancel: Ends everything when it is set.
        tls: Settings for ``https``; the system's certificates by default.
        max_response_bytes: Longest answer that is accepted; less where a payload's ``max_tokens`` bounds it, so that a
            server that never ends is given up on before its chunks fill the memory.
        clock: How arrivals are stamped; in the kernel by default, where the platform can.
        keeps_traces: Whether the result holds the traces; without, each lives only as long as ``on_trace`` keeps it.

    Returns:
        All traces. On Ctrl-C too: sockets are closed, what is finished is kept, ``is_interrupted`` says so.

    Raises:
        InputError: The address, the key or the concurrency cannot be used.
        PrerequisiteError: The host's name is unknown, or the system has no socket left.
    """
    if concurrency < 1:
        raise InputError(
            f"concurrency {concurrency} makes no sense", why="at least one stream is in flight", fix="use 1 or more"
        )
    target = _resolve(endpoint, tls)
    requests = [_encode(endpoint, path, target, payload) for payload in payloads]
    loop = _Loop(
        target=target,
        requests=requests,
        concurrency=concurrency,
        clock=clock or ArrivalClock(),
        timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        on_trace=on_trace,
        cancel=cancel,
        max_response_bytes=[_longest(payload, max_response_bytes) for payload in payloads],
        keeps_traces=keeps_traces,
        secret=endpoint.api_key.reveal() if endpoint.api_key is not None else None,
    )
    return loop.run()


class _Loop:
    """The state of one batch."""

    def __init__(
        self,
        *,
        target: Target,
        requests: Sequence[Sequence[bytes]],
        concurrency: int,
        clock: ArrivalClock,
        timeout_s: float,
        connect_timeout_s: float,
        on_trace: Callable[[int, StreamTrace], None] | None,
        cancel: threading.Event | None,
        max_response_bytes: Sequence[int],
        keeps_traces: bool,
        secret: str | None,
    ) -> None:
        self._target = target
        self._requests = requests
        self._concurrency = concurrency
        self._clock = clock
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._on_trace = on_trace
        self._cancel = cancel
        self._max_response_bytes = max_response_bytes
        self._keeps_traces = keeps_traces
        self._secret = secret
        self._selector = selectors.DefaultSelector()
        self._next = 0
        self._active: dict[Connection, int] = {}
        self._finished: deque[tuple[int, Connection, float]] = deque()
        self._looks: set[Connection] = set()
        self._traces: list[StreamTrace | None] = [None] * len(requests)

    def run(self) -> StreamBatch:
        is_interrupted = False
        # Stamping is switched on for the whole machine with the first socket that asks, and a moment late: hold one.
        with socket.socket() as holder:
            self._clock.enable(holder)
            try:
                is_interrupted = self._run()
            except KeyboardInterrupt:
                is_interrupted = True
            finally:
                for connection in self._active:
                    connection.close()
                self._selector.close()
            if is_interrupted:
                # Ctrl-C may have struck while a stream changed lists: it is then in both.
                waiting = {index for index, _, _ in self._finished}
                for connection, index in self._active.items():
                    connection.abort(INTERRUPTED)
                    if index not in waiting:
                        self._finished.append((index, connection, 0.0))
                self._active.clear()
            while self._finished:
                self._deliver()
        return StreamBatch(traces=tuple(self._traces), is_interrupted=is_interrupted)

    def _run(self) -> bool:
        """Work until all is done; returns whether the cancel event ended it."""
        last_check_s = last_read_s = time.monotonic()
        run_delay_ns = self._clock.run_delay_ns()
        while self._active or self._finished or self._next < len(self._requests):
            if self._cancel is not None and self._cancel.is_set():
                return True
            self._start(time.monotonic())
            ready = self._selector.select(0 if self._finished else _LOOK_S if self._looks else _TICK_S)
            now_s = time.monotonic()
            lag_ns = 0
            if now_s - last_read_s > _LAG_S:
                before_ns, run_delay_ns = run_delay_ns, self._clock.run_delay_ns()
                lag_ns = min(run_delay_ns - before_ns, int((now_s - last_read_s) * 1e9))
            last_read_s = now_s
            for key, _ in ready:
                connection: Connection = key.data
                connection.advance(now_s)
                if lag_ns:
                    connection.note_lag(lag_ns)
                if connection.is_over:
                    self._finish(connection, now_s)
                elif connection.needs_look:
                    self._looks.add(connection)
            if self._looks:
                self._look(now_s)
            if now_s - last_check_s >= _TICK_S:
                last_check_s = now_s
                self._check_silence(now_s)
            if self._finished and (not ready or now_s - self._finished[0][2] > _BACKLOG_S):
                # The slot of a finished stream is filled before its answer is read.
                self._start(time.monotonic())
                self._deliver()
        return False

    def _start(self, now_s: float) -> None:
        while len(self._active) < self._concurrency and self._next < len(self._requests):
            index = self._next
            self._next += 1
            try:
                connection = Connection(
                    target=self._target,
                    request=self._requests[index],
                    clock=self._clock,
                    selector=self._selector,
                    max_response_bytes=self._max_response_bytes[index],
                    now_s=now_s,
                )
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise PrerequisiteError(
                        f"no socket left for stream {len(self._active) + 1} of {self._concurrency}",
                        why=error.strerror or str(error),
                        fix="raise the limit with `ulimit -n 8192`, or lower the concurrency",
                    ) from None
                raise
            self._active[connection] = index
            if connection.is_over:
                self._finish(connection, now_s)

    def _finish(self, connection: Connection, now_s: float) -> None:
        self._finished.append((self._active[connection], connection, now_s))
        del self._active[connection]

    def _look(self, now_s: float) -> None:
        for connection in list(self._looks):
            if connection in self._active:
                if now_s - connection.last_active_s < _LOOK_S:
                    continue
                if connection.look():
                    self._finish(connection, now_s)
            self._looks.discard(connection)

    def _check_silence(self, now_s: float) -> None:
        for connection in list(self._active):
            silent_s = now_s - connection.last_active_s
            if connection.done_seen_s is not None and now_s - connection.done_seen_s > _LINGER_S:
                connection.abort("the server keeps the connection open")
            elif not connection.is_connected and silent_s > self._connect_timeout_s:
                hint = "; it may not speak TLS" if connection.is_shaking_hands else ""
                connection.abort(f"no connection to {self._target.label} within {self._connect_timeout_s:g} s{hint}")
            elif silent_s > self._timeout_s:
                connection.abort(f"stalled: not a byte for {self._timeout_s:g} s")
            if connection.is_over:
                self._finish(connection, now_s)

    def _deliver(self) -> None:
        """Read the answer that waited longest and hand it on."""
        index, connection, _ = self._finished[0]
        trace = read_trace(connection.received())
        if self._secret and trace.error is not None and self._secret in trace.error:
            trace = replace(trace, error=trace.error.replace(self._secret, "…"))
        if self._keeps_traces:
            self._traces[index] = trace
        if self._on_trace is not None:
            self._on_trace(index, trace)
        self._finished.popleft()


def _longest(payload: Mapping[str, object], limit_bytes: int) -> int:
    """How long the answer to a request may be."""
    tokens = payload.get("max_tokens", payload.get("max_completion_tokens"))
    if type(tokens) is not int or tokens < 1:
        return limit_bytes
    return min(limit_bytes, _BASE_BYTES + tokens * _BYTES_PER_TOKEN)


def _resolve(endpoint: Endpoint, tls: ssl.SSLContext | None) -> Target:
    try:
        parts = urlsplit(endpoint.base_url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _bad_address(endpoint.base_url, str(error)) from None
    if parts.scheme not in ("http", "https") or not host:
        raise _bad_address(endpoint.base_url, "an address begins with http:// or https:// and names a host")
    is_encrypted = parts.scheme == "https"
    port = port or (443 if is_encrypted else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PrerequisiteError(
            f"the host {host} is unknown",
            why=getattr(error, "strerror", None) or str(error),
            fix="check the spelling of the address, and that this machine can resolve names",
        ) from None
    context = (tls or ssl.create_default_context()) if is_encrypted else None
    return Target(host=host, port=port, addresses=[(f, a) for f, _, _, _, a in found], tls=context)


def _encode(endpoint: Endpoint, path: str, target: Target, payload: Mapping[str, object]) -> tuple[bytes, ...]:
    from freehold import __version__

    body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "User-Agent": f"freehold/{__version__}",
    }
    if endpoint.api_key is not None:
        headers["Authorization"] = f"Bearer {endpoint.api_key.reveal()}"
    try:
        return encode_request("POST", urlsplit(endpoint.base_url).path + path, target.label, headers, body)
    except ValueError:
        # The text of the error would quote the key.
        raise InputError(
            f"a request to {endpoint.base_url} cannot be written",
            why="the API key or the address holds a character that HTTP does not allow, such as a line break",
            fix="check the file that `--api-key-file` names: one line, printable ASCII",
        ) from None


def _bad_address(url: str, why: str) -> InputError:
    return InputError(f"not an address of a server: {url!r}", why=why, fix="write it like `http://127.0.0.1:8080/v1`")
