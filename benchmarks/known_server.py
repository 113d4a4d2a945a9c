"""A server of known timing: the truth that the benchmark client is measured against.

Method. One process, one thread, raw epoll. A request names a script as its ``model``; the script says when which chunk
goes out. All bytes are made before the first deadline. Before a deadline the loop sleeps to within a fraction of a
millisecond and then spins. What counts as true is not the plan but the log: the wall clock just before each ``send()``,
and the kernel's receive stamp of the request's last byte. Being late does therefore not harm a comparison.

    python benchmarks/known_server.py [--port 0] [--host 127.0.0.1]      prints {"port": …} when it listens

Routes: ``POST /v1/completions`` and ``/v1/chat/completions`` (streamed scripts), ``GET /v1/models`` (the scripts),
``GET /counters`` (tokens and requests served so far), ``GET /log`` (the log as JSONL, then emptied). Below
``/chat-only`` there is the same without ``/completions``. A request's field ``"user"``, or without it the first line
of its prompt, becomes its ``id`` in the log; its field ``"script"`` may override any field of the script.

Does not do: generating text, or anything a test of correctness of answers would need.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import heapq
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SO_TIMESTAMPNS = 35  # Linux asm-generic/socket.h
SPIN_NS = 100_000
TIMESPEC = struct.Struct("@ll")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """When which chunk of one answer goes out.

    Args:
        ttft_s: Request's last byte until the first token is ready.
        step_s: Time between tokens that are ready.
        tokens: Tokens of the whole answer.
        first_chunk: Tokens in the first chunk.
        chunk: Tokens in each further chunk; it goes out when its last token is ready.
        is_step_speculative: A further chunk goes out ``chunk`` steps after the one before it, as a verified draft does.
        reasoning: How many tokens at the start are reasoning (chat only).
        reasoning_field: The name the reasoning has on the wire.
        usage_factor: The usage states this times the truth.
        stall_after: A pause follows this token; 0 for none.
        stall_s: How long it is.
        role_s: A chunk with a role and no text goes out at this time; None for none.
        stop_at: The answer ends by itself after this token; 0 for never.
        cut_one_in: Of this many requests one is broken off half way; 0 for none.
        evidence: What lets the client count: ``none``, ``ids``, ``logprobs`` or ``timings``.
        cached_tokens: What the usage says was reused of the prompt; None says nothing.
        prompt_tokens: What the usage says about the prompt.
        status: Any other status than 200 answers an error at once.
        body: Body of an error.
        content_type: Type of an error's body.
        is_slow_close: Keep the connection open after the end.
    """

    ttft_s: float = 0.2
    step_s: float = 0.02
    tokens: int = 100
    first_chunk: int = 1
    chunk: int = 1
    is_step_speculative: bool = False
    reasoning: int = 0
    reasoning_field: str = "reasoning_content"
    usage_factor: float = 1.0
    stall_after: int = 0
    stall_s: float = 0.0
    role_s: float | None = None
    stop_at: int = 0
    cut_one_in: int = 0
    evidence: str = "none"
    cached_tokens: int | None = None
    prompt_tokens: int = 32
    status: int = 200
    body: str = ""
    content_type: str = "application/json"
    is_slow_close: bool = False


SCRIPTS: dict[str, Script] = {
    "plain": Script(),
    "speculation": Script(chunk=3, is_step_speculative=True),
    "batched": Script(first_chunk=3, chunk=3, evidence="ids"),
    "reasoning": Script(reasoning=40),
    "usage_plus_10": Script(usage_factor=1.1),
    "stall": Script(stall_after=50, stall_s=2.0),
    "role_early": Script(role_s=0.05),
    "stops_at_60": Script(stop_at=60),
    "cut_one_in_8": Script(cut_one_in=8),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One send: offset from the request, bytes, tokens in it, whether it shows output, what ends after it."""

    offset_ns: int
    data: bytes
    tokens: int
    is_output: bool
    is_cut: bool = False


def first_line(request: dict[str, Any]) -> str:
    """The beginning of the prompt, where a client's nonce stands."""
    text = request.get("prompt") or next((m.get("content", "") for m in request.get("messages", [])), "")
    return str(text).partition("\n")[0]


def frame(body: str) -> bytes:
    data = f"data: {body}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)


def build(script: Script, name: str, *, is_chat: bool, is_cut: bool, max_tokens: int) -> tuple[Piece, ...]:
    """All sends of one answer."""
    delivered = min(script.tokens, max_tokens, script.stop_at or script.tokens)
    head = {"id": "known", "object": "chat.completion.chunk" if is_chat else "text_completion", "model": name}
    pieces: list[Piece] = []

    def chunk(first: int, count: int, finish: str | None) -> bytes:
        tokens = range(first, first + count)
        words = "".join(f" w{i}" for i in tokens)
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if is_chat:
            is_reasoning = first < script.reasoning
            choice["delta"] = {script.reasoning_field if is_reasoning else "content": words}
        else:
            choice["text"] = words
        if script.evidence == "ids":
            choice["token_ids"] = [1000 + i for i in tokens]
        elif script.evidence == "logprobs":
            if is_chat:
                choice["logprobs"] = {"content": [{"token": f" w{i}", "logprob": -0.1} for i in tokens]}
            else:
                choice["logprobs"] = {"tokens": [f" w{i}" for i in tokens], "token_logprobs": [-0.1] * count}
        body: dict[str, Any] = {**head, "choices": [choice]}
        if script.evidence == "timings":
            body["timings"] = {"predicted_n": first + count, "predicted_ms": 1.0}
        return frame(json.dumps(body))

    if script.role_s is not None:
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}} if is_chat else {"index": 0, "text": ""}
        data = HEAD + frame(json.dumps({**head, "choices": [choice]}))
        pieces.append(Piece(round(script.role_s * 1e9), data, 0, False))
    done = 0
    previous_s = 0.0
    while done < delivered:
        count = min(script.first_chunk if done == 0 else script.chunk, delivered - done)
        if 0 < done < script.reasoning < done + count:
            count = script.reasoning - done
        ready_s = script.ttft_s + script.step_s * (done + count - 1)
        if script.is_step_speculative:
            ready_s = script.ttft_s if done == 0 else previous_s + script.step_s * script.chunk
        if script.stall_after and done >= script.stall_after:
            ready_s += script.stall_s
        previous_s = (
            ready_s if not script.is_step_speculative or done == 0 else previous_s + script.step_s * script.chunk
        )
        done += count
        is_last = done >= delivered
        finish = ("stop" if done < min(script.tokens, max_tokens) else "length") if is_last else None
        data = chunk(done - count, count, finish)
        if not pieces:
            data = HEAD + data
        is_broken = is_cut and delivered > 1 and done >= delivered // 2
        if is_last and not is_broken:
            usage: dict[str, Any] = {
                "prompt_tokens": script.prompt_tokens,
                "completion_tokens": round(delivered * script.usage_factor),
            }
            usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
            if script.cached_tokens is not None:
                usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
            data += frame(json.dumps({**head, "choices": [], "usage": usage})) + frame("[DONE]") + b"0\r\n\r\n"
        pieces.append(Piece(round(ready_s * 1e9), data, count, True, is_broken))
        if is_broken:
            break
    return tuple(pieces)


@dataclass(slots=True, eq=False)
class Client:
    """One connection."""

    sock: socket.socket
    fd: int
    buffer: bytes = b""
    request_ns: int = 0
    is_kernel_stamped: bool = False
    pieces: tuple[Piece, ...] = ()
    position: int = 0
    start_ns: int = 0
    entry: dict[str, Any] = field(default_factory=dict)
    is_slow_close: bool = False
    is_closed: bool = False


class KnownServer:
    """The loop."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.has_stamps = sys.platform == "linux" and TIMESPEC.size == 16
        if self.has_stamps:
            self.listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.listener.bind((host, port))
        self.listener.listen(1024)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.epoll = select.epoll()
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.clients: dict[int, Client] = {}
        self.deadlines: list[tuple[int, int, Client]] = []
        self.sequence = 0
        self.built: dict[tuple[Any, ...], tuple[Piece, ...]] = {}
        self.served: dict[str, int] = {}
        self.log: list[dict[str, Any]] = []
        self.counters = {"prompt_tokens": 0, "output_tokens": 0, "requests": 0}
        self.is_stopping = False

    def run(self) -> None:
        while not self.is_stopping:
            self.send_due()
            try:
                ready = self.epoll.poll(self.wait())
            except InterruptedError:
                continue
            for fd, events in ready:
                if fd == self.listener.fileno():
                    self.accept()
                elif (client := self.clients.get(fd)) is not None:
                    self.receive(client, events)

    def wait(self) -> float:
        """Seconds for epoll; what is shorter than its millisecond is slept here, the last of it is spun."""
        if not self.deadlines:
            return 0.1
        left_ns = self.deadlines[0][0] - time.monotonic_ns()
        if left_ns >= 2_000_000:
            # Python goes on waiting after a signal: a tenth of a second is how long a stop may take.
            return min(100, (left_ns - 1_000_000) // 1_000_000) / 1000
        if left_ns > SPIN_NS:
            time.sleep((left_ns - SPIN_NS) / 1e9)
        return 0

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.has_stamps:
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            client = Client(sock, sock.fileno())
            self.clients[client.fd] = client
            self.epoll.register(client.fd, select.EPOLLIN)
            self.receive(client, select.EPOLLIN)

    def receive(self, client: Client, events: int) -> None:
        try:
            data, ancillary, _, _ = client.sock.recvmsg(65536, 64)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.close(client)
            return
        client.request_ns, client.is_kernel_stamped = time.time_ns(), False
        for level, kind, blob in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(blob) == 16:
                seconds, nanoseconds = TIMESPEC.unpack(blob)
                client.request_ns, client.is_kernel_stamped = seconds * 10**9 + nanoseconds, True
        client.buffer += data
        head, separator, body = client.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if len(body) >= length:
            client.buffer = b""
            self.answer(client, head, body)

    def answer(self, client: Client, head: bytes, body: bytes) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        is_chat_only = target.startswith("/chat-only/")
        target = target.removeprefix("/chat-only")
        if method == "GET":
            self.answer_get(client, target)
            return
        request = json.loads(body)
        name = request.get("model", "plain")
        is_chat = target.endswith("/chat/completions")
        has_route = is_chat or (target.endswith("/completions") and not is_chat_only)
        if name not in SCRIPTS or not has_route:
            self.reply(client, 404, json.dumps({"error": {"message": f"no model {name!r} at {target}"}}))
            return
        overrides = request.get("script", {})
        script = dataclasses.replace(SCRIPTS[name], **overrides)
        if script.status != 200:
            self.reply(client, script.status, script.body, script.content_type)
            return
        count = self.served[name] = self.served.get(name, 0) + 1
        is_cut = bool(script.cut_one_in) and count % script.cut_one_in == 0
        max_tokens = int(request.get("max_tokens", script.tokens))
        key = (script, name, is_chat, is_cut, max_tokens)
        if key not in self.built:
            self.built[key] = build(script, name, is_chat=is_chat, is_cut=is_cut, max_tokens=max_tokens)
        if not request.get("stream"):
            self.reply_whole(client, script, name, is_chat=is_chat, max_tokens=max_tokens)
            return
        client.pieces = self.built[key]
        client.is_slow_close = script.is_slow_close
        client.start_ns = time.monotonic_ns() - (time.time_ns() - client.request_ns)
        client.entry = {
            "id": request.get("user") or first_line(request),
            "script": name,
            "request_ns": client.request_ns,
            "is_kernel_stamped": client.is_kernel_stamped,
            "sends": [],
            "is_cut": is_cut,
        }
        self.counters["requests"] += 1
        self.counters["prompt_tokens"] += script.prompt_tokens
        self.schedule(client)

    def answer_get(self, client: Client, target: str) -> None:
        if target == "/log":
            lines = "".join(json.dumps(entry) + "\n" for entry in self.log)
            self.log.clear()
            self.reply(client, 200, lines, "application/jsonl")
        elif target == "/counters":
            self.reply(client, 200, json.dumps(self.counters))
        elif target == "/v1/models":
            models = [{"id": name, "object": "model"} for name in SCRIPTS]
            self.reply(client, 200, json.dumps({"object": "list", "data": models}))
        else:
            self.reply(client, 404, json.dumps({"error": {"message": f"nothing at {target}"}}))

    def reply_whole(self, client: Client, script: Script, name: str, *, is_chat: bool, max_tokens: int) -> None:
        count = min(script.tokens, max_tokens, script.stop_at or script.tokens)
        words = "".join(f" w{i}" for i in range(count))
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        choice.update({"message": {"role": "assistant", "content": words}} if is_chat else {"text": words})
        usage = {"prompt_tokens": script.prompt_tokens, "completion_tokens": count}
        self.counters["requests"] += 1
        self.counters["prompt_tokens"] += script.prompt_tokens
        self.counters["output_tokens"] += count
        self.reply(client, 200, json.dumps({"model": name, "choices": [choice], "usage": usage}))

    def reply(self, client: Client, status: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        head = (
            f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        client.sock.setblocking(True)
        with contextlib.suppress(OSError):  # a client that left
            client.sock.sendall(head.encode() + data)
        self.close(client)

    def schedule(self, client: Client) -> None:
        self.sequence += 1
        deadline = client.start_ns + client.pieces[client.position].offset_ns
        heapq.heappush(self.deadlines, (deadline, self.sequence, client))

    def send_due(self) -> None:
        while self.deadlines:
            if self.deadlines[0][0] > time.monotonic_ns():
                return
            _, _, client = heapq.heappop(self.deadlines)
            if client.is_closed:
                continue
            piece = client.pieces[client.position]
            before_ns = time.time_ns()
            try:
                client.sock.send(piece.data)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    client.entry["error"] = error.strerror
                self.finish(client)
                continue
            client.entry["sends"].append((before_ns, piece.tokens, piece.is_output))
            self.counters["output_tokens"] += piece.tokens
            client.position += 1
            if piece.is_cut or client.position == len(client.pieces):
                self.finish(client)
            else:
                self.schedule(client)

    def finish(self, client: Client) -> None:
        self.log.append(client.entry)
        client.entry = {}
        if not client.is_slow_close:
            self.close(client)

    def close(self, client: Client) -> None:
        if client.is_closed:
            return
        client.is_closed = True
        if client.entry:
            self.log.append(client.entry)
        del self.clients[client.fd]
        self.epoll.unregister(client.fd)
        client.sock.close()

    def stop(self) -> None:
        self.is_stopping = True


@contextlib.contextmanager
def running(host: str = "127.0.0.1", core: int | None = None) -> Iterator[int]:
    """Run the server in a process of its own, on one core if asked; gives its port."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--host", host], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        port = json.loads(child.stdout.readline())["port"]
        if core is not None:
            os.sched_setaffinity(child.pid, {core})
        yield port
    finally:
        child.terminate()
        child.wait(10)
        child.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="a server of known timing")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    server = KnownServer(arguments.host, arguments.port)
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    signal.signal(signal.SIGINT, lambda *_: server.stop())
    print(json.dumps({"port": server.port}), flush=True)
    server.run()


if __name__ == "__main__":
    main()
