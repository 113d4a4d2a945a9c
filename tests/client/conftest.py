"""A server of known timing in its own process, and servers that misbehave in a thread."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import pytest

from freehold.client.api import Endpoint

ROOT = Path(__file__).resolve().parents[2]
Handler = Callable[[socket.socket, bytes], None]
Serve = Callable[..., AbstractContextManager[Endpoint]]


def load_known_server() -> ModuleType:
    name = "freehold_known_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / "known_server.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def known_port() -> Iterator[int]:
    with load_known_server().running() as port:
        yield port


@pytest.fixture
def known(known_port: int) -> Endpoint:
    return Endpoint(base_url=f"http://127.0.0.1:{known_port}/v1", model="plain")


def read_request(connection: socket.socket) -> bytes:
    """One request with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            break
        body += piece
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def serving(
    handler: Handler, *, host: str = "127.0.0.1", name: str | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Endpoint]:
    """A server in a thread that hands every connection with its request to ``handler``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    threads: list[threading.Thread] = []

    def serve_one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            stream = tls.wrap_socket(connection, server_side=True) if tls is not None else connection
            with stream:
                handler(stream, read_request(stream))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(20)
            thread = threading.Thread(target=serve_one, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    label = name or (f"[{host}]" if ":" in host else host)
    try:
        yield Endpoint(base_url=f"{'https' if tls else 'http'}://{label}:{port}/v1", model="m")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(5)
        for thread in threads:
            thread.join(25)


@pytest.fixture
def serve() -> Serve:
    return serving
