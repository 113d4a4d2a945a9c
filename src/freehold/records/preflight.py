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
    """All verdicts and the worst of them; an empty set is inconclusive."""

    schema: Literal["freehold.preflight/1"] = "freehold.preflight/1"
    made_from: Mapping[str, str]
    verdicts: tuple[Verdict, ...]
    outcome: Outcome
