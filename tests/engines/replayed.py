"""A server that gives the recorded answers of a real one, and the recorder that made them.

    python tests/engines/replayed.py http://127.0.0.1:8080 18400 CAPTURE.json

Then ask port 18400; SIGINT or SIGTERM ends the recording.

The recorder is a proxy on loopback. The replay is a real HTTP server in a thread; a request that was never recorded
is answered with 418 and remembered, so a test cannot pass on an answer nobody gave.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Exchange = dict[str, Any]
Edit = Callable[[Exchange], Exchange]
RANDOM_FIELDS = ("cache_salt",)  # differ from call to call by design


def key_of(method: str, path: str, request: Any) -> str:
    """What makes two requests the same."""
    if isinstance(request, dict):
        request = {name: value for name, value in request.items() if name not in RANDOM_FIELDS}
    return json.dumps([method, path, request], sort_keys=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[str, str, bytes], Exchange]

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        exchange = type(self).answer(self.command, self.path, body)
        data = exchange["body"].encode("utf-8", "surrogatepass")
        self.send_response(exchange["status"])
        self.send_header("Content-Type", exchange["content_type"])
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    do_GET = _serve
    do_POST = _serve

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class ReplayedServer:
    """Answers as recorded; use it as a context manager.

    Args:
        capture: File of exchanges.
        edit: Changes an exchange before it is given, to play a damaged server.
    """

    def __init__(self, capture: Path, edit: Edit | None = None) -> None:
        self.unknown: list[str] = []
        self.asked: list[tuple[str, str, Any]] = []
        self._edit = edit
        self._left: dict[str, list[Exchange]] = {}
        for exchange in json.loads(capture.read_text(encoding="utf-8"))["exchanges"]:
            key = key_of(exchange["method"], exchange["path"], exchange["request"])
            self._left.setdefault(key, []).append(exchange)
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"answer": staticmethod(self._answer)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _answer(self, method: str, path: str, body: bytes) -> Exchange:
        request = json.loads(body) if body else None
        with self._lock:
            self.asked.append((method, path, request))
            found = self._left.get(key_of(method, path, request))
            if not found:
                self.unknown.append(f"{method} {path} {request}")
                return {"status": 418, "content_type": "text/plain", "body": "never recorded"}
            exchange = found[0] if len(found) == 1 else found.pop(0)
        return self._edit(exchange) if self._edit else exchange

    def body(self, method: str, path: str) -> str:
        """The recorded answer to a request without a payload."""
        return str(self._left[key_of(method, path, None)][0]["body"])

    def __enter__(self) -> ReplayedServer:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if kind is None:
            assert not self.unknown, f"asked what was never recorded: {self.unknown[:3]}"


def record(upstream: str, port: int, capture: Path) -> None:
    """Pass every request on to a real server and write down what came back."""
    exchanges: list[Exchange] = []

    def answer(method: str, path: str, body: bytes) -> Exchange:
        request = urllib.request.Request(upstream + path, data=body or None, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=600) as reply:
                status, kind, data = reply.status, reply.headers.get_content_type(), reply.read()
        except urllib.error.HTTPError as error:
            status, kind, data = error.code, error.headers.get_content_type(), error.read()
        exchange = {
            "method": method,
            "path": path,
            "request": json.loads(body) if body else None,
            "status": status,
            "content_type": kind,
            "body": data.decode(),
        }
        exchanges.append(exchange)
        return exchange

    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"answer": staticmethod(answer)}))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    capture.write_text(json.dumps({"exchanges": exchanges}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
