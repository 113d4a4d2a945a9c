"""Real sockets: a server of known timing, and servers that refuse, break off, stall and lie."""

from __future__ import annotations

import _thread
import itertools
import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from freehold.client.api import Endpoint, StreamTrace
from freehold.client.clock import ArrivalClock
from freehold.client.stream import stream, stream_many
from freehold.errors import InputError, PrerequisiteError
from freehold.secret import Secret

Serve = Callable[..., AbstractContextManager[Endpoint]]
TLS = Path(__file__).resolve().parents[1] / "data" / "tls"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
FAST = {"ttft_s": 0.01, "step_s": 0.002, "tokens": 20}


def payload(user: str = "", script: dict[str, object] | None = None, **more: object) -> dict[str, object]:
    return {"model": "plain", "stream": True, "user": user, "script": {**FAST, **(script or {})}, **more}


def word(text: str, finish: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text, "finish_reason": finish}]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def log_of(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    with urllib.request.urlopen(f"{endpoint.root_url}/log", timeout=10) as reply:
        return {entry["id"]: entry for entry in map(json.loads, reply.read().splitlines())}


def outputs(trace: StreamTrace) -> list[float]:
    return [event.at_s for event in trace.events if event.has_output]


# ------------------------------------------------------------------------------------------------ true timing


@pytest.mark.parametrize("path", ["/completions", "/chat/completions"])
def test_every_chunk_arrives_after_it_was_sent_and_in_order(known: Endpoint, path: str) -> None:
    trace = stream(known, path, payload(f"one{path}"))
    sends = log_of(known)[f"one{path}"]
    assert trace.error is None
    assert trace.is_complete
    assert len(outputs(trace)) == 20 == len(sends["sends"])
    # Cause comes before effect on the one wall clock that both processes read.
    assert trace.sent_at_s <= sends["request_ns"] * 1e-9 + 1e-6
    for arrival, (sent_ns, _, _) in zip(outputs(trace), sends["sends"], strict=True):
        assert arrival >= sent_ns * 1e-9 - 1e-6
    assert outputs(trace) == sorted(outputs(trace))
    assert trace.usage.completion_tokens == 20
    assert trace.text == "".join(f" w{i}" for i in range(20))


def test_the_kernel_stamps_where_it_can(known: Endpoint) -> None:
    trace = stream(known, "/completions", payload())
    assert trace.stamp == ("kernel" if ArrivalClock().is_kernel else "user")
    assert trace.clock_step_s == 0.0
    assert trace.connect_s is not None
    assert trace.connect_s > 0


def test_without_kernel_stamps_the_clock_is_monotonic(known: Endpoint) -> None:
    before = time.monotonic()
    batch = stream_many(known, "/completions", [payload()], concurrency=1, clock=ArrivalClock(use_kernel=False))
    trace = batch.traces[0]
    assert trace is not None
    assert trace.stamp == "user"
    assert before <= trace.sent_at_s <= trace.ended_at_s <= time.monotonic()


def test_a_clock_that_is_set_meanwhile_is_flagged(known: Endpoint) -> None:
    class SetClock(ArrivalClock):
        readings = itertools.count(0, 2_500_000_000)

        def offset_ns(self) -> int:
            return next(self.readings)

    batch = stream_many(known, "/completions", [payload()], concurrency=1, clock=SetClock())
    assert batch.traces[0] is not None
    assert batch.traces[0].clock_step_s == 2.5


def test_a_client_that_waits_for_a_processor_says_so(known: Endpoint) -> None:
    class Starved(ArrivalClock):
        delays = itertools.count(0, 3_600_000_000_000)

        def run_delay_ns(self) -> int:
            return next(self.delays)

    slow = payload(script={"step_s": 0.02, "tokens": 4})
    trace = stream_many(known, "/completions", [slow], concurrency=1, clock=Starved()).traces[0]
    assert trace is not None
    # It was away for the 20 ms between two chunks at least; that it was an hour, as the clock claims, cannot be.
    assert 0.015 <= trace.read_lag_s < 30


def test_the_wait_for_a_processor_never_shrinks() -> None:
    clock = ArrivalClock()
    readings = [clock.run_delay_ns() for _ in range(5)]
    assert readings == sorted(readings)
    assert readings[0] >= 0


def test_many_streams_keep_their_number_and_their_order(known: Endpoint) -> None:
    finished: list[int] = []
    users = [f"many-{i}" for i in range(40)]
    batch = stream_many(
        known,
        "/completions",
        [payload(user) for user in users],
        concurrency=8,
        on_trace=lambda index, trace: finished.append(index),
    )
    log = log_of(known)
    assert sorted(finished) == list(range(40))
    assert not batch.is_interrupted
    assert all(trace is not None and trace.is_complete for trace in batch.traces)
    spans = [(log[user]["request_ns"], log[user]["sends"][-1][0]) for user in users]
    # No moment sees more than eight requests between their arrival and their last chunk.
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) <= 8
    assert [trace.sent_at_s for trace in batch.traces if trace] == sorted(t.sent_at_s for t in batch.traces if t)


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ({"first_chunk": 3, "chunk": 3, "evidence": "ids"}, "/completions"),
        ({"reasoning": 8}, "/chat/completions"),
        ({"role_s": 0.002}, "/chat/completions"),
        ({"evidence": "logprobs"}, "/chat/completions"),
    ],
)
def test_scripts_come_through_as_they_are(known: Endpoint, script: dict[str, Any], path: str) -> None:
    trace = stream(known, path, payload(script=script))
    assert trace.is_complete
    if "chunk" in script:
        assert [len(e.token_ids) for e in trace.events if e.token_ids] == [3, 3, 3, 3, 3, 3, 2]
    if "reasoning" in script:
        assert trace.reasoning == "".join(f" w{i}" for i in range(8))
        assert trace.text == "".join(f" w{i}" for i in range(8, 20))
    if "role_s" in script:
        assert not trace.events[0].has_output
        assert trace.events[1].has_output
    if script.get("evidence") == "logprobs":
        assert sum(e.num_logprobs for e in trace.events) == 20


# --------------------------------------------------------------------------------------- servers that misbehave


def test_every_byte_in_a_packet_of_its_own(serve: Serve) -> None:
    wire = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire += (
        chunk('data: {"choices": [{"text": "é🚀"}]}\r\n\r\n'.encode()) + chunk(word("b", "stop") + DONE) + b"0\r\n\r\n"
    )

    def drip(connection: socket.socket, _: bytes) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(wire)):
            connection.sendall(wire[i : i + 1])

    with serve(drip) as endpoint:
        trace = stream(endpoint, "/completions", {})
    assert trace.is_complete
    assert trace.text == "é🚀b"


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(word("a", "stop"))
        + chunk(DONE)
        + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(word("a", "stop"))
        + word("a", "stop"),
        SSE + word("a", "stop") + DONE,
    ],
    ids=["chunked", "length", "done"],
)
def test_the_end_is_seen_although_the_connection_stays_open(serve: Serve, wire: bytes) -> None:
    gone = threading.Event()

    def linger(connection: socket.socket, _: bytes) -> None:
        connection.sendall(wire)
        connection.recv(1)  # until the client closes
        gone.set()

    with serve(linger) as endpoint:
        trace = stream(endpoint, "/completions", {}, timeout_s=15)
        assert trace.is_complete
        assert trace.error is None
        assert gone.wait(5)


def test_a_stall_is_named_with_its_place(serve: Serve) -> None:
    release = threading.Event()

    def stall(connection: socket.socket, _: bytes) -> None:
        connection.sendall(SSE + word("a") + word("b"))
        release.wait(10)

    with serve(stall) as endpoint:
        trace = stream(endpoint, "/completions", {}, timeout_s=0.3)
        release.set()
    assert trace.error == "stalled: not a byte for 0.3 s after 2 output chunks"
    assert trace.text == "ab"
    assert not trace.is_complete


def test_a_server_that_never_answers_is_given_up_on(serve: Serve) -> None:
    release = threading.Event()
    with serve(lambda *_: release.wait(10)) as endpoint:
        trace = stream(endpoint, "/completions", {}, timeout_s=0.2)
        release.set()
    assert trace.error == "stalled: not a byte for 0.2 s before the first output"
    assert trace.status == 0


def test_a_reset_in_the_middle_keeps_what_came(serve: Serve) -> None:
    def reset(connection: socket.socket, _: bytes) -> None:
        connection.sendall(SSE + word("a"))
        time.sleep(0.1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()

    with serve(reset) as endpoint:
        trace = stream(endpoint, "/completions", {})
    assert trace.error == "the server broke the connection off after 1 output chunk"
    assert trace.text == "a"


def test_a_server_that_hangs_up_at_once_is_named(serve: Serve) -> None:
    with serve(lambda *_: None) as endpoint:
        trace = stream(endpoint, "/completions", {})
    assert trace.error == "the connection ended without an answer before the first output"


def test_nobody_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        trace = stream(Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="m"), "/completions", {})
    assert trace.error == f"nothing listens at 127.0.0.1:{port} (connection refused)"
    assert trace.status == 0
    assert trace.events == ()


def test_an_answer_without_end_is_given_up_on(serve: Serve) -> None:
    def flood(connection: socket.socket, _: bytes) -> None:
        connection.sendall(SSE)
        while True:
            connection.sendall(word("x" * 10_000))

    with serve(flood) as endpoint:
        trace = stream_many(endpoint, "/completions", [{}], concurrency=1, max_response_bytes=300_000).traces[0]
    assert trace is not None
    assert trace.error is not None
    assert trace.error.startswith("the answer is longer than 300,000 bytes after ")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_server_that_does_not_stop_where_it_was_told_to_is_given_up_on(serve: Serve, name: str) -> None:
    def flood(connection: socket.socket, _: bytes) -> None:
        connection.sendall(SSE)
        while True:
            connection.sendall(word("x" * 1000) * 16)

    with serve(flood) as endpoint:
        trace = stream(endpoint, "/completions", {name: 8})
    # 1 MiB and 16 KiB for each of the 8 tokens.
    assert trace.error is not None
    assert trace.error.startswith("the answer is longer than 1,179,648 bytes after ")


def test_a_large_request_reaches_the_server_whole(serve: Serve) -> None:
    seen: list[int] = []

    def read(connection: socket.socket, request: bytes) -> None:
        seen.append(len(json.loads(request.partition(b"\r\n\r\n")[2])["prompt"]))
        connection.sendall(SSE + word("a", "stop") + DONE)

    with serve(read) as endpoint:
        trace = stream(endpoint, "/completions", {"prompt": "x" * 5_000_000})
    assert trace.is_complete
    assert seen == [5_000_000]


# ------------------------------------------------------------------------------------------------ names and keys


def test_ipv6_and_localhost_are_reached(serve: Serve) -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python was built without IPv6")

    def answer(connection: socket.socket, request: bytes) -> None:
        host = next(line for line in request.split(b"\r\n") if line.startswith(b"Host: "))
        connection.sendall(SSE + word(host.decode(), "stop") + DONE)

    try:
        with serve(answer, host="::1") as endpoint:
            port = endpoint.base_url.split("]:")[1].removesuffix("/v1")
            assert stream(endpoint, "/completions", {}).text == f"Host: [::1]:{port}"
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    # `localhost` stands for ::1 too on most machines; the server listens on 127.0.0.1 alone.
    with serve(answer, name="localhost") as endpoint:
        traces = stream_many(endpoint, "/completions", [{}, {}, {}], concurrency=1).traces
        assert [t.text.partition(":")[2].partition(":")[0] for t in traces if t] == [" localhost"] * 3


def test_the_key_goes_over_the_wire_and_nowhere_else(serve: Serve) -> None:
    def refuse(connection: socket.socket, request: bytes) -> None:
        header = next(line for line in request.split(b"\r\n") if line.startswith(b"Authorization: "))
        body = json.dumps({"error": {"message": f"wrong key: {header.decode()[22:]}"}}).encode()
        connection.sendall(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with serve(refuse) as endpoint:
        keyed = Endpoint(base_url=endpoint.base_url, model="m", api_key=Secret("sk-very-secret"))
        trace = stream(keyed, "/completions", {})
    assert trace.status == 401
    assert trace.error is not None
    assert "--api-key-file" in trace.error
    assert "wrong key: …" in trace.error
    assert "sk-very-secret" not in repr(trace)


@pytest.mark.parametrize("key", ["two\nlines", "ключ"])
def test_a_key_that_cannot_be_sent_is_refused_without_quoting_it(known: Endpoint, key: str) -> None:
    with pytest.raises(InputError) as caught:
        stream(Endpoint(base_url=known.base_url, model="m", api_key=Secret(key)), "/completions", {})
    assert key not in caught.value.what + caught.value.why + caught.value.fix
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("url", ["ftp://x/v1", "http:///v1", "127.0.0.1:80", "http://h:99999/v1", "http://[::1/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="not an address of a server"):
        stream(Endpoint(base_url=url, model="m"), "/completions", {})


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(PrerequisiteError, match=r"the host nowhere\.invalid is unknown"):
        stream(Endpoint(base_url="http://nowhere.invalid/v1", model="m"), "/completions", {})


def test_no_stream_at_all_is_refused(known: Endpoint) -> None:
    with pytest.raises(InputError, match="concurrency 0 makes no sense"):
        stream_many(known, "/completions", [], concurrency=0)


# ----------------------------------------------------------------------------------------------------- encrypted


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    return context


def test_an_encrypted_stream_is_read_and_stamped(serve: Serve) -> None:
    clock = ArrivalClock()
    sent: list[float] = []

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(SSE)
        for i in range(10):
            sent.append(clock.now_ns() * 1e-9)
            connection.sendall(word(f" {i}"))
            time.sleep(0.005)
        connection.sendall(word("", "stop") + DONE)

    trust = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
    with serve(answer, tls=server_tls(), name="localhost") as endpoint:
        traces = stream_many(endpoint, "/completions", [{}] * 4, concurrency=1, tls=trust, clock=clock).traces
    for trace in traces:
        assert trace is not None
        assert trace.error is None
        assert trace.text == "".join(f" {i}" for i in range(10))
        assert trace.stamp == ("kernel" if clock.is_kernel else "user")
    arrivals = [at for trace in traces if trace for at in outputs(trace)]
    assert len(arrivals) == 40 == len(sent)
    assert all(arrival >= at - 1e-6 for arrival, at in zip(arrivals, sent, strict=True))


def test_a_certificate_that_is_not_trusted_is_named(serve: Serve) -> None:
    with serve(lambda *_: None, tls=server_tls(), name="localhost") as endpoint:
        trace = stream(endpoint, "/completions", {})
    assert trace.error is not None
    assert "the certificate of localhost:" in trace.error
    assert "self-signed certificate" in trace.error.replace("self signed", "self-signed")


def test_a_certificate_for_another_name_is_named(serve: Serve) -> None:
    trust = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
    with serve(lambda *_: None, tls=server_tls(), name="127.0.0.2", host="127.0.0.2") as endpoint:
        trace = stream(endpoint, "/completions", {}, tls=trust)
    assert trace.error is not None
    assert "is not accepted" in trace.error
    assert "127.0.0.2" in trace.error


def encrypted(endpoint: Endpoint) -> Endpoint:
    return Endpoint(base_url=endpoint.base_url.replace("http:", "https:"), model="m")


def plain_refusal(connection: socket.socket) -> None:
    """Any first bytes are answered in plain HTTP."""
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def test_tls_to_a_plain_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                plain_refusal(connection)
                connection.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        trace = stream(Endpoint(base_url=f"https://127.0.0.1:{port}/v1", model="m"), "/completions", {})
        thread.join(5)
    assert trace.error == f"127.0.0.1:{port} does not speak TLS; use http:// instead of https://"


def test_a_handshake_that_never_ends_is_given_up_on(known: Endpoint) -> None:
    batch = stream_many(encrypted(known), "/completions", [{}], concurrency=1, connect_timeout_s=0.2)
    assert batch.traces[0] is not None
    assert batch.traces[0].error is not None
    assert batch.traces[0].error.endswith("within 0.2 s; it may not speak TLS")


# ---------------------------------------------------------------------------------------------------- interrupted


def test_the_cancel_event_ends_it_and_keeps_what_is_finished(known: Endpoint) -> None:
    cancel = threading.Event()
    slow = payload(script={"step_s": 30.0})

    def seen(index: int, trace: StreamTrace) -> None:
        if index == 0:
            cancel.set()

    batch = stream_many(known, "/completions", [payload(), slow, slow], concurrency=2, on_trace=seen, cancel=cancel)
    first, second, third = batch.traces
    assert batch.is_interrupted
    assert first is not None
    assert first.is_complete
    assert second is not None
    assert second.error is not None
    assert second.error.startswith("interrupted")
    assert not second.is_complete
    assert third is None or third.error is not None


def test_ctrl_c_closes_everything_and_keeps_what_is_finished(known: Endpoint) -> None:
    delivered: list[tuple[int, bool]] = []

    def seen(index: int, trace: StreamTrace) -> None:
        is_new = (index, trace.is_complete) not in delivered
        delivered.append((index, trace.is_complete))
        if index == 0 and is_new:
            _thread.interrupt_main()

    slow = payload(script={"step_s": 30.0})
    batch = stream_many(known, "/completions", [payload(), slow, slow, slow], concurrency=3, on_trace=seen)
    assert batch.is_interrupted
    assert batch.traces[0] is not None
    assert batch.traces[0].is_complete
    assert (0, True) in delivered
    assert [t.error is not None for t in batch.traces[1:3] if t] == [True, True]


def test_ctrl_c_during_one_stream_is_passed_on(known: Endpoint) -> None:
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        stream(known, "/completions", payload(script={"step_s": 30.0}))


def test_a_cancelled_stream_says_so(known: Endpoint) -> None:
    cancel = threading.Event()
    cancel.set()
    assert stream(known, "/completions", payload(), cancel=cancel).error == "cancelled before it was sent"


def test_a_failing_listener_stops_the_batch(known: Endpoint) -> None:
    def full(index: int, trace: StreamTrace) -> None:
        raise PrerequisiteError("cannot write", why="no space left on device", fix="free some")

    with pytest.raises(PrerequisiteError, match="cannot write"):
        stream_many(known, "/completions", [payload()] * 4, concurrency=2, on_trace=full)


def test_no_socket_left_is_named(known: Endpoint) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, hard))
    try:
        with pytest.raises(PrerequisiteError, match=r"no socket left for stream \d+ of 40"):
            stream_many(known, "/completions", [payload(script={"ttft_s": 5.0})] * 40, concurrency=40)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
