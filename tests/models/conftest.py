"""Checkpoints made on the spot, and a hub that answers ranges over a real socket."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def load(name: str) -> ModuleType:
    """A module of ``benchmarks/``, loaded once."""
    key = f"freehold_benchmarks_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, ROOT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        spec.loader.exec_module(module)
    return sys.modules[key]


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """Writers of checkpoints that know nothing of freehold's readers."""
    return load("made_checkpoints")


@dataclass
class FakeHub:
    """A hub with one repository, ``owner/name``, in a folder.

    ``mode`` changes how it answers: ``ranges`` rightly, ``whole`` ignores ranges, ``html`` shows a login page,
    ``shifted`` sends another range, ``short`` hangs up half way, a number is the status of every answer.
    """

    root: Path
    mode: str = "ranges"
    file_mode: str | None = None
    sent_bytes: int = 0
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    failures_left: int = 0
    authorizations: set[str | None] = field(default_factory=set)
    url: str = ""

    def listing(self, *, blobs: bool) -> dict[str, object]:
        files = sorted(p for p in self.root.rglob("*") if p.is_file())
        names = [(p.relative_to(self.root).as_posix(), p.stat().st_size) for p in files]
        siblings = [{"rfilename": n, **({"size": s, "blobId": "b" * 40} if blobs else {})} for n, s in names]
        return {"id": "owner/name", "modelId": "owner/name", "sha": COMMIT, "siblings": siblings}

    def tree(self) -> list[dict[str, object]]:
        files = sorted(p for p in self.root.rglob("*") if p.is_file())
        return [
            {"type": "file", "path": p.relative_to(self.root).as_posix(), "size": p.stat().st_size, "oid": etag(p)}
            for p in files
        ]


def etag(path: Path) -> str:
    return hashlib.sha1(f"{path.name}{path.stat().st_size}".encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((path, self.headers.get("Range")))
        hub.authorizations.add(self.headers.get("Authorization"))
        file = re.fullmatch(rf"/owner/name/resolve/{COMMIT}/(.+)", path)
        mode = hub.file_mode if file and hub.file_mode else hub.mode
        if file and hub.failures_left:
            hub.failures_left -= 1
            self.send(503, {}, b"busy", with_body)
        elif mode.isdigit():
            self.send(int(mode), {"X-Error-Code": "GatedRepo"} if mode == "403" else {}, b"no", with_body)
        elif mode == "html":
            self.send(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>log in</html>", with_body)
        elif path in ("/api/models/owner/name", f"/api/models/owner/name/revision/{COMMIT}") or path.endswith(
            "/revision/main"
        ):
            body = json.dumps(hub.listing(blobs="blobs" in self.path)).encode()
            self.send(200, {"Content-Type": "application/json"}, body, with_body)
        elif path == f"/api/models/owner/name/tree/{COMMIT}":
            self.send(200, {"Content-Type": "application/json"}, json.dumps(hub.tree()).encode(), with_body)
        elif path.startswith("/api/models/owner/name/revision/"):
            self.send(404, {"X-Error-Code": "RevisionNotFound"}, b"", with_body)
        elif file and (hub.root / file[1]).is_file():
            self.send_file(hub.root / file[1], mode, with_body)
        elif path.startswith("/api/"):
            self.send(401, {"X-Error-Code": "RepoNotFound"}, b"", with_body)
        else:
            self.send(404, {"X-Error-Code": "EntryNotFound"}, b"", with_body)

    def send_file(self, path: Path, mode: str, with_body: bool) -> None:
        size = path.stat().st_size
        headers = {"ETag": f'"{etag(path)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if asked is None or mode == "whole":
            self.send(200, {**headers, "Content-Length": str(size)}, None, False)
            if with_body:
                with path.open("rb") as source:
                    try:
                        while piece := source.read(65_536):
                            self.wfile.write(piece)
                            self.hub.sent_bytes += len(piece)
                    except OSError:
                        self.close_connection = True
            return
        first, last = int(asked[1]), int(asked[2])
        if first >= size:
            self.send(416, {**headers, "Content-Range": f"bytes */{size}"}, b"", with_body)
            return
        last = min(last, size - 1)
        if mode == "shifted":
            first, last = first + 1, last + 1
        with path.open("rb") as source:
            source.seek(first)
            body = source.read(last - first + 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        if mode == "short":
            self.send(206, {**headers, "Content-Length": str(len(body))}, None, False)
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.hub.sent_bytes += len(body)
        self.send(206, headers, body, with_body)

    def send(self, status: int, headers: dict[str, str], body: bytes | None, with_body: bool) -> None:
        self.send_response(status)
        if body is not None:
            headers = {"Content-Length": str(len(body)), **headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body and body:
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of the tests."""


@pytest.fixture
def make_hub() -> Iterator[Callable[[Path], FakeHub]]:
    """Start a hub that serves a folder; all hubs end with the test."""
    servers: list[Server] = []

    def start(root: Path) -> FakeHub:
        hub = FakeHub(root=root)
        handler = type("HandlerOfOneHub", (Handler,), {"hub": hub})
        server = Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        hub.url = f"http://127.0.0.1:{server.server_port}"
        return hub

    yield start
    if servers:
        from huggingface_hub import close_session

        close_session()
    for server in servers:
        server.shutdown()
        server.server_close()
