"""May we start: every check's verdict.

Does not do: checking (``preflight/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from freehold.records.base import record
from freehold.records.verdict import Outcome, Verdict

__all__ = ["PreflightReport"]


@record
class PreflightReport:
    """All verdicts and the worst of them; an empty set is inconclusive.

    Args:
        made_from: sha256 of each record and file it was made from, by name.
        verdicts: Every check's finding.
        outcome: The worst of them.
    """

    schema: Literal["freehold.preflight/1"] = "freehold.preflight/1"
    made_from: Mapping[str, str]
    verdicts: tuple[Verdict, ...]
    outcome: Outcome
