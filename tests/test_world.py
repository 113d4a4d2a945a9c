"""This machine through :class:`LocalWorld`: real commands, real processes, real sockets."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from freehold.errors import PrerequisiteError
from freehold.world import LocalWorld, utc_text


@pytest.fixture
def world() -> LocalWorld:
    return LocalWorld()


def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        reply = b"|".join([self.command.encode(), self.headers.get("x-key", "").encode(), body])
        self.send_response(404 if self.path == "/nothing" else 200)
        self.send_header("Content-Length", str(len(reply)))
        self.send_header("X-Loud", "Yes")
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that takes one request and answers it as it likes; gives its port."""

    def work() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=work)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_command_gives_status_and_both_outputs(world: LocalWorld) -> None:
    script = "import os, sys; print('out', os.environ['EXTRA']); print('err\\xff', file=sys.stderr); sys.exit(3)"
    done = world.run([sys.executable, "-c", script], timeout_s=30, env={"EXTRA": "seen"})
    assert (done.returncode, done.stdout, done.stderr.strip()) == (3, "out seen\n", "errÿ")


def test_output_that_is_no_text_is_still_shown(world: LocalWorld) -> None:
    done = world.run([sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\xff\\xfe')"], timeout_s=30)
    assert done.stdout == "\ufffd\ufffd"


def test_a_program_that_does_not_exist_is_named(world: LocalWorld) -> None:
    with pytest.raises(PrerequisiteError, match="cannot run `no-such-program-here`"):
        world.run(["no-such-program-here"], timeout_s=1)


def test_a_command_that_hangs_is_ended(world: LocalWorld) -> None:
    begun = time.monotonic()
    with pytest.raises(PrerequisiteError, match="did not end within"):
        world.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.3)
    assert time.monotonic() - begun < 20


def test_a_process_from_its_start_to_its_end(world: LocalWorld, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    script = (
        "import os, time; print('hello', os.environ['EXTRA'], os.getsid(0) == os.getpid(), flush=True); time.sleep(60)"
    )
    pid = world.spawn([sys.executable, "-c", script], env={"EXTRA": "seen"}, log=log)
    try:
        until(lambda: "hello" in log.read_text())
        assert log.read_text() == "before\nhello seen True\n", "appended, in a session of its own"
        facts = world.process(pid)
        assert facts is not None
        assert facts.argv[-1] == script
        assert facts.resident_bytes > 2**20
        assert abs(facts.started_at - time.time()) < 60
        assert facts.started_at == world.process(pid).started_at  # type: ignore[union-attr]
        assert world.exit_status(pid) is None
    finally:
        world.signal(pid, 15)
    until(lambda: world.process(pid) is None)
    assert world.exit_status(pid) == -15
    world.signal(pid, 15)  # a process that is gone is no error


def test_a_zombie_counts_as_gone(world: LocalWorld, tmp_path: Path) -> None:
    pid = world.spawn([sys.executable, "-c", "raise SystemExit(4)"], env={}, log=tmp_path / "log")
    other = LocalWorld()  # does not reap what it did not start
    until(lambda: other.process(pid) is None)
    assert other.exit_status(pid) is None
    until(lambda: world.exit_status(pid) == 4)


@pytest.mark.parametrize("case", ["program", "log"])
def test_a_process_that_cannot_start_says_why(world: LocalWorld, tmp_path: Path, case: str) -> None:
    argv = ["no-such-program-here"] if case == "program" else [sys.executable, "-c", ""]
    log = tmp_path / "log" if case == "program" else tmp_path / "missing" / "log"
    with pytest.raises(PrerequisiteError) as caught:
        world.spawn(argv, env={}, log=log)
    assert caught.value.why == "No such file or directory"


def test_who_listens_on_a_port(world: LocalWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        facts = world.listener(port)
        assert facts is not None
        assert facts.argv == world.process(facts.pid).argv  # type: ignore[union-attr]
        assert facts.pid == os.getpid()
    assert world.listener(port) is None


def test_http_exchanges(world: LocalWorld, address: str) -> None:
    reply = world.http("POST", f"{address}/x", headers={"X-Key": "k"}, json={"a": 1})
    assert (reply.status, reply.body) == (200, b'POST|k|{"a":1}')
    assert reply.headers["x-loud"] == "Yes"
    assert world.http("GET", f"{address}/nothing").status == 404
    moved = world.http("GET", f"{address}/moved")
    assert (moved.status, moved.headers["location"]) == (302, "/elsewhere")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://nowhere.invalid/", "http://[::bad/", "nonsense", "ftp://x.test/"]
)
def test_no_answer_is_a_missing_prerequisite(world: LocalWorld, url: str) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        world.http("GET", url, timeout_s=2)
    assert url in caught.value.what


def test_a_server_that_says_nothing_is_given_up(world: LocalWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(PrerequisiteError, match="no answer from"):
        world.http("GET", f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_s=0.2)


def test_the_clocks(world: LocalWorld) -> None:
    assert world.now().utcoffset() == timedelta(0)
    before = world.monotonic()
    world.sleep(0.02)
    assert world.monotonic() - before >= 0.02


def test_utc_text_converts_to_utc() -> None:
    moment = datetime(2026, 11, 30, 23, 40, 13, 999, tzinfo=timezone(timedelta(hours=1)))
    assert utc_text(moment) == "2026-11-30T22:40:13Z"
    assert utc_text(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00Z"


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["head", "body"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(world: LocalWorld, head: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(head + b"x-a: ")
        for _ in range(200):
            connection.sendall(b"b")
            time.sleep(0.02)

    with serving(answer) as port, pytest.raises(PrerequisiteError) as caught:
        world.http("GET", f"http://127.0.0.1:{port}/", timeout_s=0.3)
    assert caught.value.why == "no whole answer within 0.3 s"


def test_an_answer_without_an_end_fills_no_memory(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freehold.world._MAX_BODY_BYTES", 1_000_000)

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" " * 65536)

    with serving(answer) as port, pytest.raises(PrerequisiteError, match="does not end") as caught:
        world.http("GET", f"http://127.0.0.1:{port}/", timeout_s=20)
    assert caught.value.why == "it is longer than 1,000,000 bytes"


@pytest.mark.parametrize("pid", [0, -1, -(2**70)])
def test_what_is_no_pid_is_no_process_and_gets_no_signal(world: LocalWorld, pid: int) -> None:
    assert world.process(pid) is None
    world.signal(pid, 0)  # the kernel would take 0 for our own group and -1 for every process
