"""What is said about speed: headline figures, one table per metric and arm, token ledgers, every request.

A rate never stands without the ceiling and its share of it. Read :func:`speed_section`.

Does not do: statistics (``bench/``); means, intervals and percentiles are taken from the record as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from freehold.evidence import DASH, Evidence, Kind
from freehold.records.bench import BenchArm, Distribution
from freehold.report.charts import drawn_ceiling
from freehold.report.document import (
    Block,
    Cell,
    Chart,
    Cited,
    Column,
    Figure,
    Row,
    RowGroup,
    Section,
    Table,
    Text,
)
from freehold.report.headline import speed_mark
from freehold.report.load import RunRecords, Stage
from freehold.report.samples import Sample
from freehold.report.wording import MIN_INTERVAL_REQUESTS, arm_name, plural, range_text
from freehold.units import format_number

__all__ = ["ledger_section", "speed_figures", "speed_section"]

_METRICS = {
    "ttft_s": ("TTFT", "s"),
    "first_answer_s": ("first answer token", "s"),
    "tpot_s": ("TPOT", "s"),
    "itl_s": ("ITL", "s"),
    "e2e_s": ("E2E latency", "s"),
    "decode_tok_per_s": ("decode speed", "tok/s"),
}
"""Our names for the metrics, in the order in which they are shown; others follow under their own keys."""

_TERMS = (
    "TTFT: request sent until the first non-empty output token, queueing included. First answer token: the same, but "
    "after any reasoning. TPOT: time per output token after the first. ITL: gaps between chunks, which may hold "
    "several tokens. E2E: request sent until the last token. Decode speed is 1 / TPOT: what one user sees."
)


def speed_figures(run: RunRecords) -> tuple[Figure, ...]:
    """The headline numbers of speed; dashes with their reason when none was measured."""
    if run.bench is None or not run.bench.arms:
        reason = run.why_missing(Stage.BENCH) or "the benchmark was interrupted before its first counted request"
        return tuple(
            Figure(label=label, scope="", value=Cited(name=label, evidence=Evidence.not_measured(reason, unit)))
            for label, unit in (("decode speed", "tok/s"), ("TTFT", "s"))
        )
    single = [arm for arm in run.bench.arms if arm.concurrency == 1]
    figures = [_decode_figure(arm, run) for arm in single]
    figures += [_metric_figure(arm, "ttft_s") for arm in single]
    figures += [_throughput_figure(arm) for arm in run.bench.arms if arm.concurrency > 1]
    return tuple(figures)


def _decode_figure(arm: BenchArm, run: RunRecords) -> Figure:
    ceiling = _ceiling(run)
    if arm.ceiling_share.is_missing or ceiling.is_missing:
        note = "no ceiling to compare with"
    else:
        origin = "" if ceiling.trust.rank <= Kind.CALCULATED.rank else f" ({ceiling.origin})"
        note = f"{arm.ceiling_share.text} of the ceiling, {ceiling.text}{origin}"
    return _metric_figure(arm, "decode_tok_per_s", note=note)


def _metric_figure(arm: BenchArm, metric: str, *, note: str = "") -> Figure:
    label, unit = _METRICS[metric]
    spread = arm.metrics.get(metric)
    mean = spread.mean if spread is not None else Evidence.not_measured("the benchmark did not record it", unit)
    has_enough = arm.requests >= MIN_INTERVAL_REQUESTS
    if not note and spread is not None:
        note = _percentile_note(spread)
    return Figure(
        label=label,
        scope=arm_name(arm.prompt_class, arm.concurrency),
        value=Cited(
            name=f"{label}, mean · {arm_name(arm.prompt_class, arm.concurrency)}",
            evidence=mean,
            shows_interval=has_enough,
        ),
        note="; ".join(part for part in (_sample_note(arm, mean), note) if part),
    )


def _sample_note(arm: BenchArm, mean: Evidence) -> str:
    if mean.is_missing:
        return ""
    if arm.requests == 1:
        return "a single request"
    if arm.requests < MIN_INTERVAL_REQUESTS:
        return f"only {arm.requests} requests: no interval"
    return f"n = {format_number(arm.requests, '')}"


def _percentile_note(spread: Distribution) -> str:
    low, high = spread.p10.number, spread.p90.number
    return "" if low is None or high is None else f"p10–p90 {range_text(low, high, spread.p10.unit)}"


def _throughput_figure(arm: BenchArm) -> Figure:
    scope = arm_name(arm.prompt_class, arm.concurrency)
    return Figure(
        label="output throughput",
        scope=scope,
        value=Cited(name=f"output throughput · {scope}", evidence=arm.output_tok_per_s),
        note="all streams together",
    )


def _ceiling(run: RunRecords) -> Evidence:
    if run.plan is not None:
        return run.plan.decode_ceiling_tok_per_s
    return Evidence.not_measured(f"no plan: {run.why_missing(Stage.PLAN)}", "tok/s")


def _band_note(arms: Iterable[BenchArm]) -> str:
    has_band = any(arm.requests >= MIN_INTERVAL_REQUESTS for arm in arms)
    return "Band: interval of that mean. " if has_band else ""


def speed_section(run: RunRecords) -> Section:
    """The chapter on speed."""
    title = "Speed"
    if run.bench is None or not run.bench.arms:
        reason = run.why_missing(Stage.BENCH) or "the benchmark was interrupted before its first counted request"
        return Section(
            slug="speed", title=title, lead="", blocks=(Text(text=f"Speed not measured: {reason}.", is_missing=True),)
        )
    mark = speed_mark(run)
    arms = run.bench.arms
    blocks: list[Block] = [
        Chart(
            name="decode",
            caption="Decode speed of each request, in the order in which they were sent. "
            "Hollow: not counted (warm-up or failed). Line: mean of the counted requests. "
            f"{_band_note(arms)}{_ceiling_note(run)}",
            alternative=f"Decode speed per request for {_arm_list(arms)}; the numbers stand under “every request”.",
            missing=_samples_missing(run, "decode_tok_per_s"),
            mark=mark,
        ),
        Chart(
            name="ttft",
            caption="Time to first token, one dot per counted request. Bar: p10 to p90. Tick: median.",
            alternative=f"TTFT per request for {_arm_list(arms)}; the numbers stand under “every request”.",
            missing=_samples_missing(run, "ttft_s"),
            mark=mark,
        ),
        _arms_table(run, mark),
    ]
    if run.samples:
        blocks.append(_samples_table(run.samples, mark))
    return Section(
        slug="speed",
        title=title,
        lead="As the client saw it: tokens that were delivered, wall clock at the client, counts from the server's "
        "usage field. Single stream and several streams are different experiments and are kept apart.",
        blocks=tuple(blocks),
    )


def _ceiling_note(run: RunRecords) -> str:
    ceiling = _ceiling(run)
    if ceiling.is_missing:
        return f"No ceiling: {ceiling.reason}."
    if drawn_ceiling(run) is None:
        return f"The ceiling, {ceiling.text}, lies far above the picture."
    return "Dashed: the ceiling."


def _arm_list(arms: tuple[BenchArm, ...]) -> str:
    return "; ".join(arm_name(arm.prompt_class, arm.concurrency) for arm in arms)


def _samples_missing(run: RunRecords, attribute: str) -> str:
    if not run.samples:
        return run.samples_missing
    if all(getattr(sample, attribute) is None for sample in run.samples if sample.is_counted):
        return f"no counted request has a {attribute}"
    return ""


def _arms_table(run: RunRecords, mark: str) -> Table:
    assert run.bench is not None
    groups, notes = [], [_TERMS, *_interval_notes(run.bench.arms)]
    for arm in run.bench.arms:
        scope = arm_name(arm.prompt_class, arm.concurrency)
        groups.append(RowGroup(title=scope, note=_arm_note(arm), rows=tuple(_metric_rows(arm, scope, _ceiling(run)))))
        notes += [f"{scope}: {flag}" for flag in arm.flags]
    columns = ("mean ± interval", "n", "p10", "median", "p90", "p99", "worst")
    return Table(
        slug="speed-table",
        caption="Speed by prompt class and number of streams",
        columns=(Column(title="metric"), *(Column(title=title, is_numeric=True) for title in columns)),
        groups=tuple(groups),
        notes=tuple(notes),
        mark=mark,
    )


def _interval_notes(arms: tuple[BenchArm, ...]) -> list[str]:
    """How the intervals of a table were made, once for all of them."""
    intervals = (spread.mean.interval for arm in arms for spread in arm.metrics.values())
    kinds = dict.fromkeys((f"{i.level * 100:g} %", i.method) for i in intervals if i is not None)
    return [f"Intervals of the mean: {level}, {method}." for level, method in kinds]


def _arm_note(arm: BenchArm) -> str:
    parts = [
        f"{plural(arm.requests, 'request')} counted",
        f"{format_number(arm.warmup, '')} warm-up dropped",
        f"{format_number(arm.failed, '')} failed",
        f"prompt {arm.prompt_tokens.text}",
        f"output {arm.output_tokens.text}",
    ]
    return ", ".join(parts)


def _metric_rows(arm: BenchArm, scope: str, ceiling: Evidence) -> Iterator[Row]:
    keys = [*(key for key in _METRICS if key in arm.metrics), *(key for key in arm.metrics if key not in _METRICS)]
    for key in keys:
        label = _METRICS[key][0] if key in _METRICS else key
        spread = arm.metrics[key]
        shown = {
            "p10": spread.p10,
            "median": spread.p50,
            "p90": spread.p90,
            "p99": spread.p99,
            "worst": spread.worst,
        }
        count = spread.mean.n
        yield Row(
            cells=(
                label,
                Cited(name=f"{label}, mean · {scope}", evidence=spread.mean, shows_interval=True),
                "" if count is None else format_number(count, ""),
                *(Cited(name=f"{label}, {name} · {scope}", evidence=evidence) for name, evidence in shown.items()),
            )
        )
    single = (
        ("decode ceiling", ceiling),
        ("share of ceiling", arm.ceiling_share),
        ("output throughput", arm.output_tok_per_s),
    )
    for label, evidence in single:
        counted = "" if evidence.n is None else format_number(evidence.n, "")
        cited = Cited(name=f"{label} · {scope}", evidence=evidence, shows_interval=True)
        yield Row(cells=(label, cited, counted, "", "", "", "", ""))


def _samples_table(samples: tuple[Sample, ...], mark: str) -> Table:
    groups: dict[str, list[Row]] = {}
    for sample in samples:
        scope = arm_name(sample.prompt_class, sample.concurrency)
        groups.setdefault(scope, []).append(Row(cells=_sample_cells(sample, scope)))
    columns = ("TTFT", "TPOT", "E2E latency", "decode speed", "output tokens")
    return Table(
        slug="requests",
        caption="Every request",
        columns=(
            Column(title="request"),
            Column(title="counted"),
            *(Column(title=title, is_numeric=True) for title in columns),
        ),
        groups=tuple(RowGroup(title=scope, rows=tuple(rows)) for scope, rows in groups.items()),
        mark=mark,
        is_folded=True,
    )


def _sample_cells(sample: Sample, scope: str) -> tuple[Cell, ...]:
    values = (
        (sample.ttft_s, "s"),
        (sample.tpot_s, "s"),
        (sample.e2e_s, "s"),
        (sample.decode_tok_per_s, "tok/s"),
        (sample.output_tokens, ""),
    )
    counted = "warm-up" if sample.is_warmup else f"failed: {sample.error}" if sample.error else "yes"
    texts = tuple(DASH if value is None else format_number(value, unit) for value, unit in values)
    return (format_number(sample.index + 1, ""), counted, *texts)


def ledger_section(run: RunRecords) -> Section:
    """The chapter on token counts: what the client accepted, what the API said, what the engine counted."""
    if run.bench is None or not run.bench.arms:
        reason = run.why_missing(Stage.BENCH) or "no request was counted"
        blocks: tuple[Block, ...] = (Text(text=f"No token ledgers: {reason}.", is_missing=True),)
    else:
        blocks = (_ledger_table(run),)
    return Section(
        slug="ledgers",
        title="Three token ledgers",
        lead="Chunks are not tokens, and an engine's own counter sees more than one client. "
        "So the same window is counted three times, and a difference is explained.",
        blocks=blocks,
    )


def _ledger_table(run: RunRecords) -> Table:
    assert run.bench is not None
    rows = []
    for arm in run.bench.arms:
        scope = arm_name(arm.prompt_class, arm.concurrency)
        gap = arm.counters
        rows.append(
            Row(
                cells=(
                    scope,
                    Cited(name=f"tokens accepted by the client · {scope}", evidence=gap.client_tokens),
                    Cited(name=f"tokens by the API's usage field · {scope}", evidence=gap.usage_tokens),
                    Cited(name=f"tokens by the engine's counter · {scope}", evidence=gap.server_tokens),
                    gap.explanation,
                )
            )
        )
    return Table(
        slug="ledger-table",
        caption="Output tokens over each arm's window",
        columns=(
            Column(title="arm"),
            Column(title="client", is_numeric=True),
            Column(title="usage field", is_numeric=True),
            Column(title="engine counter", is_numeric=True),
            Column(title="the difference"),
        ),
        groups=(RowGroup(rows=tuple(rows)),),
        mark=speed_mark(run),
    )
