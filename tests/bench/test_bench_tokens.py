from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.bench.tokens import count_tokens
from freehold.client.api import StreamEvent, StreamTrace, Usage


def trace(
    *events: StreamEvent, usage: int | None = None, finish: str = "length", is_complete: bool = True, **more: object
) -> StreamTrace:
    ended = StreamEvent(at_s=99.0, finish_reason=finish if is_complete else None)
    return StreamTrace(
        sent_at_s=0.0,
        ended_at_s=99.0,
        status=200,
        events=(*events, ended),
        usage=Usage(completion_tokens=usage),
        is_complete=is_complete,
        **more,  # type: ignore[arg-type]
    )


def words(count: int, tokens_each: int = 0, *, ids: bool = False, logprobs: bool = False) -> list[StreamEvent]:
    return [
        StreamEvent(
            at_s=float(i),
            text=" w" * max(1, tokens_each),
            token_ids=tuple(range(tokens_each)) if ids else (),
            num_logprobs=tokens_each if logprobs else 0,
        )
        for i in range(count)
    ]


def kinds(found: object) -> list[str]:
    return [flag.kind for flag in found.flags]  # type: ignore[attr-defined]


def test_an_honest_usage_of_one_token_a_chunk() -> None:
    got = count_tokens(trace(*words(10), usage=10), 10)
    assert (got.tokens, got.ledger, got.flags) == (10, "usage", ())
    assert got.by_event == (*[1] * 10, 0)
    assert (got.first_chunk_tokens, got.is_first_chunk_known) == (1, True)


def test_an_honest_usage_of_several_tokens_a_chunk() -> None:
    got = count_tokens(trace(*words(10, 3), usage=30), 30)
    assert (got.tokens, got.ledger, got.flags) == (30, "usage", ())
    assert got.by_event is None
    assert (got.first_chunk_tokens, got.is_first_chunk_known) == (3, False)


@pytest.mark.parametrize("name", ["ids", "logprobs"])
def test_what_the_stream_lists_is_believed_first(name: str) -> None:
    got = count_tokens(trace(*words(10, 3, **{name: True}), usage=33), 30)
    assert got.tokens == 30
    assert got.by_event == (*[3] * 10, 0)
    assert (got.first_chunk_tokens, got.is_first_chunk_known) == (3, True)
    assert kinds(got) == ["false usage"]
    assert "states 33 tokens (+10 %), but the stream lists 30" in got.flags[0].text


def test_a_usage_above_the_limit_is_false() -> None:
    got = count_tokens(trace(*words(100), usage=110), 100)
    assert (got.tokens, got.ledger, kinds(got)) == (100, "requested length", ["false usage"])
    assert "`usage` states 110 tokens (+10 %), but 100 was the limit" in got.flags[0].text


def test_a_usage_above_the_limit_of_an_answer_that_stopped_by_itself_leaves_a_lower_bound() -> None:
    got = count_tokens(trace(*words(60), usage=110, finish="stop"), 100)
    assert (got.tokens, got.ledger, kinds(got)) == (60, "chunks", ["false usage", "lower bound"])


def test_a_usage_below_the_chunks_is_false() -> None:
    got = count_tokens(trace(*words(100), usage=90), 100)
    assert (got.tokens, got.ledger, kinds(got)) == (100, "requested length", ["false usage"])
    got = count_tokens(trace(*words(100), usage=90), None)
    assert (got.tokens, got.ledger, kinds(got)) == (100, "chunks", ["false usage", "lower bound"])


def test_a_usage_that_is_possible_is_believed() -> None:
    # 34 chunks of a speculative stream: nothing contradicts 100.
    got = count_tokens(trace(*words(34), usage=100), 100)
    assert (got.tokens, got.ledger, got.flags) == (100, "usage", ())


def test_without_usage_the_reached_limit_counts() -> None:
    got = count_tokens(trace(*words(34)), 100)
    assert (got.tokens, got.ledger, kinds(got)) == (100, "requested length", ["no usage"])


def test_without_usage_and_limit_chunks_are_a_lower_bound() -> None:
    got = count_tokens(trace(*words(34), finish="stop"), 100)
    assert (got.tokens, got.ledger, kinds(got)) == (34, "chunks", ["no usage", "lower bound"])


def test_a_running_count_gives_the_tokens_of_each_chunk() -> None:
    events = [StreamEvent(at_s=float(i), text="x", stated_tokens=n) for i, n in enumerate((1, 4, 7))]
    got = count_tokens(trace(*events, usage=7), 10)
    assert (got.tokens, got.ledger, got.by_event, got.first_chunk_tokens) == (7, "usage", (1, 3, 3, 0), 1)
    got = count_tokens(trace(*events), 10)
    assert (got.tokens, got.ledger, kinds(got)) == (7, "running count", ["no usage"])


def test_a_running_count_that_falls_is_ignored() -> None:
    events = [StreamEvent(at_s=float(i), text="x", stated_tokens=n) for i, n in enumerate((5, 4, 7))]
    assert count_tokens(trace(*events, usage=7), 10).by_event is None


def test_two_counts_of_one_server_that_differ_are_named() -> None:
    got = count_tokens(trace(*words(10), usage=10, timings={"predicted_n": 12.0}), 10)
    assert kinds(got) == ["two counts"]
    assert "10 tokens in `usage`, 12 in `timings`" in got.flags[0].text


def test_chunks_finer_than_tokens_do_not_disprove_the_usage() -> None:
    got = count_tokens(trace(*words(300), usage=100), 100)
    assert (got.tokens, got.ledger, kinds(got)) == (100, "usage", ["fine chunks"])


def test_a_server_that_ignores_the_limit_is_named() -> None:
    got = count_tokens(trace(*words(120), usage=120), 100)
    assert (got.tokens, got.ledger, kinds(got)) == (120, "usage", ["long answer"])


def test_a_role_chunk_is_no_token() -> None:
    got = count_tokens(trace(StreamEvent(at_s=0.0), *words(5), usage=5), 5)
    assert got.tokens == 5
    assert got.by_event == (0, 1, 1, 1, 1, 1, 0)


def test_ids_of_a_token_without_text_count_with_the_chunk_that_shows_them() -> None:
    hidden = StreamEvent(at_s=0.0, token_ids=(1,))
    shown = StreamEvent(at_s=1.0, text="é", token_ids=(2,))
    got = count_tokens(trace(hidden, shown, StreamEvent(at_s=2.0, text="x", token_ids=(3,)), usage=3), 3)
    assert (got.tokens, got.first_chunk_tokens, got.by_event) == (3, 2, (1, 1, 1, 0))


def test_of_a_cut_stream_what_arrived_is_counted() -> None:
    got = count_tokens(trace(*words(50), is_complete=False), 100)
    assert (got.tokens, got.ledger, got.flags) == (50, "chunks", ())


def test_an_empty_answer_has_no_tokens() -> None:
    got = count_tokens(trace(finish="stop"), 10)
    assert (got.tokens, got.first_chunk_tokens) == (0, 0)


@given(
    sizes=st.lists(st.integers(min_value=1, max_value=5), min_size=1, max_size=40),
    lie=st.integers(min_value=-50, max_value=50),
    lists_ids=st.booleans(),
)
def test_no_false_usage_is_believed_that_the_stream_can_disprove(sizes: list[int], lie: int, lists_ids: bool) -> None:
    true = sum(sizes)
    events = [
        StreamEvent(at_s=float(i), text="x" * n, token_ids=tuple(range(n)) if lists_ids else ())
        for i, n in enumerate(sizes)
    ]
    stated = max(0, true + lie)
    got = count_tokens(trace(*events, usage=stated), true)
    if lists_ids or stated > true or stated < len(sizes):
        assert got.tokens == true
        assert ("false usage" in kinds(got)) == (stated != true)
    else:
        assert got.tokens == stated
    assert len(sizes) <= got.tokens
    assert 1 <= got.first_chunk_tokens <= got.tokens
