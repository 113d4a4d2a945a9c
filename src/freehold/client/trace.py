"""What came back on one connection, as a :class:`StreamTrace`? Read :func:`read_trace`.

Everything that can be slow is done here, after the bytes were stamped: HTTP framing, events, JSON.

Does not do: receiving (``client/stream.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from freehold.client.api import StreamEvent, StreamTrace, Usage
from freehold.client.deltas import error_message, read_delta, read_usage
from freehold.client.sse import EventParser, EventTooLarge, RawEvent
from freehold.client.wire import Intake, ResponseParser

__all__ = ["Received", "read_trace"]

_NS: Final = 1e-9
_BODY_LIMIT_BYTES: Final = 1024 * 1024
_CLOCK_STEP_S: Final = 0.001
"""Two clocks read a few times agree to some microseconds; more than this is a step, not noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The raw take of one connection.

    Args:
        sent_ns: Just before the request went out; None when it never did.
        ended_ns: Arrival of the last byte, or the moment of giving up.
        intake: The bytes, decrypted, with their stamps.
        is_kernel_stamped: Whether every stamp is the kernel's.
        failure: Why receiving ended early: refused, reset, silent, cancelled; None when the server ended it.
        connect_s: Connection set-up.
        clock_step_s: Step of the wall clock meanwhile.
        read_lag_s: Longest wait of a fragment in the kernel.
    """

    sent_ns: int | None
    ended_ns: int
    intake: Intake
    is_kernel_stamped: bool
    failure: str | None = None
    connect_s: float | None = None
    clock_step_s: float = 0.0
    read_lag_s: float = 0.0


class _Reader:
    """Collects events, usage and complaints while the fragments are walked through."""

    def __init__(self, sent_ns: int) -> None:
        # Arrivals are offsets from the sending, so that one stored as an offset comes back as the same number.
        self._sent_ns = sent_ns
        self._sent_at_s = sent_ns * _NS
        self.events: list[StreamEvent] = []
        self.usage = Usage()
        self.timings: Mapping[str, float] = {}
        self.error: str | None = None
        self.notes: list[str] = []
        self.is_done = False
        self.body = b""

    def take(self, raw: RawEvent) -> None:
        data = raw.data
        if data.startswith("[DONE]"):
            self.is_done = True
            return
        try:
            delta = read_delta(data, self._sent_at_s + (raw.at_ns - self._sent_ns) * _NS)
        except ValueError as error:
            self.fail(f"event {len(self.events) + 1} is no chunk of an answer ({error}): {_quote(data)}")
            return
        if delta.error is not None or raw.name == "error":
            words = delta.error or error_message(_json(data.encode())) or _quote(data)
            self.fail(f"the server reported an error in the stream: {words}")
            return
        if self.is_done:
            self.notes.append("an event came after the end of the stream")
        self.events.append(delta.event)
        if delta.usage is not None:
            self.usage = delta.usage
        if delta.timings:
            self.timings = delta.timings

    def fail(self, error: str) -> None:
        """Keep the first complaint; later ones usually follow from it."""
        if self.error is None:
            self.error = error


def read_trace(received: Received) -> StreamTrace:
    """Read one connection's bytes as a streamed answer; what is wrong with it goes into ``error``, never raised."""
    sent_ns = received.sent_ns if received.sent_ns is not None else received.ended_ns
    reader = _Reader(sent_ns)
    parser = EventParser()
    is_stream = False
    intake = received.intake
    intake.look()
    response = intake.response
    missing = response.close() if intake.error is None else None
    try:
        for at_ns, piece in zip(intake.stamps_ns, intake.pieces, strict=True):
            if not is_stream and not reader.body:
                is_stream = response.status == 200 and _is_event_stream(response.headers, piece)
            if is_stream:
                for event in parser.feed(at_ns, piece):
                    reader.take(event)
            elif len(reader.body) < _BODY_LIMIT_BYTES:
                reader.body += piece
        if is_stream:
            for event in parser.flush():
                is_whole = missing is None and received.failure is None and _json(event.data.encode()) is not None
                if is_whole or event.data.startswith("[DONE]"):
                    reader.take(event)
    except EventTooLarge as error:
        reader.fail(str(error))
    if intake.error is not None:
        reader.fail(intake.error)

    last_ns = intake.last_ns if intake.last_ns is not None else received.ended_ns
    has_finish = any(event.finish_reason for event in reader.events)
    ended_well = is_stream and (reader.is_done or (has_finish and missing is None and received.failure is None))
    _judge(reader, response, received, missing, is_stream=is_stream, ended_well=ended_well)
    return StreamTrace(
        sent_at_s=sent_ns * _NS,
        ended_at_s=last_ns * _NS,
        status=response.status,
        events=tuple(reader.events),
        usage=_with_cache(reader.usage, reader.timings),
        timings=reader.timings,
        is_complete=ended_well and reader.error is None,
        error=reader.error,
        stamp="kernel" if received.is_kernel_stamped and intake.num_bytes else "user",
        clock_step_s=received.clock_step_s if abs(received.clock_step_s) >= _CLOCK_STEP_S else 0.0,
        read_lag_s=received.read_lag_s,
        connect_s=received.connect_s,
        notes=tuple(dict.fromkeys(reader.notes)),
    )


def _judge(
    reader: _Reader,
    response: ResponseParser,
    received: Received,
    missing: str | None,
    *,
    is_stream: bool,
    ended_well: bool,
) -> None:
    """Find the sentence that says what went wrong, the most telling one first."""
    if response.has_head and not is_stream and (reader.body or response.status != 200):
        reader.fail(_explain_answer(response, reader.body))
    elif not ended_well:
        outputs = sum(event.has_output for event in reader.events)
        if outputs:
            after = f" after {outputs:,} output chunk{'s' if outputs > 1 else ''}"
        else:
            after = " before the first output" if is_stream or received.sent_ns is not None else ""
        reason = received.failure or missing
        if reason is not None:
            reader.fail(f"{reason}{after}")
        elif is_stream:
            reader.fail(f"the stream ended{after} without saying that it was over")
        else:
            reader.fail("the answer is empty")
    elif received.failure is not None:
        reader.notes.append(f"after the end of the stream: {received.failure}")


def _explain_answer(response: ResponseParser, body: bytes) -> str:
    status = response.status
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    words = None if _is_html(kind, body) else error_message(_json(body))
    if 300 <= status < 400:
        target = response.headers.get("location", "another address")
        return f"the server redirects ({status}) to {_quote(target)}; use that address"
    if status in (401, 403):
        hint = "the server refuses the key; name the file that holds it with `--api-key-file`"
        return f"{status}: {hint}" + (f" ({words})" if words else "")
    if _is_html(kind, body):
        return f"{status}: the server answered with an HTML page; this is no OpenAI-compatible API, or not its path"
    if status != 200:
        return f"{status}: {words or _quote(body.decode('utf-8', 'replace')) or 'no reason given'}"
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        return f"the server compressed the answer ({encoding}) although it was asked not to"
    if words:
        return f"the server reported an error: {words}"
    if read_usage((_json(body) or {}).get("usage")) is not None:
        return "the server answered in one piece although a stream was asked for"
    beginning = _quote(body[:400].decode("utf-8", "replace"))
    return f"the server answered with {kind or 'an unknown type'} instead of a stream: {beginning}"


def _is_event_stream(headers: Mapping[str, str], first_piece: bytes) -> bool:
    if headers.get("content-encoding", "identity") != "identity":
        return False
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return True
    # Some servers send events as text/plain or without a type.
    return (
        kind in ("", "text/plain", "application/octet-stream")
        and re.match(rb"(data|event|id|retry)?:", first_piece) is not None
    )


def _is_html(kind: str, body: bytes) -> bool:
    return kind == "text/html" or body[:256].lstrip()[:9].lower().startswith((b"<!doctype", b"<html"))


def _json(body: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _quote(text: str, limit: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _with_cache(usage: Usage, timings: Mapping[str, float]) -> Usage:
    """Fill the cached count from llama.cpp's ``cache_n`` where the usage does not state it."""
    if usage.cached_tokens is not None or "cache_n" not in timings:
        return usage
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=max(0, int(timings["cache_n"])),
    )
