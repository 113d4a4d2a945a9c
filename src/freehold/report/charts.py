"""Draws the pictures of a report as Vega-Lite specifications: decode speed, time to first token, memory.

Colours are the tokens of ``svg.py``, which the page's style sheet gives their light, dark and printed values. Every
value that is drawn stands in a table of the report too. Read :func:`draw`. Importing Altair takes most of a second, so
it happens on the first drawing.

Does not do: statistics; means, intervals and percentiles come from the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from freehold.evidence import Evidence
from freehold.records.bench import BenchArm
from freehold.records.plan import Plan
from freehold.report.document import Cited
from freehold.report.load import RunRecords
from freehold.report.memory import memory_actual
from freehold.report.svg import GRID, INK, MUTED, NEUTRAL, PAPER, SERIES, TERM_FILLS, to_svg
from freehold.report.wording import MIN_INTERVAL_REQUESTS, arm_name, value_text

__all__ = ["NARROW", "WIDE", "Size", "draw", "drawn_ceiling"]

_MAX_CEILING_RATIO = 3.0
"""A ceiling further above the fastest request than this is named in words instead of flattening the picture."""
_MAX_FREE_RATIO = 1.6
_POINT_AREA = 42
_MANY_POINTS = 150
_NAME_WIDTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How wide a picture is, in CSS pixels, and how many panels stand side by side."""

    width: int
    columns: int


WIDE = Size(width=880, columns=2)
NARROW = Size(width=330, columns=1)


def draw(name: str, run: RunRecords, size: Size) -> str:
    """One picture as inline SVG.

    Args:
        name: ``decode``, ``ttft`` or ``memory``.
        run: The records; they hold what the picture needs, as the document has checked.
        size: How large.
    """
    import altair as alt

    chart = {"decode": _decode, "ttft": _ttft, "memory": _memory}[name](alt, run, size)
    return to_svg(_configured(chart).to_dict(), prefix=f"{name}-{size.width}")


def _configured(chart: Any) -> Any:
    return (
        chart.configure(background="transparent", font="sans-serif", padding=2)
        .configure_view(stroke=None)
        .configure_axis(
            domainColor=MUTED,
            gridColor=GRID,
            labelColor=MUTED,
            labelFontSize=12,
            tickColor=MUTED,
            titleColor=MUTED,
            titleFontSize=12,
            titleFontWeight="normal",
        )
        .configure_title(
            anchor="start", color=INK, fontSize=13, fontWeight=600, offset=10, subtitleColor=MUTED, subtitleFontSize=12
        )
        .configure_legend(labelColor=INK, labelFontSize=12, titleColor=MUTED, orient="bottom", symbolType="square")
    )


def _values(alt: Any, rows: list[dict[str, Any]]) -> Any:
    return alt.InlineData(values=rows)


# --- decode speed of each request -------------------------------------------------------------------------------------


def _decode(alt: Any, run: RunRecords, size: Size) -> Any:
    assert run.bench is not None
    top = _fastest(run)
    ceiling = drawn_ceiling(run)
    top = max(top, ceiling or top)
    arms = [arm for arm in run.bench.arms if _has_points(run, arm)]
    columns = min(size.columns, len(arms))
    width = (size.width - 62 * columns) // columns
    panels = [_decode_panel(alt, run, arm, ceiling=ceiling, top=top * 1.08, width=width) for arm in arms]
    return alt.concat(*panels, columns=columns, spacing=24)


def drawn_ceiling(run: RunRecords) -> float | None:
    """The ceiling in tok/s where it is near enough to be drawn, else None."""
    ceiling = run.plan.decode_ceiling_tok_per_s.number if run.plan is not None else None
    return ceiling if ceiling is not None and ceiling <= _MAX_CEILING_RATIO * _fastest(run) else None


def _fastest(run: RunRecords) -> float:
    return max((s.decode_tok_per_s for s in run.samples if s.decode_tok_per_s is not None), default=0.0)


def _has_points(run: RunRecords, arm: BenchArm) -> bool:
    return any(_belongs(s, arm) and s.decode_tok_per_s is not None for s in run.samples)


def _belongs(sample: Any, arm: BenchArm) -> bool:
    return bool(sample.prompt_class == arm.prompt_class and sample.concurrency == arm.concurrency)


def _decode_panel(alt: Any, run: RunRecords, arm: BenchArm, *, ceiling: float | None, top: float, width: int) -> Any:
    rows = [
        {"request": s.index + 1, "speed": s.decode_tok_per_s, "kind": "counted" if s.is_counted else "not counted"}
        for s in run.samples
        if _belongs(s, arm) and s.decode_tok_per_s is not None
    ]
    scale = alt.Scale(domain=[0, top], nice=False)
    last = max(s.index + 1 for s in run.samples if _belongs(s, arm))
    x = alt.X(
        "request:Q", title="request", scale=alt.Scale(domain=[0, last + 1], nice=False), axis=_count_axis(alt, last)
    )
    y = alt.Y("speed:Q", title="tok/s", scale=scale, axis=alt.Axis(tickCount=5))
    is_many = len(rows) > _MANY_POINTS
    layers = []
    spread = arm.metrics.get("decode_tok_per_s")
    mean = spread.mean if spread is not None else Evidence.not_measured("not recorded", "tok/s")
    has_enough = arm.requests >= MIN_INTERVAL_REQUESTS
    if mean.interval is not None and has_enough:
        # Of a wide scatter an interval reaches below zero or above every request: the picture ends before it.
        band = _values(alt, [{"low": max(mean.interval.low, 0.0), "high": min(mean.interval.high, top)}])
        layers.append(
            alt.Chart(band).mark_rect(fill=SERIES, opacity=0.2).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
        )
    if mean.number is not None:
        rule = _values(alt, [{"mean": mean.number}])
        layers.append(alt.Chart(rule).mark_rule(stroke=SERIES, strokeWidth=1.5).encode(y=alt.Y("mean:Q", scale=scale)))
    if ceiling is not None:
        line = _values(alt, [{"ceiling": ceiling, "label": f"ceiling {_ceiling_text(run)}"}])
        rule_chart = alt.Chart(line).encode(y=alt.Y("ceiling:Q", scale=scale))
        layers.append(rule_chart.mark_rule(stroke=INK, strokeDash=[5, 4]))
        layers.append(
            rule_chart.mark_text(align="right", baseline="top", dy=5, fontSize=12, fill=INK).encode(
                x=alt.value(width - 2), text="label:N"
            )
        )
    points = alt.Chart(_values(alt, rows)).encode(x=x, y=y)
    style: dict[str, Any] = {"size": _POINT_AREA / 3 if is_many else _POINT_AREA, "opacity": 0.6 if is_many else 1}
    counted = points.transform_filter("datum.kind == 'counted'").mark_point(
        fill=SERIES, stroke=PAPER, strokeWidth=1, shape="circle", **style
    )
    others = points.transform_filter("datum.kind != 'counted'").mark_point(
        fill=PAPER, stroke=MUTED, strokeWidth=1.5, shape="circle", **style
    )
    subtitle = f"mean {value_text(Cited(name='mean', evidence=mean, shows_interval=has_enough))}"
    title = alt.TitleParams(text=arm_name(arm.prompt_class, arm.concurrency), subtitle=subtitle)
    return alt.layer(*layers, others, counted).properties(width=width, height=180, title=title)


def _ceiling_text(run: RunRecords) -> str:
    assert run.plan is not None
    return run.plan.decode_ceiling_tok_per_s.text


def _count_axis(alt: Any, last: int) -> Any:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if last / step <= 8)
    return alt.Axis(values=[1, *range(step, last + 1, step)] if step > 1 else list(range(1, last + 1)), grid=False)


def _name_axis(alt: Any) -> Any:
    """The axis of named bars; it keeps room for fonts wider than the converter's own."""
    return alt.Axis(
        ticks=False, domain=False, labelColor=INK, labelLimit=_NAME_WIDTH, minExtent=_NAME_WIDTH, labelPadding=8
    )


# --- time to first token ----------------------------------------------------------------------------------------------


def _ttft(alt: Any, run: RunRecords, size: Size) -> Any:
    assert run.bench is not None
    counted = [s for s in run.samples if s.is_counted and s.ttft_s is not None]
    factor, unit = (1e3, "ms") if max(s.ttft_s or 0.0 for s in counted) < 1 else (1.0, "s")
    order = [arm_name(arm.prompt_class, arm.concurrency) for arm in run.bench.arms]
    points = [{"arm": arm_name(s.prompt_class, s.concurrency), "ttft": (s.ttft_s or 0.0) * factor} for s in counted]
    spreads = []
    for arm in run.bench.arms:
        spread = arm.metrics.get("ttft_s")
        if spread is not None:
            numbers = {"p10": spread.p10.number, "p50": spread.p50.number, "p90": spread.p90.number}
            row = {name: value * factor for name, value in numbers.items() if value is not None}
            spreads.append({"arm": arm_name(arm.prompt_class, arm.concurrency), **row})
    y = alt.Y("arm:N", sort=order, title=None, axis=_name_axis(alt))
    scale = alt.Scale(zero=False, nice=True, padding=12)
    x = alt.X(
        "ttft:Q",
        title=f"time to first token ({unit})",
        scale=scale,
        axis=alt.Axis(tickCount=6 if size.columns > 1 else 3, labelOverlap=True),
    )
    base = alt.Chart(_values(alt, spreads)).encode(y=y)
    ranges = base.transform_filter("isValid(datum.p10) && isValid(datum.p90)").mark_bar(
        fill=SERIES, opacity=0.22, height=20, cornerRadius=2
    )
    medians = base.transform_filter("isValid(datum.p50)").mark_tick(color=INK, thickness=2, size=30)
    dots = alt.Chart(_values(alt, points)).mark_point(
        fill=SERIES, stroke=PAPER, strokeWidth=1, size=_POINT_AREA, opacity=0.85
    )
    return alt.layer(
        ranges.encode(x=alt.X("p10:Q", scale=scale), x2="p90:Q"),
        dots.encode(x=x, y=y),
        medians.encode(x=alt.X("p50:Q", scale=scale)),
    ).properties(width=size.width - _NAME_WIDTH - 30, height=alt.Step(46))


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(alt: Any, run: RunRecords, size: Size) -> Any:
    assert run.plan is not None
    bars = _memory_bars(run, run.plan)
    top = max(bar["end"] for bar in bars)
    factor, unit = (2**30, "GiB") if top >= 2 * 2**30 else (2**20, "MiB")
    free = run.plan.free_memory_bytes.number
    width = size.width - _NAME_WIDTH - 30
    if free is not None and free <= _MAX_FREE_RATIO * top:
        top = max(top, free)
    rows = [
        {
            **bar,
            "start": bar["start"] / factor,
            "end": bar["end"] / factor,
            "middle": (bar["start"] + bar["end"]) / 2 / factor,
        }
        for bar in bars
    ]
    for row, bar in zip(rows, bars, strict=True):
        share = (bar["end"] - bar["start"]) / top
        row["label"] = bar["part"] if share * width > 7.5 * len(bar["part"]) + 10 else ""
    parts = list(dict.fromkeys(str(bar["part"]) for bar in bars if bar["is_term"]))
    order = list(dict.fromkeys(bar["bar"] for bar in bars))
    scale = alt.Scale(domain=[0, top * 1.04 / factor], nice=False)
    y = alt.Y("bar:N", sort=order, title=None, axis=_name_axis(alt))
    x = alt.X(
        "start:Q", title=unit, scale=scale, axis=alt.Axis(tickCount=6 if size.columns > 1 else 3, labelOverlap=True)
    )
    colour = alt.Color(
        "part:N",
        scale=alt.Scale(domain=parts, range=[TERM_FILLS[i % len(TERM_FILLS)] for i in range(len(parts))]),
        legend=alt.Legend(title=None, columns=4 if size.columns > 1 else 2),
    )
    base = alt.Chart(_values(alt, rows)).encode(y=y, x=x, x2="end:Q")
    layers = [
        base.transform_filter("datum.is_term").mark_bar(stroke=PAPER, strokeWidth=1.5, height=30).encode(color=colour),
        base.transform_filter("!datum.is_term").mark_bar(fill=NEUTRAL, stroke=PAPER, strokeWidth=1.5, height=30),
        alt.Chart(_values(alt, rows))
        .mark_text(fill=INK, fontSize=12)
        .encode(y=y, x=alt.X("middle:Q", scale=scale), text="label:N"),
    ]
    if free is not None and free <= _MAX_FREE_RATIO * max(bar["end"] for bar in bars):
        line = _values(alt, [{"free": free / factor, "label": f"free {run.plan.free_memory_bytes.text}"}])
        rule = alt.Chart(line).encode(x=alt.X("free:Q", scale=scale))
        layers.append(rule.mark_rule(stroke=INK, strokeDash=[5, 4]))
        layers.append(
            rule.mark_text(align="right", dx=-5, fontSize=12, fill=INK).encode(y=alt.value(-7), text="label:N")
        )
    return alt.layer(*layers).properties(width=width, height=alt.Step(46))


def _memory_bars(run: RunRecords, plan: Plan) -> list[dict[str, Any]]:
    bars: list[dict[str, Any]] = []
    start = 0.0
    for term in plan.terms:
        size = term.bytes.number
        if size:
            name = term.name.replace("_", " ")
            bars.append({"bar": "predicted", "part": name, "start": start, "end": start + size, "is_term": True})
            start += size
    singles = (("must be free", plan.contract.contract_free_bytes), ("measured", memory_actual(run)))
    for label, evidence in singles:
        if evidence.number:
            row = {"bar": label, "part": evidence.text, "start": 0.0, "end": evidence.number, "is_term": False}
            bars.append(row)
    return bars
