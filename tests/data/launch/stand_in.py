"""Behaves like an engine's server, in one of many ways."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int, required=True)
arguments.add_argument("--mode", required=True)
arguments.add_argument("--alias", default="stand-in")
arguments.add_argument("--key")
asked = arguments.parse_args()
started = time.monotonic()
mode = asked.mode


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Handler(BaseHTTPRequestHandler):
    def answer(self, status, body, kind="application/json"):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass

    def do_GET(self):
        if mode == "web_site":
            self.answer(200, "<!doctype html><title>shop</title>", "text/html")
        elif asked.key and self.headers.get("Authorization") != f"Bearer {asked.key}":
            self.answer(401, json.dumps({"error": {"message": "Invalid API Key"}}))
        elif self.path == "/v1/models":
            self.answer(200, json.dumps({"object": "list", "data": [{"id": asked.alias, "object": "model"}]}))
        elif self.path == "/health":
            self.answer(200, '{"status": "ok"}')
        else:
            self.answer(404, "{}")

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if mode == "dies_at_first_request":
            say("fatal: head dimension 160 is not supported")
            os._exit(9)
        if mode == "hangs_at_first_request":
            time.sleep(1000)
        if asked.key and self.headers.get("Authorization") != f"Bearer {asked.key}":
            self.answer(401, json.dumps({"error": {"message": "Invalid API Key"}}))
        elif mode == "only_health":
            self.answer(500, json.dumps({"error": {"message": "no kernel for this shape"}}))
        elif mode == "web_site":
            self.answer(200, "<!doctype html><title>shop</title>", "text/html")
        elif mode == "says_nothing":
            self.answer(200, json.dumps({"choices": [{"text": "", "finish_reason": "stop"}]}))
        elif mode == "loads_a_while" and time.monotonic() - started < 0.6:
            self.answer(503, json.dumps({"error": {"message": "Loading model"}}))
        else:
            usage = {"prompt_tokens": 5, "completion_tokens": 4}
            self.answer(200, json.dumps({"choices": [{"text": " Paris.", "finish_reason": "length"}], "usage": usage}))


def main():
    say("loading 0 of 10 bytes")
    if mode == "dies":
        say("fatal: the file is no model")
        say("fatal: giving up")
        sys.exit(7)
    if mode == "runs_out_of_memory":
        say("fatal: cannot continue")
        say("out of memory: 9 GiB asked")
        sys.exit(1)
    if mode == "dies_silently":
        os._exit(3)
    if mode == "illegal_instruction":
        os.kill(os.getpid(), signal.SIGILL)
    if mode == "hangs":
        say("loading 5 of 10 bytes")
        time.sleep(1000)
    if mode == "prints_garbage":
        sys.stdout.buffer.write(bytes(range(256)) * 40 + b"\n\xff\xfe\n" + b"x" * 300_000)
        sys.stdout.buffer.flush()
    if mode in ("has_a_child", "child_survives_death", "leaves_its_child"):
        options = {"start_new_session": True} if mode == "leaves_its_child" else {}
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", str(asked.port)], **options)
        say(f"child {child.pid}")
        if mode == "child_survives_death":
            say("fatal: the parent is gone")
            os._exit(5)
    if mode == "ignores_term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = HTTPServer(("127.0.0.1", asked.port), Handler)
    say(f"listening on {asked.port}")
    server.serve_forever()


main()
