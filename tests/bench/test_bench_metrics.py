"""Arithmetic of one request, spelled out: every figure here can be redone on paper."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.bench.metrics import measure_request
from freehold.client.api import StreamEvent, StreamTrace, Usage

SENT = 1000.0


def trace(*events: StreamEvent, usage: int | None, **more: object) -> StreamTrace:
    fields: dict[str, object] = {
        "sent_at_s": SENT,
        "ended_at_s": SENT + 90,
        "status": 200,
        "usage": Usage(prompt_tokens=32, completion_tokens=usage),
        "is_complete": True,
    }
    bill = StreamEvent(at_s=SENT + 89, finish_reason="length", has_usage=True)
    return StreamTrace(events=(*events, bill), **(fields | more))  # type: ignore[arg-type]


def at(offset_s: float, text: str = " w", **more: object) -> StreamEvent:
    return StreamEvent(at_s=SENT + offset_s, text=text, **more)  # type: ignore[arg-type]


def kinds(found: object) -> list[str]:
    return [flag.kind for flag in found.flags]  # type: ignore[attr-defined]


def test_one_token_a_chunk() -> None:
    # Sent at 0, tokens at 0.5, 0.6, 0.8, 1.1 s: TPOT = (1.1 - 0.5) / 3 = 0.2 s, decode 5 tok/s.
    got = measure_request(trace(at(0.5), at(0.6), at(0.8), at(1.1), usage=4), 4)
    assert got.error is None
    assert got.ttft_s == pytest.approx(0.5)
    assert got.e2e_s == pytest.approx(1.1)
    assert got.tpot_s == pytest.approx(0.2)
    assert got.decode_tok_per_s == pytest.approx(5.0)
    assert got.itl_s == pytest.approx((0.1, 0.2, 0.3))
    assert (got.output_tokens, got.prompt_tokens, got.counted_by, got.flags) == (4, 32, "usage", ())


def test_the_trailing_usage_and_finish_are_not_the_last_token() -> None:
    got = measure_request(trace(at(0.5), at(0.7), usage=2), 2)
    assert got.e2e_s == pytest.approx(0.7)


def test_tokens_of_the_first_chunk_are_not_produced_after_it() -> None:
    # 3 + 3 + 3 tokens at 0.3, 0.6, 0.9 s: after the first chunk 6 tokens in 0.6 s, 0.1 s each. Over 9 - 1 tokens it
    # would be 0.075 s, a third too fast.
    chunks = [at(0.3 * (i + 1), " a b c", token_ids=(1, 2, 3)) for i in range(3)]
    got = measure_request(trace(*chunks, usage=9), 9)
    assert got.tpot_s == pytest.approx(0.1)
    assert got.flags == ()


def test_an_unlisted_first_chunk_is_judged_by_its_text_and_says_so() -> None:
    chunks = [at(0.3 * (i + 1), " a b c") for i in range(3)]
    got = measure_request(trace(*chunks, usage=9), 9)
    assert got.tpot_s == pytest.approx(0.1)
    assert kinds(got) == ["first chunk"]
    assert "about 3 tokens" in got.flags[0].text


def test_speculation_brings_one_token_first_and_several_after() -> None:
    # 1 token at 0.2 s, then 3 tokens every 60 ms, 100 in all: 99 tokens in 33 * 0.06 = 1.98 s, 20 ms each.
    chunks = [at(0.2, " w"), *(at(0.2 + 0.06 * i, " w w w") for i in range(1, 34))]
    got = measure_request(trace(*chunks, usage=100), 100)
    assert got.tpot_s == pytest.approx(0.02)
    assert got.itl_s == pytest.approx([0.06] * 33)
    assert got.flags == ()


def test_a_single_token_has_no_tpot() -> None:
    got = measure_request(trace(at(0.5), usage=1), 1)
    assert (got.error, got.tpot_s, got.decode_tok_per_s, got.itl_s) == (None, None, None, ())
    assert got.ttft_s == got.e2e_s == pytest.approx(0.5)


def test_all_tokens_in_one_chunk_have_no_tpot() -> None:
    got = measure_request(trace(at(0.5, " a b c", token_ids=(1, 2, 3)), usage=3), 3)
    assert got.tpot_s is None


def test_chunks_of_one_moment_have_no_infinite_speed() -> None:
    got = measure_request(trace(at(0.5), at(0.5), usage=2), 2)
    assert (got.tpot_s, got.decode_tok_per_s) == (None, None)
    assert "one stamp" in {flag.kind for flag in got.flags}


def test_a_role_is_no_first_token_and_reasoning_is() -> None:
    role, think, answer = at(0.05, ""), at(0.2, "", reasoning="hm"), at(0.4)
    got = measure_request(trace(role, think, at(0.3, "", reasoning="so"), answer, usage=3), 3)
    assert got.ttft_s == pytest.approx(0.2)
    assert got.first_answer_s == pytest.approx(0.4)
    assert got.tpot_s == pytest.approx(0.1)
    assert got.itl_s == pytest.approx((0.1, 0.1))


def test_without_reasoning_there_is_no_first_answer() -> None:
    assert measure_request(trace(at(0.1), at(0.2), usage=2), 2).first_answer_s is None


def test_a_last_token_without_text_still_ends_the_answer() -> None:
    hidden = at(0.9, "", token_ids=(3,))
    got = measure_request(trace(at(0.1, token_ids=(1,)), at(0.5, token_ids=(2,)), hidden, usage=3), 3)
    assert got.e2e_s == pytest.approx(0.9)
    assert got.tpot_s == pytest.approx(0.4)


def test_an_answer_that_stops_early_counts_what_it_delivered() -> None:
    got = measure_request(trace(*(at(0.1 * i) for i in range(1, 61)), usage=60), 100)
    assert got.output_tokens == 60
    assert got.tpot_s == pytest.approx(0.1)
    assert kinds(got) == ["short answer"]
    assert got.flags[0].text == "ended after 60 of 100 tokens asked for"


def test_a_false_usage_does_not_touch_the_speed() -> None:
    got = measure_request(trace(*(at(0.1 * i) for i in range(1, 101)), usage=110), 100)
    assert got.output_tokens == 100
    assert got.usage_tokens == 110
    assert got.tpot_s == pytest.approx(0.1)
    assert kinds(got) == ["false usage"]


def test_a_stall_is_named_with_size_and_place_and_stays_in_the_figures() -> None:
    # 100 tokens, 20 ms apart, 2 s more after the 50th: (99 * 0.02 + 2) / 99 = 40.2 ms, 24.87 tok/s.
    events = [at(0.2 + 0.02 * i + (2.0 if i >= 50 else 0.0)) for i in range(100)]
    got = measure_request(trace(*events, usage=100), 100)
    assert [(round(s.gap_s, 3), s.after_tokens, s.is_exact) for s in got.stalls] == [(2.02, 50, True)]
    assert kinds(got) == ["stall"]
    assert got.flags[0].text == "stalled 2.02 s after token 50"
    assert got.decode_tok_per_s == pytest.approx(99 / 3.98)


def test_a_stall_between_chunks_of_several_tokens_is_placed_roughly() -> None:
    events = [at(0.2 + 0.06 * i + (2.0 if i >= 17 else 0.0), " w w w") for i in range(34)]
    got = measure_request(trace(*events, usage=100), 102)
    assert [stall.text for stall in got.stalls] == ["stalled 2.06 s after about token 50"]


def test_a_gap_that_the_client_may_have_made_itself_is_no_stall() -> None:
    events = [at(0.02 * i + (0.5 if i >= 50 else 0.0)) for i in range(1, 101)]
    assert [s.text for s in measure_request(trace(*events, usage=100, read_lag_s=0.1), 100).stalls] == [
        "stalled 520 ms after token 49"
    ]
    assert measure_request(trace(*events, usage=100, read_lag_s=0.3), 100).stalls == ()


def test_slow_but_even_is_no_stall() -> None:
    assert measure_request(trace(*(at(3.0 * i) for i in range(1, 9)), usage=8), 8).stalls == ()


def test_a_reused_prompt_is_flagged() -> None:
    usage = Usage(prompt_tokens=40, completion_tokens=2, cached_tokens=16)
    got = measure_request(trace(at(0.1), at(0.2), usage=2), 2)
    assert got.flags == ()
    cached = StreamTrace(
        sent_at_s=SENT,
        ended_at_s=SENT + 1,
        status=200,
        events=(at(0.1), at(0.2)),
        usage=usage,
        is_complete=True,
    )
    assert [f.text for f in measure_request(cached, 2).flags] == ["16 of 40 prompt tokens came from a cache"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"error": "stalled: not a byte for 5 s after 2 output chunks", "is_complete": False}, "stalled"),
        ({"is_complete": False}, "not complete"),
        ({"clock_step_s": -3600.0}, "the wall clock was set by -3600.000 s"),
        ({"sent_at_s": SENT + 5, "clock_step_s": 0.0}, "before the request was sent"),
    ],
)
def test_a_request_that_failed_has_no_figures(more: dict[str, object], words: str) -> None:
    got = measure_request(trace(at(0.1), at(0.2), usage=None, **more), 10)
    assert got.error is not None
    assert words in got.error
    assert (got.ttft_s, got.tpot_s, got.e2e_s, got.itl_s, got.decode_tok_per_s) == (None, None, None, (), None)
    assert got.output_tokens == (10 if "clock_step_s" in more else 2)  # complete ones reached their limit


def test_an_answer_without_text_has_no_figures() -> None:
    got = measure_request(trace(usage=1), 1)
    assert got.error == "the answer holds no text"
    assert got.output_tokens == 0


@given(
    gaps=st.lists(st.integers(min_value=1, max_value=1000), min_size=1, max_size=30),
    sizes=st.lists(st.integers(min_value=1, max_value=6), min_size=31, max_size=31),
)
def test_the_figures_hang_together(gaps: list[int], sizes: list[int]) -> None:
    times = list(itertools.accumulate(gap / 1024 for gap in (100, *gaps)))  # exact in binary
    sizes = sizes[: len(times)]
    events = [at(t, " w" * n, token_ids=tuple(range(n))) for t, n in zip(times, sizes, strict=True)]
    got = measure_request(trace(*events, usage=sum(sizes)), sum(sizes))
    assert got.ttft_s is not None
    assert got.e2e_s is not None
    assert got.tpot_s is not None
    assert sum(got.itl_s) == got.e2e_s - got.ttft_s
    assert got.tpot_s * (sum(sizes) - sizes[0]) == pytest.approx(got.e2e_s - got.ttft_s)
    assert got.decode_tok_per_s == pytest.approx(1 / got.tpot_s)
