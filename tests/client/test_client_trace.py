"""Reading one connection's bytes: every way in which an answer can be no answer."""

from __future__ import annotations

import json

import pytest

from freehold.client.api import StreamTrace
from freehold.client.trace import Received, read_trace
from freehold.client.wire import Intake

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def text(word: str, finish: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": word, "finish_reason": finish}]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def trace(*fragments: bytes, failure: str | None = None, step_s: float = 0.0) -> StreamTrace:
    intake = Intake()
    for i, fragment in enumerate(fragments, start=1):
        intake.add(i * 1_000_000_000, fragment)
    return read_trace(
        Received(
            sent_ns=0,
            ended_ns=99_000_000_000,
            intake=intake,
            is_kernel_stamped=True,
            failure=failure,
            clock_step_s=step_s,
        )
    )


def page(status: int, body: bytes, kind: str = "application/json", more: bytes = b"") -> StreamTrace:
    head = b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n" % (status, kind.encode(), len(body))
    return trace(head + more + b"\r\n" + body)


def test_a_whole_stream_has_every_arrival() -> None:
    got = trace(SSE, text(" a"), text(" b") + text(" c", "length"), DONE)
    assert [(e.at_s, e.text) for e in got.events] == [(2.0, " a"), (3.0, " b"), (3.0, " c")]
    assert (got.status, got.is_complete, got.error, got.stamp) == (200, True, None, "kernel")
    assert (got.sent_at_s, got.ended_at_s) == (0.0, 4.0)
    assert got.text == " a b c"


def test_a_finish_reason_and_a_clean_end_are_an_end() -> None:
    assert trace(SSE, text("a"), text("b", "stop")).is_complete


def test_a_stream_that_just_ends_is_cut() -> None:
    got = trace(SSE, text("a"), text("b"))
    assert not got.is_complete
    assert got.error == "the stream ended after 2 output chunks without saying that it was over"


def test_half_an_event_at_the_end_is_not_taken() -> None:
    got = trace(SSE, text("a"), b'data: {"choices": [{"te')
    assert len(got.events) == 1
    assert got.error == "the stream ended after 1 output chunk without saying that it was over"


def test_done_without_its_blank_line_is_an_end() -> None:
    assert trace(SSE, text("a"), b"data: [DONE]").is_complete


def test_a_reset_in_the_middle_is_named_with_its_place() -> None:
    got = trace(SSE, text("a"), failure="the server broke the connection off")
    assert got.error == "the server broke the connection off after 1 output chunk"


def test_a_failure_before_any_output_says_so() -> None:
    assert (
        trace(SSE, failure="stalled: not a byte for 5 s").error == "stalled: not a byte for 5 s before the first output"
    )


def test_a_failure_after_the_end_is_only_a_note() -> None:
    got = trace(SSE, text("a", "stop"), DONE, failure="the server keeps the connection open")
    assert got.is_complete
    assert got.error is None
    assert got.notes == ("after the end of the stream: the server keeps the connection open",)


def test_an_error_event_fails_the_request_and_keeps_what_came() -> None:
    got = trace(SSE, text("a"), b'data: {"error": {"message": "KV cache is full"}}\n\n', DONE)
    assert got.error == "the server reported an error in the stream: KV cache is full"
    assert not got.is_complete
    assert got.text == "a"
    assert trace(SSE, b'event: error\ndata: {"detail": "boom"}\n\n').error == (
        "the server reported an error in the stream: boom"
    )


def test_an_event_that_is_no_json_fails_the_request() -> None:
    got = trace(SSE, text("a"), b"data: oops\n\n", DONE)
    assert got.error is not None
    assert got.error.startswith("event 2 is no chunk of an answer")


def test_an_event_after_the_end_is_noted() -> None:
    assert trace(SSE, text("a", "stop"), DONE, text("b")).notes == ("an event came after the end of the stream",)


@pytest.mark.parametrize(
    ("status", "kind", "body", "words"),
    [
        (200, "text/html", b"<html><body>Login</body></html>", "200: the server answered with an HTML page"),
        (502, "text/plain", b"<!DOCTYPE html><html>", "502: the server answered with an HTML page"),
        (400, "application/json", b'{"error": {"message": "max_tokens is too large"}}', "400: max_tokens is too large"),
        (500, "text/plain", b"Internal  Server\nError", "500: Internal Server Error"),
        (503, "text/plain", b"", "503: no reason given"),
        (401, "application/json", b'{"error": "no key"}', "401: the server refuses the key; name the file"),
        (200, "application/json", b'{"error": {"message": "busy"}}', "the server reported an error: busy"),
        (
            200,
            "application/json",
            b'{"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}',
            "the server answered in one piece although a stream was asked for",
        ),
        (200, "application/octet-stream", b"\x00\x01", "instead of a stream"),
        (200, "application/json", b"", "the answer is empty"),
    ],
)
def test_an_answer_that_is_no_stream_is_explained(status: int, kind: str, body: bytes, words: str) -> None:
    got = page(status, body, kind)
    assert got.status == status
    assert got.error is not None
    assert words in got.error
    assert not got.is_complete


def test_a_redirect_names_its_target() -> None:
    got = page(307, b"", more=b"Location: https://other.example/v1\r\n")
    assert got.error == "the server redirects (307) to https://other.example/v1; use that address"


def test_a_compressed_stream_is_refused() -> None:
    got = page(200, b"\x1f\x8b\x08", "text/event-stream", more=b"Content-Encoding: gzip\r\n")
    assert got.error == "the server compressed the answer (gzip) although it was asked not to"


@pytest.mark.parametrize("kind", [b"text/plain", b"application/octet-stream"])
def test_events_under_another_type_are_still_events(kind: bytes) -> None:
    assert trace(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\n\r\n", text("a", "stop"), DONE).is_complete


def test_what_is_not_http_is_an_error() -> None:
    got = trace(b"\x16\x03\x01 hello")
    assert got.status == 0
    assert got.error is not None
    assert "not HTTP" in got.error


def test_the_usage_and_timings_are_the_last_ones() -> None:
    bill = (
        b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}, "timings": {"cache_n": 3}}\n\n'
    )
    got = trace(SSE, text("a"), text("b", "length"), bill, DONE)
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.cached_tokens) == (5, 2, 3)
    assert got.timings == {"cache_n": 3}


def test_a_clock_that_was_set_is_flagged_and_noise_is_not() -> None:
    assert trace(SSE, text("a", "stop"), DONE, step_s=-1.25).clock_step_s == -1.25
    assert trace(SSE, text("a", "stop"), DONE, step_s=4e-5).clock_step_s == 0.0
