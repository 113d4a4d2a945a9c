from __future__ import annotations

import pytest

from freehold.bench.ledger import Window, explain_gap
from freehold.records.bench import CounterGap


def window(before: dict[str, float] | None, after: dict[str, float] | None) -> Window:
    return Window(before=before, after=after)


def gap(
    output: float, *, client: int = 1000, usage: int | None = None, requests: int = 10, **more: object
) -> CounterGap:
    fields: dict[str, object] = {"before": {"output_tokens": 500.0}, "after": {"output_tokens": 500.0 + output}}
    fields |= {k: more.pop(k) for k in ("before", "after") if k in more}
    return explain_gap(
        windows=[Window(**fields)],  # type: ignore[arg-type]
        client_tokens=client,
        usage_tokens=client if usage is None else usage,
        requests=requests,
        **more,  # type: ignore[arg-type]
    )


def test_three_ledgers_that_agree() -> None:
    got = gap(1000)
    assert (got.client_tokens.value, got.usage_tokens.value, got.server_tokens.value) == (1000, 1000, 1000)
    assert got.explanation == "The usage field agrees with the stream. The engine's own counter agrees."


def test_windows_of_several_blocks_add_up() -> None:
    got = explain_gap(
        windows=[
            window({"output_tokens": 0.0}, {"output_tokens": 400.0}),
            window({"output_tokens": 700.0}, {"output_tokens": 1300.0}),
        ],
        client_tokens=1000,
        usage_tokens=1000,
        requests=10,
    )
    assert got.server_tokens.value == 1000


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            gap(
                1300, before={"output_tokens": 0.0, "requests": 5.0}, after={"output_tokens": 1300.0, "requests": 18.0}
            ),
            "1,300 tokens, 300 (30.0 %) more than the client: it also finished 3 requests of other clients.",
        ),
        (gap(1150, failed_tokens=150), "just what failed requests had delivered before they failed."),
        (
            gap(1200, failed_tokens=150),
            "failed requests delivered at least 150 of them; the engine ran on for the rest.",
        ),
        (gap(1100, usage=1100), "just what the usage field states, so the engine counts as its API does."),
        (gap(1200, warmup_tokens=200), "just the warm-up, which it booked late."),
        (
            gap(
                1040,
                before={"output_tokens": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0},
                after={"output_tokens": 1040.0, "draft_tokens": 100.0, "accepted_tokens": 60.0},
            ),
            "just the drafted tokens that were rejected.",
        ),
        (gap(990), "one per request, the first token, which comes from the prefill."),
        (gap(1010), "one per request, the end token, which is not delivered."),
        (gap(1234), "not explained; other clients, if there were any, would be in it."),
        (gap(900), "100 (10.0 %) fewer than the client: not explained; it counts fewer than arrived."),
    ],
    ids=["others", "failed", "ran on", "usage", "warm-up", "drafts", "first", "end", "more", "fewer"],
)
def test_a_gap_of_the_engine_is_explained(found: CounterGap, words: str) -> None:
    assert found.explanation.endswith(words)


def test_a_usage_that_lies_is_named() -> None:
    got = gap(1000, usage=1100)
    assert "The usage field states 1,100 tokens, 100 (10.0 %) more than what the streams delivered." in got.explanation
    assert got.explanation.endswith("The engine's own counter agrees.")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, {"output_tokens": 1.0}, "has none, or did not answer"),
        ({"output_tokens": 1.0}, None, "has none, or did not answer"),
        ({"output_tokens": 900.0}, {"output_tokens": 20.0}, "the engine was restarted or reset"),
        ({"requests": 1.0}, {"requests": 9.0}, "does not count output tokens"),
    ],
)
def test_counters_that_say_nothing_are_not_measured(
    before: dict[str, float] | None, after: dict[str, float] | None, words: str
) -> None:
    got = gap(0, before=before, after=after)
    assert got.server_tokens.value is None
    assert got.server_tokens.reason is not None
    assert words in got.server_tokens.reason
    assert words in got.explanation


def test_counters_that_were_never_asked_are_not_measured() -> None:
    got = explain_gap(windows=[], client_tokens=5, usage_tokens=5, requests=1)
    assert got.server_tokens.reason == "it was not asked"


def test_answers_without_usage_are_counted() -> None:
    got = gap(1000, usage=0, requests_without_usage=10)
    assert got.usage_tokens.value is None
    assert "10 requests came without usage." in got.explanation
    got = gap(1000, usage=900, requests_without_usage=1)
    assert got.usage_tokens.value == 900
    assert "1 request came without usage." in got.explanation


def test_nothing_delivered_divides_by_nothing() -> None:
    assert gap(7, client=0, usage=0, requests=0).explanation.startswith("The usage field agrees")
