"""Where does an HTTP answer begin, what is its body, and is it over? Read :class:`ResponseParser`, :class:`Intake`.

The head is read by h11. The body is cut here, because a stream has one chunk per token: 1 µs a chunk where h11 0.16
takes 7 (Python 3.11, one Xeon core).

Does not do: sockets (``client/connection.py``) or events inside the body (``client/sse.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["Intake", "ResponseParser", "WireError", "encode_request"]

_HEAD_LIMIT_BYTES: Final = 64 * 1024
_LINE_LIMIT_BYTES: Final = 4096
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}\Z")


class WireError(Exception):
    """The bytes are no HTTP answer; the text says where it goes wrong."""


def encode_request(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes) -> tuple[bytes, ...]:
    """A whole HTTP/1.1 request that asks the server to close afterwards, as the pieces to send.

    Args:
        method: Such as ``POST``.
        target: Path with query.
        host: The ``Host`` header: name and port, brackets around an IPv6 address.
        headers: Further headers.
        body: The body; its length is declared.

    Raises:
        ValueError: A header or the target holds what HTTP forbids, such as a line break.
    """
    import h11

    fields = [
        ("Host", host),
        ("Connection", "close"),
        ("Accept-Encoding", "identity"),
        ("Content-Length", str(len(body))),
        *headers.items(),
    ]
    connection = h11.Connection(h11.CLIENT)
    try:
        head = connection.send(h11.Request(method=method, target=target, headers=fields))
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None
    return (head or b"", body)


class ResponseParser:
    """Reads one HTTP answer from pieces cut anywhere.

    Attributes:
        status: The status code; 0 until the head is complete.
        headers: Header fields, names in lower case; a repeated field keeps its last value.
        is_done: Whether the body has ended as its framing says. A body that only ends with the connection is done
            when :meth:`close` is called.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_done = False
        self._rest = b""
        self._is_chunked = False
        self._left: int | None = 0
        self._needs_line_end = False
        self._is_trailer = False

    @property
    def has_head(self) -> bool:
        """Whether the head is complete."""
        return self.status != 0

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the end of the connection ends the body."""
        return self.has_head and not self._is_chunked and self._left is None

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes from the wire and return the body bytes among them, piece by piece.

        Raises:
            WireError: They are no HTTP answer.
        """
        if self.status == 0:
            data = self._read_head(self._rest + data)
            if self.status == 0:
                self._rest = data
                return []
            self._rest = b""
        if self.is_done or not data:
            return []
        if self._is_chunked:
            return self._read_chunks(data)
        if self._left is None:
            return [data]
        piece = data[: self._left]
        self._left -= len(piece)
        self.is_done = self._left == 0
        return [piece] if piece else []

    def close(self) -> str | None:
        """Tell that the connection ended; returns what is missing, or None when the answer is whole."""
        if self.is_done:
            return None
        if not self.has_head:
            if self._rest:
                return "the connection ended inside the head of the answer"
            return "the connection ended without an answer"
        if self._is_chunked:
            return "the connection ended before the last chunk"
        if self._left is None:
            self.is_done = True
            return None
        return f"the connection ended {self._left:,} bytes before the declared length"

    def _read_head(self, data: bytes) -> bytes:
        """Read head after head until a final one; returns the bytes after it, or all of an incomplete head."""
        import h11

        while True:
            found = re.search(rb"\r?\n\r?\n", data)
            if found is None:
                if len(data) > _HEAD_LIMIT_BYTES:
                    raise WireError(f"the head of the answer is longer than {_HEAD_LIMIT_BYTES:,} bytes")
                if len(data) >= 5 and not data.startswith(b"HTTP/"):
                    raise WireError(f"the answer is not HTTP; it begins with {data[:40]!r}")
                return data
            head, data = data[: found.end()], data[found.end() :]
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_LIMIT_BYTES)
            connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
            connection.send(h11.EndOfMessage())
            try:
                connection.receive_data(head)
                event = connection.next_event()
            except h11.RemoteProtocolError as error:
                raise WireError(f"the answer is not HTTP: {error}; it begins with {head[:40]!r}") from None
            if isinstance(event, h11.InformationalResponse):
                continue
            if not isinstance(event, h11.Response):
                raise WireError("the answer is not HTTP")
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            self._choose_framing(event.status_code)
            self.status = event.status_code
            return data

    def _choose_framing(self, status: int) -> None:
        if status in (204, 304):
            self.is_done = True
        elif "transfer-encoding" in self.headers:
            self._is_chunked = True
            self._left = 0
        elif "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
            self.is_done = self._left == 0
        else:
            self._left = None

    def _read_chunks(self, data: bytes) -> list[bytes]:
        if not self._rest and not self._left and not self._needs_line_end and not self._is_trailer:
            # The usual case by far: exactly one whole chunk.
            end = data.find(b"\r\n", 0, 18)
            if (
                end > 0
                and _CHUNK_SIZE.match(data[:end])
                and len(data) == end + 4 + (left := int(data[:end], 16))
                and left
                and data.endswith(b"\r\n")
            ):
                return [data[end + 2 : -2]]
        buffer = self._rest + data if self._rest else data
        pieces: list[bytes] = []
        position, size = 0, len(buffer)
        left = self._left or 0
        while True:
            if left:
                piece = buffer[position : position + left]
                if piece:
                    pieces.append(piece)
                    position += len(piece)
                    left -= len(piece)
                if left:
                    break
                self._needs_line_end = True
            if self._needs_line_end:
                if size - position < 2:
                    break
                if buffer[position : position + 2] != b"\r\n":
                    raise WireError(f"a chunk does not end where its size says; {buffer[position : position + 20]!r}")
                position += 2
                self._needs_line_end = False
            end = buffer.find(b"\r\n", position)
            if end < 0:
                if size - position > _LINE_LIMIT_BYTES:
                    raise WireError(f"the line with a chunk's size is longer than {_LINE_LIMIT_BYTES:,} bytes")
                break
            line = buffer[position:end]
            position = end + 2
            if self._is_trailer:
                if not line:
                    self.is_done = True
                    break
                continue
            number = line.partition(b";")[0].strip()
            if not _CHUNK_SIZE.match(number):
                raise WireError(f"a chunk's size is no number: {line[:40]!r}")
            left = int(number, 16)
            self._is_trailer = left == 0
        self._left = left
        self._rest = buffer[position:]
        return pieces


class Intake:
    """Stamped bytes as they arrive, read only when somebody wants to know.

    Attributes:
        response: The answer as far as it was read.
        stamps_ns: Arrival of each body piece that was read.
        pieces: The body pieces.
        num_bytes: Bytes that arrived, head and framing included.
        last_ns: Arrival of the last of them; None before the first.
        error: Why the bytes are no HTTP answer; None while they are one.
    """

    __slots__ = ("_raw", "_raw_ns", "error", "last_ns", "num_bytes", "pieces", "response", "stamps_ns")

    def __init__(self) -> None:
        # Two lists instead of one of pairs: nothing here is tracked by the garbage collector.
        self._raw_ns: list[int] = []
        self._raw: list[bytes] = []
        self.response = ResponseParser()
        self.stamps_ns: list[int] = []
        self.pieces: list[bytes] = []
        self.num_bytes = 0
        self.last_ns: int | None = None
        self.error: str | None = None

    def add(self, at_ns: int, data: bytes) -> None:
        """Put bytes aside."""
        self._raw_ns.append(at_ns)
        self._raw.append(data)
        self.num_bytes += len(data)
        self.last_ns = at_ns

    def look(self) -> bool:
        """Read what was put aside; returns whether the answer is over: whole, or broken."""
        # Ctrl-C may strike between the two appends of an arrival; the shorter list counts.
        count = min(len(self._raw_ns), len(self._raw))
        try:
            for at_ns, data in zip(self._raw_ns[:count], self._raw[:count], strict=True):
                for piece in self.response.feed(data):
                    self.stamps_ns.append(at_ns)
                    self.pieces.append(piece)
        except WireError as error:
            self.error = self.error or str(error)
        del self._raw_ns[:count], self._raw[:count]
        return self.response.is_done or self.error is not None
