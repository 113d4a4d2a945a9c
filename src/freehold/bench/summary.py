"""What do the samples say, arm by arm? Read :func:`summarise`.

Pure: the same samples give the same arms, whether they were measured a moment ago or are read from a run folder.

Does not do: measuring (``bench/run.py``), statistics (``bench/statistics.py``).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from freehold.bench.ledger import explain_gap
from freehold.bench.samples import Sample
from freehold.bench.statistics import describe, mean_of
from freehold.evidence import Evidence, calculate
from freehold.records.bench import BenchArm, CounterGap, Distribution
from freehold.units import format_duration, format_tok_per_s

__all__ = ["ArmKey", "Throughput", "measure_throughput", "summarise"]

ArmKey = tuple[str, int]
"""Prompt class and concurrency."""

_LAG_SHARE: Final = 0.5
"""A client that reads an arrival later than this share of the median gap between chunks is called too slow."""
_LAG_S: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """All tokens over the wall time of their blocks.

    Args:
        tokens: Tokens of finished requests.
        failed_tokens: Tokens that failed requests had delivered, as far as they are certain.
        wall_s: Sum over blocks: first request sent until the last token.
        num_blocks: Blocks.
    """

    tokens: int
    failed_tokens: int
    wall_s: float
    num_blocks: int


def measure_throughput(samples: Sequence[Sample]) -> Throughput:
    """Tokens and wall time of an arm; requests that failed take their time, but bring no tokens."""
    blocks: dict[int, list[Sample]] = {}
    for sample in samples:
        blocks.setdefault(sample.key.block, []).append(sample)
    wall_s = 0.0
    for block in blocks.values():
        begin = min(sample.sent_at_s for sample in block)
        wall_s += max(_last_s(sample) for sample in block) - begin
    return Throughput(
        tokens=sum(sample.metrics.output_tokens for sample in samples if sample.is_good),
        failed_tokens=sum(sample.metrics.output_tokens for sample in samples if not sample.is_good),
        wall_s=wall_s,
        num_blocks=len(blocks),
    )


def _last_s(sample: Sample) -> float:
    """Last token of a good request; of a failed one, when it was over."""
    if sample.metrics.e2e_s is not None:
        return sample.sent_at_s + sample.metrics.e2e_s
    return max(sample.ended_at_s, sample.sent_at_s)


def summarise(
    samples: Sequence[Sample],
    *,
    gaps: Mapping[ArmKey, CounterGap],
    ceiling: Evidence,
    planned: Mapping[ArmKey, int],
    date: str | None = None,
) -> tuple[BenchArm, ...]:
    """One arm per prompt class and concurrency, in the order they were planned; one that never began has no figures.

    Args:
        samples: Everything that was measured.
        gaps: The three ledgers of each arm.
        ceiling: The plan's upper bound on decode speed, tok/s.
        planned: How many counted requests each arm was to have.
        date: When it was measured.
    """
    by_arm: dict[ArmKey, list[Sample]] = {key: [] for key in planned}
    for sample in sorted(samples, key=lambda sample: sample.key.index):
        by_arm.setdefault((sample.key.prompt_class, sample.key.concurrency), []).append(sample)
    return tuple(
        _arm(key, group, gap=gaps.get(key), ceiling=ceiling, planned=planned.get(key), date=date)
        for key, group in by_arm.items()
    )


def _arm(
    key: ArmKey,
    group: Sequence[Sample],
    *,
    gap: CounterGap | None,
    ceiling: Evidence,
    planned: int | None,
    date: str | None,
) -> BenchArm:
    prompt_class, concurrency = key
    counted = [sample for sample in group if sample.is_counted]
    good = [sample for sample in counted if sample.is_good]
    stamps = {sample.stamp for sample in good}
    how = "kernel receive stamps" if stamps == {"kernel"} else "clock read after each arrival"
    source = f"stream at the client, {how}; {prompt_class} prompts, concurrency {concurrency}"
    empty = f"all {len(counted)} requests failed" if counted else "the benchmark ended before this arm began"
    metrics = _metrics(good, source=source, date=date, empty=empty)
    flow = measure_throughput(counted)
    rate = _rate(flow, empty=empty, date=date)
    decode = metrics["decode_tok_per_s"].mean
    return BenchArm(
        prompt_class=prompt_class,
        concurrency=concurrency,
        requests=len(good),
        warmup=sum(sample.key.is_warmup for sample in group),
        failed=len(counted) - len(good),
        prompt_tokens=mean_of(
            [sample.metrics.prompt_tokens for sample in good if sample.metrics.prompt_tokens is not None],
            "tokens",
            source="the API's usage field",
            date=date,
            empty="the server states no usage" if good else empty,
        ),
        output_tokens=mean_of(
            [sample.metrics.output_tokens for sample in good],
            "tokens",
            source=" and ".join(sorted({sample.metrics.counted_by for sample in good})) + ", cross-checked",
            date=date,
            empty=empty,
        ),
        metrics=metrics,
        output_tok_per_s=rate,
        ceiling_share=calculate(
            "share",
            "mean decode speed / decode ceiling",
            lambda decode_speed, ceiling: decode_speed / ceiling,
            decode_speed=decode,
            ceiling=ceiling,
        ),
        counters=gap or _no_gap(good),
        flags=_flags(group, counted, good, flow=flow, decode=decode, ceiling=ceiling, planned=planned),
    )


def _metrics(good: Sequence[Sample], *, source: str, date: str | None, empty: str) -> dict[str, Distribution]:
    def of(name: str, unit: str, *, is_rate: bool = False) -> Distribution:
        values = [getattr(sample.metrics, name) for sample in good]
        found = [value for value in values if value is not None]
        return describe(found, unit, is_rate=is_rate, source=source, date=date, empty=empty)

    if good:
        empty = "every answer came in one chunk"
    gaps = [sample.metrics.itl_s for sample in good if sample.metrics.itl_s]
    found = {
        "ttft_s": of("ttft_s", "s"),
        "tpot_s": of("tpot_s", "s"),
        "itl_s": describe(
            [gap for request in gaps for gap in request],
            "s",
            is_rate=False,
            source=source,
            date=date,
            means=[statistics.fmean(request) for request in gaps],
            empty=empty,
        ),
        "e2e_s": of("e2e_s", "s"),
        "decode_tok_per_s": of("decode_tok_per_s", "tok/s", is_rate=True),
    }
    if any(sample.metrics.first_answer_s is not None for sample in good):
        found["first_answer_s"] = of("first_answer_s", "s")
    return found


def _rate(flow: Throughput, *, empty: str, date: str | None) -> Evidence:
    if not flow.tokens or flow.wall_s <= 0:
        return Evidence.not_measured(empty, "tok/s")
    blocks = f" over {flow.num_blocks} blocks" if flow.num_blocks > 1 else ""
    return Evidence.measured(
        flow.tokens / flow.wall_s,
        "tok/s",
        source=f"{flow.tokens:,} tokens of finished requests in {format_duration(flow.wall_s)} of wall time{blocks}",
        date=date,
    )


def _no_gap(good: Sequence[Sample]) -> CounterGap:
    return explain_gap(
        windows=(),
        client_tokens=sum(sample.metrics.output_tokens for sample in good),
        usage_tokens=sum(sample.metrics.usage_tokens or 0 for sample in good),
        requests=len(good),
        requests_without_usage=sum(sample.metrics.usage_tokens is None for sample in good),
    )


# ----------------------------------------------------------------------------------------------------- flags


def _flags(
    group: Sequence[Sample],
    counted: Sequence[Sample],
    good: Sequence[Sample],
    *,
    flow: Throughput,
    decode: Evidence,
    ceiling: Evidence,
    planned: int | None,
) -> tuple[str, ...]:
    found = [
        *_failures(counted, flow),
        *_request_flags(counted, good),
        *_client_flags(good),
    ]
    if planned is not None and len(counted) < planned:
        found.append(f"cut short: {len(counted)} of {planned} requests were measured")
    if decode.number is not None and ceiling.number is not None and decode.number > ceiling.number:
        found.append(
            f"faster than its ceiling ({decode.text} measured, {ceiling.text} at most): the ceiling or the measurement "
            "is wrong, or the engine skips work"
        )
    warmups = [sample for sample in group if sample.key.is_warmup]
    if warmups and all(sample.metrics.error is not None for sample in warmups) and good:
        found.append(f"every warm-up request failed: {warmups[0].metrics.error}")
    return tuple(found)


def _failures(counted: Sequence[Sample], flow: Throughput) -> list[str]:
    """One sentence per kind of failure, and what the failed requests had delivered."""
    by_kind: dict[str, list[tuple[int, str]]] = {}
    for number, sample in enumerate(counted, start=1):
        if not sample.is_good:
            error = sample.metrics.error or "no reason is known"
            by_kind.setdefault(re.sub(r"\d+", "#", error), []).append((number, error))
    found = [_grouped(cases, len(counted), "failed") for cases in by_kind.values()]
    if flow.failed_tokens and flow.wall_s > 0:
        with_them = (flow.tokens + flow.failed_tokens) / flow.wall_s
        found.append(
            f"failed requests had delivered at least {flow.failed_tokens:,} tokens, which no figure includes; "
            f"with them the throughput is {format_tok_per_s(with_them)} or more"
        )
    return found


def _request_flags(counted: Sequence[Sample], good: Sequence[Sample]) -> list[str]:
    """One sentence per kind of flag; of stalls, the longest is the example."""
    number_of = {sample.key.index: number for number, sample in enumerate(counted, start=1)}
    by_kind: dict[str, list[tuple[int, str]]] = {}
    stalls: list[tuple[float, int, str]] = []
    for sample in good:
        number = number_of[sample.key.index]
        stalls += [(stall.gap_s, number, stall.text) for stall in sample.metrics.stalls]
        seen: set[str] = set()
        for flag in sample.metrics.flags:
            if flag.kind not in seen and flag.kind != "stall":
                seen.add(flag.kind)
                by_kind.setdefault(flag.kind, []).append((number, flag.text))
    found = [_grouped(cases, len(counted)) for cases in by_kind.values()]
    if stalls:
        _, number, text = max(stalls)
        affected = len({n for _, n, _ in stalls})
        found.insert(0, _grouped([(number, text)] * affected, len(counted)))
    return found


def _grouped(cases: Sequence[tuple[int, str]], total: int, verb: str = "") -> str:
    number, text = cases[0]
    if len(cases) == 1:
        return f"request {number}{f' {verb}' if verb else ''}: {text}"
    many = f"all {total}" if len(cases) == total else f"{len(cases)} of {total}"
    return f"{many} requests{f' {verb}' if verb else ''}, such as number {number}: {text}"


def _client_flags(good: Sequence[Sample]) -> list[str]:
    """Whether this program itself was too slow, or had no stamps from the kernel."""
    found = []
    if any(sample.stamp != "kernel" for sample in good):
        found.append("arrivals were stamped after they were read, so times hold the client's own delay")
    gaps = [gap for sample in good for gap in sample.metrics.itl_s]
    lag_s = max((sample.read_lag_s for sample in good), default=0.0)
    if gaps and lag_s > max(_LAG_S, _LAG_SHARE * statistics.median(gaps)):
        found.append(
            f"the client could not keep up: an arrival waited {format_duration(lag_s)} to be read; "
            "chunks that shared a read share a stamp"
        )
    return found
