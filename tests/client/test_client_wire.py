from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.client.wire import Intake, ResponseParser, WireError, encode_request

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"


def feed_all(wire: bytes, points: list[int]) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    edges = sorted({0, len(wire), *(p % (len(wire) + 1) for p in points)})
    body = b"".join(piece for a, b in itertools.pairwise(edges) for piece in parser.feed(wire[a:b]))
    return parser, body


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    points=st.lists(st.integers(min_value=0), max_size=15),
    has_extension=st.booleans(),
    trailer=st.sampled_from([b"", b"X-Sum: 1\r\n"]),
    is_upper=st.booleans(),
)
def test_a_chunked_body_survives_any_cut(
    chunks: list[bytes], points: list[int], has_extension: bool, trailer: bytes, is_upper: bool
) -> None:
    wire = CHUNKED
    for chunk in chunks:
        size = b"%X" % len(chunk) if is_upper else b"%x" % len(chunk)
        wire += size + (b";a=b" if has_extension else b"") + b"\r\n" + chunk + b"\r\n"
    parser, body = feed_all(wire, points)
    assert not parser.is_done
    assert parser.close() == "the connection ended before the last chunk"
    parser, body = feed_all(wire + b"0\r\n" + trailer + b"\r\n", points)
    assert body == b"".join(chunks)
    assert parser.is_done
    assert parser.close() is None


@given(body=st.binary(max_size=50), points=st.lists(st.integers(min_value=0), max_size=8))
def test_a_body_of_known_length_ends_there(body: bytes, points: list[int]) -> None:
    wire = b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    parser, got = feed_all(wire + b"more", points)
    assert (parser.status, got, parser.is_done) == (400, body, True)


@given(body=st.binary(max_size=50), points=st.lists(st.integers(min_value=0), max_size=8))
def test_a_body_without_framing_ends_with_the_connection(body: bytes, points: list[int]) -> None:
    parser, got = feed_all(b"HTTP/1.0 200 OK\nContent-Type: text/event-stream\n\n" + body, points)
    assert got == body
    assert parser.ends_with_connection
    assert not parser.is_done
    assert parser.close() is None
    assert parser.is_done


def test_a_short_body_is_named() -> None:
    parser, _ = feed_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", [])
    assert parser.close() == "the connection ended 7 bytes before the declared length"


def test_interim_answers_are_skipped() -> None:
    wire = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + CHUNKED + b"1\r\nz\r\n0\r\n\r\n"
    )
    parser, body = feed_all(wire, [30, 60])
    assert (parser.status, body, parser.is_done) == (200, b"z", True)


def test_headers_are_found_in_lower_case() -> None:
    parser, _ = feed_all(CHUNKED, [])
    assert parser.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP; it begins with b'SSH-2.0"),
        (b"HTTP/1.1 abc\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n", "not HTTP"),
        (CHUNKED + b"zz\r\n", "size is no number"),
        (CHUNKED + b"+5\r\nhello\r\n", "size is no number"),
        (CHUNKED + b"0x5\r\nhello\r\n", "size is no number"),
        (CHUNKED + b"ffffffffffffffff\r\n", "size is no number"),
        (CHUNKED + b"3\r\nabcde\r\n", "does not end where its size says"),
        (CHUNKED + b"1" * 5000, "longer than 4,096 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000, "head of the answer is longer"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "not HTTP"),
    ],
)
def test_what_is_not_http_is_named(wire: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        ResponseParser().feed(wire)


def test_nothing_and_half_a_head_are_told_apart() -> None:
    assert ResponseParser().close() == "the connection ended without an answer"
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nConte")
    assert parser.close() == "the connection ended inside the head of the answer"


def test_a_request_declares_its_length_and_asks_to_close() -> None:
    head, body = encode_request("POST", "/v1/completions", "h:80", {"X": "y"}, b"{}")
    assert head == (
        b"POST /v1/completions HTTP/1.1\r\nHost: h:80\r\nConnection: close\r\nAccept-Encoding: identity\r\n"
        b"Content-Length: 2\r\nX: y\r\n\r\n"
    )
    assert body == b"{}"


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nb", "ключ"])
def test_a_request_cannot_be_split_by_a_header(value: str) -> None:
    with pytest.raises(ValueError):
        encode_request("POST", "/", "h", {"Authorization": value}, b"")


def test_an_intake_stamps_each_piece_with_the_read_that_brought_it() -> None:
    intake = Intake()
    intake.add(10, CHUNKED + b"2\r\nab\r\n1\r\nc")
    intake.add(20, b"\r\n3\r\ndef\r\n")
    assert not intake.look()
    intake.add(30, b"0\r\n\r\n")
    assert intake.look()
    assert intake.look()
    assert list(zip(intake.stamps_ns, intake.pieces, strict=True)) == [(10, b"ab"), (10, b"c"), (20, b"def")]
    assert intake.last_ns == 30


def test_an_intake_keeps_the_first_fault() -> None:
    intake = Intake()
    intake.add(1, CHUNKED + b"1\r\na\r\nzz\r\n")
    assert intake.look()
    assert intake.error is not None
    assert "size is no number" in intake.error
