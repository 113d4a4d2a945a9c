"""Arms made of hand-written samples: every figure can be redone on paper."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from freehold.bench.samples import Sample, SampleKey, encode_sample
from freehold.bench.summary import measure_throughput, summarise
from freehold.client.api import StreamEvent, StreamTrace, Usage
from freehold.evidence import Evidence
from freehold.records.base import to_plain
from freehold.records.bench import BenchArm

NO_CEILING = Evidence.not_measured("no plan", "tok/s")


def sample(
    index: int,
    *,
    sent_s: float,
    gaps: Sequence[float] = (0.5, 0.1, 0.1, 0.1, 0.1),
    block: int = 0,
    prompt_class: str = "code",
    concurrency: int = 1,
    is_warmup: bool = False,
    error: str | None = None,
    requested: int = 5,
    usage: int | None = 5,
    **more: object,
) -> Sample:
    times = [sent_s + sum(gaps[: i + 1]) for i in range(len(gaps))]
    trace = StreamTrace(
        sent_at_s=sent_s,
        ended_at_s=times[-1] if times else sent_s,
        status=200,
        events=tuple(StreamEvent(at_s=t, text=" w") for t in times),
        usage=Usage(prompt_tokens=40, completion_tokens=usage),
        is_complete=error is None,
        error=error,
        **({"stamp": "kernel"} | more),  # type: ignore[arg-type]
    )
    key = SampleKey(
        index=index,
        prompt_class=prompt_class,
        concurrency=concurrency,
        block=block,
        is_warmup=is_warmup,
        prompt="code-01",
        nonce="n",
        requested_tokens=requested,
    )
    return encode_sample(key, trace).sample


def arms(samples: Sequence[Sample], ceiling: Evidence = NO_CEILING, planned: int | None = None) -> tuple[BenchArm, ...]:
    plan = {} if planned is None else {("code", 1): planned}
    return summarise(samples, gaps={}, ceiling=ceiling, planned=plan, date="2026-11-30T00:00:00Z")


def test_one_arm_by_hand() -> None:
    # Two requests: TTFT 0.5 and 0.7; TPOT 0.1 and 0.2; decode 10 and 5 tok/s.
    # Wall: block 0 lasts 0.9 s, block 1 lasts 1.5 s; 10 tokens in 2.4 s.
    got = arms(
        [
            sample(0, sent_s=0.0, is_warmup=True, gaps=(9.0, 9.0)),
            sample(1, sent_s=100.0),
            sample(2, sent_s=200.0, gaps=(0.7, 0.2, 0.2, 0.2, 0.2), block=1),
        ]
    )
    assert len(got) == 1
    arm = got[0]
    assert (arm.prompt_class, arm.concurrency, arm.requests, arm.warmup, arm.failed) == ("code", 1, 2, 1, 0)
    assert arm.metrics["ttft_s"].mean.value == pytest.approx(0.6)
    assert arm.metrics["tpot_s"].mean.value == pytest.approx(0.15)
    assert arm.metrics["decode_tok_per_s"].mean.value == pytest.approx(7.5)
    assert arm.metrics["decode_tok_per_s"].worst.value == pytest.approx(5)
    assert arm.metrics["ttft_s"].worst.value == pytest.approx(0.7)
    assert arm.metrics["e2e_s"].mean.value == pytest.approx((0.9 + 1.5) / 2)
    assert arm.metrics["itl_s"].mean.value == pytest.approx(0.15)
    assert arm.metrics["itl_s"].p50.n == 8
    assert arm.output_tok_per_s.value == pytest.approx(10 / 2.4)
    assert "over 2 blocks" in arm.output_tok_per_s.source
    assert arm.prompt_tokens.value == 40
    assert arm.output_tokens.value == 5
    assert arm.flags == ()
    interval = arm.metrics["decode_tok_per_s"].mean.interval
    assert interval is not None
    # Deviations of 2.5: s = 3.5355, s / sqrt(2) = 2.5, times t(0.975, 1) = 12.7062.
    assert interval.high == pytest.approx(7.5 + 2.5 * 12.706204736, rel=1e-6)


def test_streams_that_overlap_share_their_wall_time() -> None:
    both = [sample(0, sent_s=0.0, concurrency=2), sample(1, sent_s=0.1, concurrency=2)]
    flow = measure_throughput(both)
    assert (flow.tokens, flow.wall_s, flow.num_blocks) == (10, pytest.approx(1.0), 1)


def test_classes_and_concurrencies_are_arms_of_their_own() -> None:
    got = arms(
        [
            sample(0, sent_s=0.0),
            sample(1, sent_s=1.0, prompt_class="prose"),
            sample(2, sent_s=2.0, concurrency=4),
        ]
    )
    assert [(a.prompt_class, a.concurrency) for a in got] == [("code", 1), ("prose", 1), ("code", 4)]


def test_failed_requests_are_counted_and_named_and_their_tokens_set_apart() -> None:
    cut = "the connection ended before the last chunk after {} output chunks"
    got = arms(
        [
            sample(0, sent_s=0.0),
            sample(1, sent_s=10.0, gaps=(0.5, 0.1), error=cut.format(2), usage=None, block=1),
            sample(2, sent_s=20.0, gaps=(0.5, 0.1, 0.1), error=cut.format(3), usage=None, block=2),
            sample(3, sent_s=30.0, block=3),
        ]
    )[0]
    assert (got.requests, got.failed) == (2, 2)
    assert got.metrics["ttft_s"].mean.n == 2
    # 10 tokens in 0.9 + 0.6 + 0.7 + 0.9 = 3.1 s; with the 5 of the failed ones 15.
    assert got.output_tok_per_s.value == pytest.approx(10 / 3.1)
    assert got.flags == (
        "2 of 4 requests failed, such as number 2: the connection ended before the last chunk after 2 output chunks",
        "failed requests had delivered at least 5 tokens, which no figure includes; with them the throughput is "
        "4.8 tok/s or more",
    )


def test_an_arm_without_a_good_request_has_reasons_and_no_figures() -> None:
    got = arms([sample(i, sent_s=float(i), gaps=(), error="nothing listens", usage=None) for i in range(3)])[0]
    assert (got.requests, got.failed) == (0, 3)
    assert got.output_tok_per_s.reason == "all 3 requests failed"
    for spread in got.metrics.values():
        assert spread.mean.reason == "all 3 requests failed"
    assert got.flags == ("all 3 requests failed, such as number 1: nothing listens",)
    assert got.ceiling_share.value is None


def test_requests_ended_by_an_interruption_are_in_no_figure() -> None:
    got = arms([sample(0, sent_s=0.0), sample(1, sent_s=1.0, error="interrupted after 3 output chunks")], planned=15)[0]
    assert (got.requests, got.failed) == (1, 0)
    assert got.flags == ("cut short: 1 of 15 requests were measured",)


def test_an_arm_that_never_began_is_not_measured() -> None:
    got = summarise([sample(0, sent_s=0.0)], gaps={}, ceiling=NO_CEILING, planned={("code", 1): 1, ("prose", 1): 1})
    assert [(a.prompt_class, a.requests) for a in got] == [("code", 1), ("prose", 0)]
    assert got[1].metrics["ttft_s"].mean.reason == "the benchmark ended before this arm began"
    assert got[1].counters.server_tokens.reason == "it was not asked"


def test_the_share_of_the_ceiling_has_its_inputs() -> None:
    ceiling = Evidence.assumed(20.0, "tok/s", source="test")
    got = arms([sample(0, sent_s=0.0), sample(1, sent_s=1.0)], ceiling)[0]
    assert got.ceiling_share.value == pytest.approx(0.5)
    assert set(got.ceiling_share.inputs) == {"decode_speed", "ceiling"}
    assert got.ceiling_share.trust == "assumed"
    assert got.flags == ()


def test_a_speed_above_its_ceiling_is_a_defect_signal() -> None:
    got = arms([sample(0, sent_s=0.0)], Evidence.assumed(8.0, "tok/s", source="test"))[0]
    assert got.ceiling_share.value == pytest.approx(1.25)
    assert got.flags[0].startswith("faster than its ceiling (10.0 tok/s measured, 8.0 tok/s at most)")


def test_flags_of_many_requests_become_one_sentence() -> None:
    got = arms([sample(i, sent_s=float(i), requested=9) for i in range(4)])[0]
    assert got.flags == ("all 4 requests, such as number 1: ended after 5 of 9 tokens asked for",)


def test_the_longest_stall_is_the_example() -> None:
    short = [0.1] * 8 + [1.2]
    long = [0.1] * 4 + [2.0] + [0.1] * 4
    got = arms(
        [
            sample(0, sent_s=0.0, gaps=short, requested=9, usage=9),
            sample(1, sent_s=10.0, gaps=long, requested=9, usage=9),
            sample(2, sent_s=20.0, gaps=[0.1] * 9, requested=9, usage=9),
        ]
    )[0]
    assert got.flags == ("2 of 3 requests, such as number 2: stalled 2.00 s after token 4",)


def test_a_client_without_kernel_stamps_or_too_slow_says_so() -> None:
    got = arms([sample(0, sent_s=0.0, stamp="user", read_lag_s=0.2)])[0]
    assert got.flags[0].startswith("arrivals were stamped after they were read")
    assert got.flags[1].startswith("the client could not keep up: an arrival waited 200 ms")


def test_single_chunk_answers_have_no_speed_and_a_reason() -> None:
    got = arms([sample(0, sent_s=0.0, gaps=(0.5,), requested=1, usage=1)])[0]
    assert got.metrics["ttft_s"].mean.value == pytest.approx(0.5)
    assert got.metrics["tpot_s"].mean.reason == "every answer came in one chunk"


def test_an_arm_is_a_record() -> None:
    assert to_plain(arms([sample(0, sent_s=0.0)])[0])["metrics"]["ttft_s"]["mean"]["value"] == pytest.approx(0.5)
