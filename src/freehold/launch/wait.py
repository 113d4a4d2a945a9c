"""Waits for a started engine: follows its log, notices its death, and asks for the first completion.

Read :func:`wait_until_ready`. An engine's own last words are in every error, with the path of the full log.

Does not do: starting or ending processes (``start.py``, ``tree.py``).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from freehold.client.api import Endpoint
from freehold.engines.interface import Engine, LogEvent
from freehold.errors import EngineError
from freehold.launch.process import ProcessRecord
from freehold.launch.ready import Attempt, FirstCompletion
from freehold.launch.tree import family
from freehold.launch.watch import LogFollower
from freehold.progress import Listener, Progress
from freehold.units import format_disk, format_duration
from freehold.world import ProcessFacts, World

__all__ = ["Answer", "Started", "Waiting", "wait_until_ready"]

_POLL_S = 0.05
_TRY_EVERY_S = 0.2
_BLIND_TRY_EVERY_S = 2.0
_REFUSALS = 3
_REPORT_EVERY_S = 0.5
_EXIT_WAIT_S = 2.0
_LOG_LIMIT_BYTES = 2**30  # guess: a thousand times what an engine has to say before it answers
_MEANING = {
    signal.SIGILL: "the program uses an instruction that this processor does not have",
    signal.SIGKILL: "it was ended from outside, most often by the kernel for lack of memory",
    signal.SIGSEGV: "it crashed: a memory access that is not allowed",
    signal.SIGBUS: "it crashed: a file it had mapped became shorter, or the disk failed",
    signal.SIGABRT: "it stopped itself",
}
_REMEDY = {
    signal.SIGILL: "use a build for this processor, or another `engine.runtime`",
    signal.SIGKILL: "free memory, or lower `context` or `sequences`; `dmesg` names what the kernel ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process that was started.

    Args:
        record: What was written down.
        pid: Its pid.
        facts: What the kernel said of it right after the start; None if it was gone by then.
        log: Its log.
    """

    record: ProcessRecord
    pid: int
    facts: ProcessFacts | None
    log: LogFollower


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What is waited for.

    Args:
        engine: Reads the log.
        endpoint: Where it will answer.
        port: Where it will listen.
        started: Its processes; the first one is the server.
        model_bytes: Size of the checkpoint, for progress.
        deadline_s: Monotonic time at which patience ends.
        timeout_s: The patience in seconds, for the error.
    """

    engine: Engine
    endpoint: Endpoint
    port: int
    started: tuple[Started, ...]
    model_bytes: int
    deadline_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The engine answers; what its log has said until then.

    Args:
        facts: Effective configuration, by name.
        warnings: Meanings of its warnings.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def wait_until_ready(waiting: Waiting, world: World, listener: Listener) -> Answer:
    """Wait until a started engine has completed its first completion.

    Args:
        waiting: What is waited for.
        world: For everything outside.
        listener: Gets what the log says, and how much of the checkpoint is in memory.

    Raises:
        EngineError: It ended, another process took its port, it did not answer in time, or it keeps answering
            something that is no completion.
    """
    return _Watch(waiting, world, listener).run()


class _Watch:
    def __init__(self, waiting: Waiting, world: World, listener: Listener) -> None:
        self._waiting = waiting
        self._world = world
        self._listener = listener
        self._probe = FirstCompletion(world, waiting.endpoint)
        self._began_s = world.monotonic()
        self._next_try_s = self._began_s
        self._next_report_s = self._began_s
        self._refusals = 0
        self._message = "starting"
        self._is_listening = False
        self._cause: LogEvent | None = None
        self._is_out_of_memory = False
        self._facts: dict[str, str] = {}
        self._warnings: list[str] = []

    def run(self) -> Answer:
        while True:
            self._read_logs()
            self._check_alive()
            now = self._world.monotonic()
            if now >= self._waiting.deadline_s:
                raise self._timeout()
            self._report(now)
            if self._probe.is_running:
                attempt = self._probe.collect(_POLL_S)
                if attempt is not None and self._judge(attempt):
                    self._read_logs()
                    return Answer(facts=self._facts, warnings=tuple(self._warnings))
                continue
            if now >= self._next_try_s and self._may_ask(now):
                self._probe.send(max(1.0, self._waiting.deadline_s - now))
                continue
            self._world.sleep(_POLL_S)

    def _read_logs(self) -> None:
        for one in self._waiting.started:
            for line in one.log.new_lines():
                event = self._waiting.engine.read_line(line)
                if event is not None:
                    self._take(event)

    def _take(self, event: LogEvent) -> None:
        self._facts |= event.facts
        if event.kind == "listening" and not self._is_listening:
            self._is_listening = True
            self._next_try_s = self._world.monotonic()
        if event.kind == "warning":
            self._warnings.append(event.message)
        if event.kind == "out_of_memory" and not self._is_out_of_memory:
            self._is_out_of_memory = True
            self._cause = event
        elif event.kind == "fatal" and self._cause is None:
            self._cause = event
        if event.message != self._message:
            self._message = event.message
            self._listener(
                Progress(
                    stage="launch",
                    message=event.message,
                    done=event.done_bytes,
                    total=event.total_bytes or (self._waiting.model_bytes if event.done_bytes is not None else None),
                    unit="bytes" if event.done_bytes is not None else "",
                )
            )

    def _report(self, now: float) -> None:
        """How much of the checkpoint is in memory, while nothing else is known."""
        if self._is_listening or now < self._next_report_s or not self._waiting.model_bytes:
            return
        self._next_report_s = now + _REPORT_EVERY_S
        server = self._world.process(self._waiting.started[0].pid)
        if server is not None:
            resident = min(server.resident_bytes, self._waiting.model_bytes)
            self._listener(
                Progress(
                    stage="launch", message=self._message, done=resident, total=self._waiting.model_bytes, unit="bytes"
                )
            )

    def _check_alive(self) -> None:
        for one in self._waiting.started:
            if one.log.num_bytes > _LOG_LIMIT_BYTES:
                size = format_disk(one.log.num_bytes)
                raise EngineError(
                    f"{self._waiting.engine.name} wrote {size} into its log and has not answered",
                    why=f"its last line: {one.log.last_line[:300]!r} (full log: {one.log.path})",
                    fix="check that `engine.runtime` is the engine's server, and lower how much it logs",
                )
            if self._world.process(one.pid) is None:
                self._read_logs()
                raise self._death(one)

    def _may_ask(self, now: float) -> bool:
        """Whether our process holds the port; a foreign one there is an error, whatever it would answer."""
        self._next_try_s = now + _TRY_EVERY_S
        holder = self._world.listener(self._waiting.port)
        if holder is None:
            # Nobody listens, or it cannot be seen who does; in case of the latter ask now and then.
            if self._is_listening or now - self._began_s < _BLIND_TRY_EVERY_S:
                return self._is_listening
            self._next_try_s = now + _BLIND_TRY_EVERY_S
            return True
        ours = {facts.pid for one in self._waiting.started if one.facts for facts in family(self._world, one.facts)}
        if holder.pid in ours:
            return True
        raise EngineError(
            f"port {self._waiting.port} was taken by process {holder.pid} while the engine was starting",
            why=f"it runs `{' '.join(holder.argv)[:200]}`",
            fix="start again; with `endpoint.port: 0` a free port is chosen",
            facts={"pid": holder.pid, "argv": list(holder.argv)},
        )

    def _judge(self, attempt: Attempt) -> bool:
        if attempt.error is None:
            return True
        self._next_try_s = self._world.monotonic() + _TRY_EVERY_S
        if attempt.is_early:
            return False
        self._refusals += 1
        if self._refusals < _REFUSALS and isinstance(attempt.error, EngineError):
            return False
        log = self._waiting.started[0].log
        raise EngineError(
            f"{self._waiting.engine.name} listens, but completes nothing: {attempt.error.what}",
            why=f"{attempt.error.why}; last line of its log: {log.last_line!r} (full log: {log.path})",
            fix=attempt.error.fix,
            facts=attempt.error.facts,
        )

    def _timeout(self) -> EngineError:
        log = self._waiting.started[0].log
        state = "listens" if self._is_listening else "is not listening yet"
        return EngineError(
            f"{self._waiting.engine.name} did not answer within {format_duration(self._waiting.timeout_s)}",
            why=f"it runs and {state}; last line of its log: {log.last_line!r} (full log: {log.path})",
            fix="look into the log; if it only is slow, allow more time with `--timeout-s`",
            facts={"log": str(log.path), "last_line": log.last_line},
        )

    def _exit_status(self, one: Started) -> int | None:
        """Exit status of a process that is gone; its last threads may still be on their way out."""
        deadline = self._world.monotonic() + _EXIT_WAIT_S
        while (status := self._world.exit_status(one.pid)) is None and self._world.monotonic() < deadline:
            self._world.sleep(_POLL_S)
        return status

    def _death(self, one: Started) -> EngineError:
        status = self._exit_status(one)
        engine = self._waiting.engine
        words = engine.last_words(one.log.tail())
        how, meaning, fix = "", "", "read the log, correct the recipe, and start again"
        if status is not None and status < 0:
            number = signal.Signals(-status)
            how = f" by {number.name}"
            meaning = _MEANING.get(number, "")
            fix = _REMEDY.get(number, fix)
        elif status is not None:
            how = f" with exit status {status}"
        if self._is_out_of_memory:
            fix = "lower `context` or `sequences` in the recipe, or free memory"
        said = (
            "its last words: " + " / ".join(f"`{word.strip()[:300]}`" for word in words) if words else "it said nothing"
        )
        meant = self._cause.message if self._cause is not None else meaning
        after = format_duration(self._world.monotonic() - self._began_s)
        return EngineError(
            f"{engine.name} ended{how} after {after}, before it answered" + (f": {meant}" if meant else ""),
            why=f"{said} (full log: {one.log.path})",
            fix=fix,
            facts={"exit_status": status, "log": str(one.log.path), "last_words": list(words)},
        )
