"""Numbers the evidence of a document, so that print and Markdown can point at it as a page points at its footnotes.

Values with the same origin share an entry: the ten percentiles of one arm were all measured in one go. Read
:func:`make_ledger`.

Does not do: markup.
"""

from __future__ import annotations

from dataclasses import dataclass

from freehold.report.document import Cited, Document, cited_in
from freehold.report.wording import Fact, explain, origin_text, value_text

__all__ = ["Entry", "Ledger", "make_ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One origin.

    Args:
        number: Its number in the document, from 1.
        origin: Where it comes from, in one line.
        inputs: What went into it, for a calculation.
        values: Name and text of each value that has this origin.
    """

    number: int
    origin: str
    inputs: tuple[Fact, ...]
    values: tuple[tuple[str, str], ...]


class Ledger:
    """All origins of a document in the order in which they are first needed."""

    def __init__(self) -> None:
        self._number_by_origin: dict[tuple[str, tuple[Fact, ...]], int] = {}
        self._values: list[dict[str, str]] = []

    def number(self, cited: Cited) -> int:
        """The number of a value's entry; makes one where there is none yet."""
        inputs = tuple(fact for fact in explain(cited) if fact.depth > 0)
        key = (origin_text(cited.evidence), inputs)
        number = self._number_by_origin.setdefault(key, len(self._number_by_origin) + 1)
        if number > len(self._values):
            self._values.append({})
        self._values[number - 1].setdefault(cited.name, value_text(cited))
        return number

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, in order."""
        return tuple(
            Entry(number=number, origin=origin, inputs=inputs, values=tuple(self._values[number - 1].items()))
            for (origin, inputs), number in self._number_by_origin.items()
        )


def make_ledger(document: Document) -> Ledger:
    """Number every value of a document."""
    ledger = Ledger()
    for cited in cited_in(document):
        ledger.number(cited)
    return ledger
