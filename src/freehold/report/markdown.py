"""The report as GitHub-flavoured Markdown: the same words and numbers as the page, with footnotes for the evidence.

Read :func:`render_markdown`. Text from records is escaped, so that a model's name cannot become markup.

Does not do: pictures; what they show is in the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from freehold.evidence import DASH
from freehold.records.verdict import Verdict
from freehold.report.content import describe
from freehold.report.document import (
    Block,
    Cell,
    Chart,
    Cited,
    Code,
    Document,
    Facts,
    Figure,
    Findings,
    Table,
    Text,
    finding_value,
)
from freehold.report.ledger import Entry, Ledger, make_ledger
from freehold.report.load import RunRecords
from freehold.report.wording import kind_tag, value_text

__all__ = ["render_markdown"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#$&])")


def render_markdown(run: RunRecords) -> str:
    """A run as Markdown.

    Args:
        run: The records.

    Returns:
        The text; the same for the same records.
    """
    document = describe(run)
    ledger = make_ledger(document)
    lines = [*_head(document, ledger), *_chapters(document, ledger), *_notes(ledger)]
    # Every part ends with an empty line and some parts are empty: one between two paragraphs is enough.
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept).rstrip("\n") + "\n"


def _head(document: Document, ledger: Ledger) -> Iterator[str]:
    headline = document.headline
    yield f"# {_escape(document.title)}"
    yield ""
    yield _escape(" · ".join(document.subtitle))
    yield ""
    yield f"> **{_escape(headline.word)}** ({headline.outcome}): {_escape(headline.sentence)}"
    for mark in headline.marks:
        yield ">"
        yield f"> **{_escape(mark.word)}** ({mark.outcome}): {_escape(mark.sentence)}"
    yield ""
    mark_title = f" {_escape(document.mark)} |" if document.mark else ""
    yield f"| figure | for | value | note |{mark_title}"
    yield f"| --- | --- | --- | --- |{' --- |' if document.mark else ''}"
    for figure in document.figures:
        yield _figure_line(figure, ledger, document.mark)
    yield ""


def _figure_line(figure: Figure, ledger: Ledger, mark: str) -> str:
    cells = [_escape(figure.label), _escape(figure.scope), _value(figure.value, ledger), _escape(figure.note)]
    if mark:
        cells.append(f"**{_escape(mark)}**")
    return f"| {' | '.join(cells)} |"


def _chapters(document: Document, ledger: Ledger) -> Iterator[str]:
    for section in document.sections:
        yield f"## {_escape(section.title)}"
        yield ""
        if section.lead:
            yield _escape(section.lead)
            yield ""
        for block in section.blocks:
            yield from _block(block, ledger)


def _block(block: Block, ledger: Ledger) -> Iterator[str]:
    match block:
        case Table():
            yield from _table(block, ledger)
        case Facts():
            yield f"### {_escape(block.caption)}"
            yield ""
            yield from (f"- {_escape(name)}: {_cell(content, ledger)}" for name, content in block.items)
        case Findings():
            yield f"### {_escape(block.caption)}"
            yield ""
            for verdict in block.verdicts:
                yield from _finding(verdict, ledger)
            if not block.verdicts:
                yield f"{DASH} no check was made"
        case Chart():
            if not block.missing:
                return
            yield f"{DASH} No picture of {block.name}: {_escape(block.missing)}."
        case Code():
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
            yield f"### {_escape(block.title)}"
            yield ""
            yield f"{fence}{block.language}\n{_printable(block.text)}\n{fence}"
        case Text():
            yield f"{DASH} {_escape(block.text)}" if block.is_missing else _escape(block.text)
    yield ""


def _table(table: Table, ledger: Ledger) -> Iterator[str]:
    mark = f" · {_escape(table.mark)}" if table.mark else ""
    if table.is_folded:
        yield f"<details><summary>{_escape(table.caption)}: the numbers{mark}</summary>"
    else:
        yield f"### {_escape(table.caption)}{mark}"
    yield ""
    for group in table.groups:
        if group.title:
            note = f": {_escape(group.note)}" if group.note else ""
            yield f"**{_escape(group.title)}**{note}"
            yield ""
        yield f"| {' | '.join(_escape(column.title) for column in table.columns)} |"
        yield f"| {' | '.join('---:' if column.is_numeric else '---' for column in table.columns)} |"
        for row in group.rows:
            yield f"| {' | '.join(_cell(content, ledger) for content in row.cells)} |"
        yield ""
    if table.is_folded:
        yield "</details>"
        yield ""
    yield from (f"- {_escape(note)}" for note in table.notes)


def _finding(verdict: Verdict, ledger: Ledger) -> Iterator[str]:
    node = "" if verdict.node == "local" else f" on {_escape(verdict.node)}"
    check = _escape(verdict.check.replace("_", " "))
    yield f"- **{verdict.outcome}** · {check}{node}: {_escape(verdict.observation)}"
    if verdict.why:
        yield f"  - why it matters: {_escape(verdict.why)}"
    if verdict.remedy:
        yield f"  - what to do: {_escape(verdict.remedy)}"
    for name, evidence in verdict.evidence.items():
        cited = finding_value(verdict, name, evidence)
        yield f"  - {_escape(name.replace('_', ' '))}: {_value(cited, ledger)}"


def _cell(content: Cell, ledger: Ledger) -> str:
    return _escape(content) if isinstance(content, str) else _value(content, ledger)


def _value(cited: Cited, ledger: Ledger) -> str:
    tag = kind_tag(cited.evidence)
    label = f" ({tag})" if tag else ""
    return f"{_escape(value_text(cited))}{label}[^{ledger.number(cited)}]"


def _notes(ledger: Ledger) -> Iterator[str]:
    yield "## Evidence"
    yield ""
    yield (
        "A number without a word beside it was measured in this run, or is stated by its owner; all others say what "
        "they are. A calculation is trusted as far as the weakest of its inputs."
    )
    yield ""
    for entry in ledger.entries():
        yield f"[^{entry.number}]: {_origin(entry)}"
        yield ""


def _origin(entry: Entry) -> str:
    inputs = "; ".join(f"{_escape(fact.term)} = {_escape(fact.text)}" for fact in entry.inputs)
    return f"{_escape(entry.origin)}{f'. From: {inputs}' if inputs else ''}"


def _escape(text: str) -> str:
    """Text that renders as itself, on one line: line breaks become ``<br>``."""
    return "<br>".join(_SPECIAL.sub(r"\\\1", _printable(line)) for line in text.strip().split("\n"))


def _printable(text: str) -> str:
    return "".join(c if c == "\n" or c.isprintable() else " " for c in text)
