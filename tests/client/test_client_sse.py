from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.client.sse import EventParser, EventTooLarge, RawEvent

Cut = list[int]


def cut(data: bytes, points: Cut) -> list[bytes]:
    edges = sorted({0, len(data), *(p % (len(data) + 1) for p in points)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def parse(fragments: list[bytes]) -> list[RawEvent]:
    parser = EventParser()
    events = [e for i, fragment in enumerate(fragments) for e in parser.feed(i, fragment)]
    return events + parser.flush()


def feed_all(parser: EventParser, fragments: list[bytes]) -> list[RawEvent]:
    return [event for fragment in fragments for event in parser.feed(0, fragment)]


lines = st.text(
    alphabet=st.characters(exclude_characters="\r\n\x00", exclude_categories=("Cs",)), min_size=1, max_size=30
)
bodies = st.lists(lines, min_size=1, max_size=3)


@given(
    events=st.lists(st.tuples(bodies, st.sampled_from(["", "error", "message"])), min_size=1, max_size=8),
    ends=st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=1, max_size=5),
    points=st.lists(st.integers(min_value=0), max_size=12),
    comments=st.booleans(),
    has_bom=st.booleans(),
)
def test_any_cut_gives_the_same_events_at_the_fragment_that_completes_them(
    events: list[tuple[list[str], str]], ends: list[bytes], points: Cut, comments: bool, has_bom: bool
) -> None:
    newline = itertools.cycle(ends)
    wire = b"\xef\xbb\xbf" if has_bom else b""
    finished_at: list[int] = []
    for body, name in events:
        if comments:
            wire += b": keep-alive" + next(newline) + b"id: 7" + next(newline)
        if name:
            wire += b"event: " + name.encode() + next(newline)
        for line in body:
            wire += b"data: " + line.encode() + next(newline)
        wire += next(newline)
        finished_at.append(len(wire) - 1)
    fragments = cut(wire, points)
    got = parse(fragments)
    assert [(e.data, e.name) for e in got] == [("\n".join(body), name) for body, name in events]
    ends_of = list(itertools.accumulate(len(f) for f in fragments))
    expected = [next(i for i, end in enumerate(ends_of) if position < end) for position in finished_at]
    assert [e.at_ns for e in got] == expected


@given(points=st.lists(st.integers(min_value=0), max_size=10))
def test_lone_carriage_returns_end_lines_too(points: Cut) -> None:
    wire = b"data: a\r\rdata: b\rdata: c\r\r"
    assert [e.data for e in parse(cut(wire, points))] == ["a", "b\nc"]


def test_a_character_cut_in_two_is_whole_again() -> None:
    wire = 'data: {"text": "größe 🚀"}\n\n'.encode()
    for i in range(1, len(wire)):
        assert [e.data for e in parse([wire[:i], wire[i:]])] == ['{"text": "größe 🚀"}']


def test_bytes_that_are_no_utf8_do_not_stop_the_stream() -> None:
    assert [e.data for e in parse([b"data: \xff\xfe\n\n", b"data: x\n\n"])] == ["\ufffd\ufffd", "x"]


def test_the_end_without_its_blank_line_is_handed_out_on_flush() -> None:
    parser = EventParser()
    assert parser.feed(1, b"data: x\n\n") == [RawEvent(1, "", "x")]
    assert parser.feed(2, b"data: [DONE]\n") == []
    assert parser.flush() == [RawEvent(2, "", "[DONE]")]
    assert parser.flush() == []


def test_events_without_data_are_none() -> None:
    assert parse([b"event: ping\n\n", b":\n\n", b"data:\n\n", b"\n\n\n"]) == []


def test_two_events_in_one_fragment_and_none_in_the_next() -> None:
    got = parse([b"data: 1\n\ndata: 2\n\nda", b"ta: 3", b"\n", b"\n"])
    assert got == [RawEvent(0, "", "1"), RawEvent(0, "", "2"), RawEvent(3, "", "3")]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_an_endless_event_is_given_up_on(size: int) -> None:
    parser = EventParser(max_event_bytes=1000)
    parser.feed(0, b"data: ")
    with pytest.raises(EventTooLarge, match="longer than 1,000 bytes"):
        feed_all(parser, [b"x" * size] * (2000 // size + 1))


@pytest.mark.parametrize("data_bytes", [999, 1000, 1001])
def test_the_limit_is_on_the_data_however_it_is_cut(data_bytes: int) -> None:
    wire = b"data: " + b"x" * data_bytes + b"\n\n"
    for fragments in ([b":\n", wire], [wire[:500], wire[500:]], [wire]):
        parser = EventParser(max_event_bytes=1000)
        if data_bytes > 1000:
            with pytest.raises(EventTooLarge):
                feed_all(parser, fragments)
        else:
            assert feed_all(parser, fragments) == [RawEvent(0, "", "x" * data_bytes)]
