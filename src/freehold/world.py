"""The small object through which code reaches the outside: commands, processes, HTTP, the clock.

Stages take a :class:`World` as an argument; :class:`LocalWorld` is the real one, tests hand in another. Latency is
measured in ``client/``, not through :meth:`World.http`.

Does not do: deciding anything; every method is one act.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from freehold.errors import PrerequisiteError

if TYPE_CHECKING:
    import psutil

__all__ = ["Completed", "HttpReply", "LocalWorld", "ProcessFacts", "World", "utc_text"]

_REAP_WAIT_S = 2.0
_MAX_BODY_BYTES = 64 * 1024 * 1024  # guess: ten times the longest that a server has reason to send


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A finished command: exit status (negative: ended by that signal) and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """A running process: pid, kernel start time (seconds since the epoch), command line, resident bytes.

    ``parent_pid`` and ``session_id`` (pid of its session's leader) are None where they cannot be seen.
    """

    pid: int
    started_at: float
    argv: tuple[str, ...]
    resident_bytes: int
    parent_pid: int | None = None
    session_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """A whole HTTP answer; header names are lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class World(Protocol):
    """Everything outside the process that freehold touches."""

    def now(self) -> datetime:
        """Current time, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        """Run a command to its end; ``env`` is added to the inherited environment.

        Raises:
            PrerequisiteError: The program does not exist, or did not end in time.
        """
        ...

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
        """Start a command in a session of its own with both outputs appended to ``log``; returns its pid."""
        ...

    def process(self, pid: int) -> ProcessFacts | None:
        """A process by pid, None when there is none (a zombie counts as none)."""
        ...

    def processes(self) -> tuple[ProcessFacts, ...]:
        """Every running process that can be seen."""
        ...

    def exit_status(self, pid: int) -> int | None:
        """Exit status of a process that :meth:`spawn` started; None while it runs or where it is unknown."""
        ...

    def signal(self, pid: int, number: int) -> None:
        """Send a signal; a process that is gone is no error."""
        ...

    def listener(self, port: int) -> ProcessFacts | None:
        """The process that listens on a TCP port, None when nobody does or it cannot be seen."""
        ...

    def bindable_port(self, host: str, port: int) -> int:
        """Bind a TCP port for a moment and let go of it; returns its number, a free one for port 0.

        Raises:
            PrerequisiteError: It cannot be bound: in use, or not an address of this machine.
        """
        ...

    def http(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        timeout_s: float = 30.0,
    ) -> HttpReply:
        """One HTTP exchange, redirects not followed.

        Raises:
            PrerequisiteError: Nothing answered, not all of it came within ``timeout_s``, or it does not end.
        """
        ...


def utc_text(moment: datetime) -> str:
    """A UTC time as ISO text to the second: ``2026-11-30T22:40:13Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _facts(process: psutil.Process) -> ProcessFacts | None:
    """What a process is; None for a zombie. A value that the kernel does not show to this user is None."""
    import psutil

    with process.oneshot():
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        try:
            session_id = os.getsid(process.pid)
        except OSError:
            session_id = None
        return ProcessFacts(
            pid=process.pid,
            started_at=process.create_time(),
            argv=tuple(process.cmdline()),
            resident_bytes=process.memory_info().rss,
            parent_pid=process.ppid(),
            session_id=session_id,
        )


class LocalWorld:
    """This machine."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def now(self) -> datetime:
        """Current time, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        """Run a command to its end."""
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env={**os.environ, **(env or {})},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PrerequisiteError(
                f"`{argv[0]}` did not end within {timeout_s:.0f} s",
                why="it hangs, or the machine is too busy",
                fix=f"run it by hand: `{' '.join(argv)}`",
            ) from None
        except OSError as error:
            raise PrerequisiteError(
                f"cannot run `{argv[0]}`",
                why=error.strerror or str(error),
                fix="install it, or name its full path",
            ) from None
        return Completed(
            returncode=done.returncode,
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
        )

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
        """Start a command in a session of its own, its output in ``log``."""
        try:
            sink = log.open("ab")
        except OSError as error:
            raise PrerequisiteError(
                f"cannot write the log {log}",
                why=error.strerror or str(error),
                fix="choose a folder you may write",
            ) from None
        with sink:
            try:
                child = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **env},
                    start_new_session=True,
                )
            except OSError as error:
                raise PrerequisiteError(
                    f"cannot start `{argv[0]}`",
                    why=error.strerror or str(error),
                    fix="check that the program exists and may be run",
                ) from None
        self._children[child.pid] = child
        return child.pid

    def process(self, pid: int) -> ProcessFacts | None:
        """A process by pid."""
        import psutil

        if pid < 1:
            return None
        child = self._children.get(pid)
        if child is not None:
            child.poll()
        try:
            facts = _facts(psutil.Process(pid))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            facts = None
        if facts is None and child is not None:
            # Its last threads may still be on their way out; only then can it be reaped and its status be known.
            with suppress(subprocess.TimeoutExpired):
                child.wait(_REAP_WAIT_S)
        return facts

    def processes(self) -> tuple[ProcessFacts, ...]:
        """Every running process that can be seen."""
        import psutil

        found = []
        for process in psutil.process_iter():
            try:
                facts = _facts(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if facts is not None:
                found.append(facts)
        return tuple(found)

    def exit_status(self, pid: int) -> int | None:
        """Exit status of a process that was spawned here."""
        child = self._children.get(pid)
        return None if child is None else child.poll()

    def signal(self, pid: int, number: int) -> None:
        """Send a signal; to one process only, never to a group or to all, which zero and less stand for."""
        if pid < 1:
            return
        try:
            os.kill(pid, signal.Signals(number))
        except ProcessLookupError:
            return

    def listener(self, port: int) -> ProcessFacts | None:
        """The process that listens on a TCP port."""
        import psutil

        try:
            connections = psutil.net_connections(kind="tcp")
        except psutil.AccessDenied:
            return None
        for connection in connections:
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                return self.process(connection.pid)
        return None

    def bindable_port(self, host: str, port: int) -> int:
        """Bind a TCP port for a moment and let go of it."""
        if not 0 <= port <= 65535:
            raise PrerequisiteError(
                f"cannot listen on {host} port {port}",
                why="ports go from 1 to 65535",
                fix="use port 0 for any free one",
            )
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                return int(probe.getsockname()[1])
        except (OSError, OverflowError, UnicodeError) as error:
            raise PrerequisiteError(
                f"cannot listen on {host} port {port}",
                why=getattr(error, "strerror", None) or str(error),
                fix="choose an address of this machine and a free port, or port 0 for any free one",
            ) from None

    def http(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        timeout_s: float = 30.0,
    ) -> HttpReply:
        """One HTTP exchange."""
        import httpx

        # Loading certificates takes 20 ms, as long as a small model takes for a token; plain HTTP has no use for them.
        needs_certificates = not url.lower().startswith("http:")
        deadline = _Deadline(timeout_s)
        body = bytearray()
        try:
            with (
                deadline,
                httpx.Client(timeout=timeout_s, trust_env=False, verify=needs_certificates) as client,
                client.stream(
                    method, url, headers=dict(headers or {}), json=json, extensions={"trace": deadline.watch}
                ) as reply,
            ):
                for piece in reply.iter_bytes():
                    body += piece
                    if len(body) > _MAX_BODY_BYTES:
                        raise PrerequisiteError(
                            f"the answer from {url} does not end",
                            why=f"it is longer than {_MAX_BODY_BYTES:,} bytes",
                            fix="check that the address is that of an OpenAI-compatible API",
                        )
            if deadline.is_over:  # a body that only ends with the connection looks whole then
                raise httpx.ReadTimeout("")
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise PrerequisiteError(
                f"no answer from {url}",
                why=f"no whole answer within {timeout_s:g} s"
                if deadline.is_over
                else str(error) or type(error).__name__,
                fix="check that the server runs and that the address and port are right",
            ) from None
        return HttpReply(
            status=reply.status_code, headers={k.lower(): v for k, v in reply.headers.items()}, body=bytes(body)
        )


class _Deadline:
    """Ends an exchange when its time is up, also where a server keeps it alive with a byte now and then."""

    def __init__(self, timeout_s: float) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the connection; called by httpx at every step."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    def _end(self) -> None:
        self.is_over = True
        for one in self._sockets:
            # A socket that was closed, or went into an encrypted one, is gone already.
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
