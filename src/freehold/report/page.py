"""The report as one HTML file that opens from disk: no request leaves it, with or without scripts.

All text comes from records and is escaped; only the style sheet, the script and the drawn charts go in as they are.
Each number is a button that opens its evidence; print shows the number of its entry in the list at the end instead.
Read :func:`render_html`.

Does not do: deciding what is said (``content.py``), or drawing (``charts.py``).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from freehold.evidence import Evidence
from freehold.records.verdict import Outcome
from freehold.report import charts
from freehold.report.content import describe
from freehold.report.document import (
    Block,
    Chart,
    Cited,
    Code,
    Facts,
    Findings,
    Table,
    finding_value,
)
from freehold.report.headline import UNVERIFIED
from freehold.report.ledger import Entry, Ledger
from freehold.report.load import RunRecords
from freehold.report.wording import Fact, explain, kind_tag, value_text

__all__ = ["render_html"]

_CHART_NAMES = {"decode": "decode speed", "ttft": "time to first token", "memory": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Citation:
    """A number as the template needs it."""

    id: str
    name: str
    text: str
    main: str
    rest: str
    tag: str
    number: int
    facts: tuple[Fact, ...]
    is_missing: bool
    is_text: bool


class _Citations:
    """Hands out anchors in the order in which the page shows its numbers."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.all: list[_Citation] = []

    def cite(self, cited: Cited) -> _Citation:
        """Register a number."""
        text = value_text(cited)
        main, space, rest = text.partition(" ")
        evidence: Evidence = cited.evidence
        citation = _Citation(
            id=f"evidence-{len(self.all) + 1}",
            name=cited.name,
            text=text,
            main=main,
            rest=space + rest,
            tag=kind_tag(evidence),
            number=self.ledger.number(cited),
            facts=explain(cited),
            is_missing=evidence.is_missing,
            is_text=isinstance(evidence.value, str),
        )
        self.all.append(citation)
        return citation

    def entries(self) -> tuple[Entry, ...]:
        """The list at the end of the page."""
        return self.ledger.entries()


def render_html(run: RunRecords) -> str:
    """A run as one self-contained HTML page.

    Args:
        run: The records.

    Returns:
        The page; the same for the same records.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False, lstrip_blocks=False)
    citations = _Citations()
    script = _asset("page.js").strip()
    style = _asset("page.css").replace("{{ dark }}", " ".join(_asset("dark.css").split()))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sizes = {"wide": charts.WIDE, "narrow": charts.NARROW}
    page: str = environment.from_string(_asset("page.html.j2")).render(
        document=describe(run),
        cite=citations.cite,
        citations=lambda: citations.all,
        ledger=citations.entries,
        chart=lambda name, size: Markup(charts.draw(name, run, sizes[size])),
        chart_names=_CHART_NAMES,
        finding_value=finding_value,
        has_prose=_has_prose,
        kind_of=_kind_of,
        mark_outcome=_mark_outcome,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        style=Markup(style.strip()),
    )
    return page + "\n"


def _kind_of(block: Block) -> str:
    kinds = {Table: "table", Facts: "facts", Findings: "findings", Chart: "chart", Code: "code"}
    return kinds.get(type(block), "text")


def _has_prose(table: Table) -> bool:
    """Whether a narrow screen should stack its cells: text columns cannot be read through a slit, numbers can."""
    return any(not column.is_numeric for column in table.columns[1:]) and not table.is_folded


def _mark_outcome(mark: str) -> str:
    return str(Outcome.FAIL if UNVERIFIED in mark else Outcome.WARN)


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return files("freehold").joinpath("data", "report", name).read_text(encoding="utf-8")
