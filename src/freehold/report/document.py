"""What a report consists of, before anybody decides how it looks: figures, tables, findings, charts and text.

A :class:`Document` is a value that each rendering walks through. Numbers never stand alone in it: a cell is plain
text or a :class:`Cited`, which is a name and the evidence behind it. Read :class:`Document` first.

Does not do: deciding what is said (``content.py``) or how it looks (``page.py``, ``markdown.py``, ``terminal.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict

__all__ = [
    "Block",
    "Cell",
    "Chart",
    "Cited",
    "Code",
    "Column",
    "Document",
    "Facts",
    "Figure",
    "Findings",
    "Headline",
    "Mark",
    "Row",
    "RowGroup",
    "Section",
    "Table",
    "Text",
    "cited_in",
    "finding_value",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """A named number or fact with its evidence.

    Args:
        name: What it is, complete enough to stand in a list of its own: ``decode speed, mean · code, 1 stream``.
        evidence: The value, or why there is none.
        shows_interval: Whether the confidence interval is printed beside the value.
    """

    name: str
    evidence: Evidence
    shows_interval: bool = False


Cell = Cited | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A reservation that every rendering has to repeat: one or two words, and the sentence that explains them."""

    word: str
    sentence: str
    outcome: Outcome = Outcome.WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The verdict, the first thing anybody reads.

    Args:
        outcome: How good the news is; every rendering shows it as a word too, never as a colour alone.
        word: The verdict in one or two words.
        sentence: What it rests on.
        marks: Reservations, the gravest first.
    """

    outcome: Outcome
    word: str
    sentence: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number worth a headline.

    Args:
        label: What it is: ``decode speed``.
        scope: For what: ``code · 1 stream``.
        value: The number.
        note: One short clause below it; may be empty.
    """

    label: str
    scope: str
    value: Cited
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table's column; numeric ones are set flush right, code (hashes, commands) in a fixed width."""

    title: str
    is_numeric: bool = False
    is_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table; the first cell names it."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Rows that belong together, under a title of their own; an empty title has no line."""

    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that can stand alone: its caption says what it holds and under which reservation.

    Args:
        slug: Anchor, unique in the document.
        caption: What the table holds.
        columns: Its columns; every row has as many cells.
        groups: Its rows.
        notes: Sentences below it.
        mark: The reservation that holds for every number in it; may be empty.
        is_folded: Whether a page may hide it until it is asked for (raw data).
    """

    slug: str
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[RowGroup, ...]
    notes: tuple[str, ...] = ()
    mark: str = ""
    is_folded: bool = False

    def __post_init__(self) -> None:
        for group in self.groups:
            for row in group.rows:
                if len(row.cells) != len(self.columns):
                    raise ValueError(f"{self.slug}: {len(row.cells)} cells under {len(self.columns)} columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values, one pair a line."""

    slug: str
    caption: str
    items: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The verdicts of one stage."""

    slug: str
    caption: str
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A place for a picture; what it shows is also in the document as a table.

    Args:
        name: Which picture: ``decode``, ``ttft`` or ``memory``.
        caption: What can be seen in it.
        alternative: The same in words, for those who cannot see it.
        missing: Why there is no picture; empty when there is one.
        mark: The reservation that holds for it; may be empty.
    """

    name: str
    caption: str
    alternative: str
    missing: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Text to copy, with a title; ``language`` is ``yaml``, ``sh`` or empty."""

    title: str
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One paragraph; ``is_missing`` says that it stands where a result should be."""

    text: str
    is_missing: bool = False


Block = Table | Facts | Findings | Chart | Code | Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A chapter; ``slug`` is its anchor."""

    slug: str
    title: str
    lead: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The whole report.

    Args:
        title: The run's name.
        subtitle: Model, engine, machine and date, each one clause.
        headline: The verdict.
        figures: Headline numbers.
        sections: The chapters, in reading order.
        mark: The reservation that every figure and table repeats; may be empty.
    """

    title: str
    subtitle: tuple[str, ...]
    headline: Headline
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    mark: str = field(default="")


def cited_in(document: Document) -> Iterator[Cited]:
    """Every number of a document in reading order."""
    for figure in document.figures:
        yield figure.value
    for section in document.sections:
        for block in section.blocks:
            yield from _cited_in_block(block)


def _cited_in_block(block: Block) -> Iterator[Cited]:
    if isinstance(block, Table):
        for group in block.groups:
            for row in group.rows:
                yield from (cell for cell in row.cells if isinstance(cell, Cited))
    elif isinstance(block, Facts):
        yield from (value for _, value in block.items if isinstance(value, Cited))
    elif isinstance(block, Findings):
        for verdict in block.verdicts:
            for name, evidence in verdict.evidence.items():
                yield finding_value(verdict, name, evidence)


def finding_value(verdict: Verdict, name: str, evidence: Evidence) -> Cited:
    """A number behind a finding, under a name that can stand alone."""
    words = name.replace("_", " ")
    return Cited(name=f"{words} · {verdict.check.replace('_', ' ')}, {verdict.node}", evidence=evidence)
