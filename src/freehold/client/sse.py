"""Which server-sent events do these bytes hold, and when was each complete? Read :class:`EventParser`.

Bytes come in fragments cut anywhere: inside a UTF-8 character, between CR and LF, inside a field name. An event has
arrived when the fragment that completes it has arrived.

Does not do: the meaning of an event (``client/deltas.py``).

Source: WHATWG HTML Living Standard, section 9.2, "Server-sent events".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["MAX_EVENT_BYTES", "EventParser", "EventTooLarge", "RawEvent"]

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""An event larger than this is a fault of the server, not an answer."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(Exception):
    """An event passed the size limit without ending."""


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One event: arrival (nanoseconds on the fragments' clock), its ``event:`` name ("" if none), its data."""

    at_ns: int
    name: str
    data: str


class EventParser:
    """Turns stamped fragments into events.

    Args:
        max_event_bytes: Longest event that is accepted.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = b""
        self._is_start = True
        self._last_ns = 0

    def feed(self, at_ns: int, fragment: bytes) -> list[RawEvent]:
        """Take the next fragment and its arrival; return the events that it completes.

        Raises:
            EventTooLarge: The event being collected passes the limit.
        """
        self._last_ns = at_ns
        if (
            not self._rest
            and not self._parts
            and not self._data
            and not self._name
            and not self._is_start
            and fragment.startswith(b"data: ")
            and fragment.endswith(b"\n\n")
            and fragment.count(b"\n") == 2
            and b"\r" not in fragment
            and len(fragment) <= self._max_event_bytes + len(b"data: \n\n")
        ):
            # The usual case by far: exactly one whole event.
            return [RawEvent(at_ns, "", fragment[6:-2].decode("utf-8", "replace"))]
        self._parts.append(fragment)
        self._parts_bytes += len(fragment)
        if not self._is_start and b"\n" not in fragment and b"\r" not in fragment and not self._rest.endswith(b"\r"):
            # No line ends here: do not scan again what was scanned before.
            self._check_size(len(self._rest) + self._parts_bytes)
            return []
        buffer = self._rest + b"".join(self._parts)
        self._parts, self._parts_bytes = [], 0
        return self._feed_lines(at_ns, buffer)

    def flush(self) -> list[RawEvent]:
        """The event that the end of the body leaves without its blank line, if it has data.

        The standard drops it; servers exist that end after ``data: [DONE]`` without the blank line. Whether it is
        whole is for the reader of its data to decide.
        """
        rest = (self._rest + b"".join(self._parts)).rstrip(b"\r")
        self._rest, self._parts, self._parts_bytes = b"", [], 0
        if rest:
            self._line(rest)
        event = self._dispatch(self._last_ns)
        return [event] if event is not None else []

    def _feed_lines(self, at_ns: int, buffer: bytes) -> list[RawEvent]:
        if self._is_start:
            if len(buffer) < 3 and _BOM.startswith(buffer):
                self._rest = buffer
                return []
            buffer = buffer.removeprefix(_BOM)
            self._is_start = False
        events: list[RawEvent] = []
        position = 0
        for match in _LINE_END.finditer(buffer):
            # A CR at the very end may be the first half of CR LF.
            if match.group() == b"\r" and match.end() == len(buffer):
                break
            line = buffer[position : match.start()]
            position = match.end()
            if line:
                self._line(line)
                continue
            event = self._dispatch(at_ns)
            if event is not None:
                events.append(event)
        self._rest = buffer[position:]
        self._check_size(len(self._rest))
        return events

    def _check_size(self, pending_bytes: int) -> None:
        if self._data_bytes + pending_bytes > self._max_event_bytes + len(b"data: \r"):
            raise EventTooLarge(f"an event is longer than {self._max_event_bytes:,} bytes")

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_bytes += len(value)
            if self._data_bytes > self._max_event_bytes:
                raise EventTooLarge(f"an event is longer than {self._max_event_bytes:,} bytes")
        elif name == b"event":
            self._name = value
        # A line that begins with a colon is a comment; other fields (id, retry) do not concern a single answer.

    def _dispatch(self, at_ns: int) -> RawEvent | None:
        data, name = self._data, self._name
        self._data, self._data_bytes, self._name = [], 0, b""
        text = b"\n".join(data)
        if not text:
            return None
        return RawEvent(at_ns, name.decode("utf-8", "replace"), text.decode("utf-8", "replace"))
