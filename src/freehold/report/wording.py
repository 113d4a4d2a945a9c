"""How a number and its evidence are put into words, the same in every rendering.

A missing value is a dash and its reason; there is no path here that turns it into a number. Read :func:`value_text`,
then :func:`explain`.

Does not do: formatting of plain numbers (``units.py``), or markup.
"""

from __future__ import annotations

from dataclasses import dataclass

from freehold.evidence import DASH, Evidence, Interval, Kind
from freehold.report.document import Cited
from freehold.units import format_number

__all__ = [
    "MIN_INTERVAL_REQUESTS",
    "Fact",
    "arm_name",
    "explain",
    "interval_text",
    "kind_tag",
    "origin_text",
    "plural",
    "range_text",
    "value_text",
]

MIN_INTERVAL_REQUESTS = 15
"""Fewer counted requests than this, and neither a headline figure nor a picture carries an interval."""

_KIND_MEANING = {
    Kind.MEASURED: "measured by freehold in this run",
    Kind.VERIFIED: "stated by a current owner or platform source",
    Kind.CALCULATED: "calculated",
    Kind.VENDOR: "a vendor's figure, not checked here",
    Kind.COMMUNITY: "a community figure, not checked here",
    Kind.ASSUMED: "assumed, not checked here",
}
_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line about a number; ``depth`` is 0 for the number itself and grows with each step into its inputs."""

    term: str
    text: str
    depth: int = 0


def plural(count: int, noun: str) -> str:
    """A count with its noun: ``1 stream``, ``4 streams``."""
    return f"{format_number(count, '')} {noun}{'' if count == 1 else 's'}"


def arm_name(prompt_class: str, concurrency: int) -> str:
    """What an arm of the benchmark is called everywhere: ``code · 1 stream``."""
    return f"{prompt_class} · {plural(concurrency, 'stream')}"


def value_text(cited: Cited) -> str:
    """A value with its unit, with its spread where that is asked for and known; a dash where there is no value."""
    evidence = cited.evidence
    if evidence.is_missing:
        return DASH
    if not cited.shows_interval or evidence.interval is None or evidence.number is None:
        return evidence.text
    return _with_spread(evidence, evidence.interval)


def _with_spread(evidence: Evidence, interval: Interval) -> str:
    number = evidence.number
    assert number is not None
    above, below = interval.high - number, number - interval.low
    half = (interval.high - interval.low) / 2
    value, unit = _split(evidence.text)
    if half == 0 or abs(above - below) > 0.02 * half or not _is_plain(value) or not number:
        return f"{evidence.text} ({range_text(interval.low, interval.high, evidence.unit)})"
    # The spread takes the scale and the digits of the value's own text: 2.31 ± 0.04 s, not ± 41.0 ms.
    scaled = half * abs(float(value.replace(",", "")) / number)
    digits = len(value.partition(".")[2])
    spread = f"{scaled:,.{digits}f}"
    if float(spread.replace(",", "")) == 0:
        spread = f"{scaled:.1g}"
    return f"{value} ± {spread} {unit}".rstrip()


def _is_plain(text: str) -> bool:
    try:
        return float(text.replace(",", "")) != 0
    except ValueError:
        return False


def range_text(low: float, high: float, unit: str) -> str:
    """Two bounds with one unit where they share it: ``23.5–24.7 tok/s``, ``98.0 ms – 1.20 s``."""
    low_value, low_unit = _split(format_number(low, unit))
    high_value, high_unit = _split(format_number(high, unit))
    if low_unit == high_unit:
        dash = " – " if " " in low_value + high_value else "–"
        return f"{low_value}{dash}{high_value} {high_unit}".rstrip()
    return f"{low_value} {low_unit} – {high_value} {high_unit}".rstrip()


def _split(text: str) -> tuple[str, str]:
    """A formatted number and its unit; ``3 min 05 s`` has no single unit and is left whole."""
    value, _, unit = text.partition(" ")
    return (text, "") if " " in unit and unit[:1].isalpha() and any(c.isdigit() for c in unit) else (value, unit)


def interval_text(evidence: Evidence) -> str:
    """The confidence interval in words, empty without one: ``95 % interval 23.5–24.7 tok/s (Student t)``."""
    interval = evidence.interval
    if interval is None or evidence.is_missing:
        return ""
    bounds = range_text(interval.low, interval.high, evidence.unit)
    return f"{interval.level * 100:g} % interval {bounds} ({interval.method})"


def kind_tag(evidence: Evidence) -> str:
    """The word that stands beside a number whoever reads it: empty when it was measured, or stated by its owner.

    A calculation shows the weakest of what went into it: one that rests on a datasheet says ``vendor inputs``.
    """
    if evidence.is_missing or evidence.trust.rank < Kind.CALCULATED.rank:
        return ""
    return str(evidence.kind) if evidence.trust is evidence.kind else f"{evidence.trust} inputs"


def origin_text(evidence: Evidence) -> str:
    """Where a value comes from, in one line: origin, number of samples, source and date, or why there is none."""
    if evidence.is_missing:
        return f"not measured: {evidence.reason}"
    count = (
        ""
        if evidence.n is None
        else "a single observation"
        if evidence.n == 1
        else f"n = {format_number(evidence.n, '')}"
    )
    return " · ".join(part for part in (evidence.origin, count, evidence.source, evidence.date) if part)


def explain(cited: Cited) -> tuple[Fact, ...]:
    """Everything that is known about a number: origin, interval, n, source, date and what it was made of."""
    evidence = cited.evidence
    if evidence.is_missing:
        return (Fact(term="not measured", text=evidence.reason or ""),)
    return (*_facts(evidence), *_inputs(evidence, depth=1))


def _facts(evidence: Evidence) -> list[Fact]:
    meaning = _KIND_MEANING[evidence.kind]
    if evidence.trust is not evidence.kind:
        meaning = f"{meaning}; its weakest input is {_KIND_MEANING[evidence.trust]}"
    facts = [Fact(term=str(evidence.kind), text=meaning)] if meaning != str(evidence.kind) else []
    facts = facts or [Fact(term="origin", text=meaning)]
    if evidence.interval is not None:
        facts.append(Fact(term="interval", text=interval_text(evidence)))
    if evidence.n is not None:
        facts.append(
            Fact(term="n", text="1: a single observation" if evidence.n == 1 else format_number(evidence.n, ""))
        )
    facts.append(Fact(term="formula" if evidence.kind is Kind.CALCULATED else "source", text=evidence.source))
    if evidence.date:
        facts.append(Fact(term="date", text=evidence.date))
    return facts


def _inputs(evidence: Evidence, depth: int) -> list[Fact]:
    facts: list[Fact] = []
    if depth > _MAX_DEPTH:
        return facts
    for name, part in evidence.inputs.items():
        facts.append(Fact(term=name.replace("_", " "), text=f"{part.text} · {origin_text(part)}", depth=depth))
        facts += _inputs(part, depth + 1)
    return facts
