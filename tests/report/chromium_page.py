"""Drives a real headless Chromium through its debugging pipe, with nothing but the standard library.

The protocol is JSON messages that end with a zero byte, on file descriptors 3 (to the browser) and 4 (from it).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
REPLY_TIMEOUT_S = 60.0


class Browser:
    """One Chromium process with one page."""

    def __init__(self, send: int, receive: int) -> None:
        self._send = send
        self._receive = receive
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; events that arrive meanwhile are kept."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + REPLY_TIMEOUT_S
        while True:
            reply = self._next(deadline)
            if reply.get("id") == self._last_id:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self.events.append(reply)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "Chromium did not answer in time"
            chunk = os.read(self._receive, 1 << 20)
            assert chunk, "Chromium ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def attach(self) -> None:
        """Open a page and listen to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, page: Path, *, width: int, height: int = 900, scheme: str = "light", is_phone: bool = False) -> None:
        """Load a page from disk and wait until it is there."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=is_phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.as_uri())
        deadline = time.monotonic() + REPLY_TIMEOUT_S
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next(deadline))

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn; a page without scripts cannot say so, a picture of it can."""
        corner = {"x": 0, "y": 0, "width": 1, "height": 1, "scale": 1}
        self.call("Page.captureScreenshot", format="jpeg", clip=corner)

    def centre(self, selector: str) -> dict[str, float]:
        """Scroll an element into the middle of the window and say where it is."""
        where = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', inline: 'center'}); const r = e.getBoundingClientRect();"
            " return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()"
        )
        self.settle()
        return dict(where)

    def point_at(self, selector: str) -> None:
        """Move the mouse over an element."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self.centre(selector))

    def click(self, selector: str) -> None:
        """Press and release the left mouse button on an element."""
        where = self.centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def tap(self, selector: str) -> None:
        """Touch an element with one finger."""
        where = self.centre(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[where])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, *, is_whole: bool = True) -> None:
        """Save what the page looks like."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """Save what it looks like on paper."""
        printed = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(printed["data"]))

    def problems(self) -> list[str]:
        """Everything that went wrong in the page since it was opened: exceptions, console errors, log entries."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"].get("text")))
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(str(parameters["args"]))
            elif method == "Log.entryAdded":
                found.append(str(parameters["entry"].get("text")))
        return found

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]


@contextlib.contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own; it is gone when the block ends."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def place_pipes() -> None:
        # Both ends are moved out of the way first: 3 and 4 may be the numbers that the pipes have already.
        a, b = os.dup(to_read), os.dup(from_write)
        os.dup2(a, 3)
        os.dup2(b, 4)

    with (profile.parent / f"{profile.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=place_pipes,
            close_fds=False,
        )
    os.close(to_read)
    os.close(from_write)
    try:
        page = Browser(to_write, from_read)
        page.attach()
        yield page
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to_write)
        os.close(from_read)
