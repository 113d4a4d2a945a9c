"""One finding of a check: pass, warn, fail or inconclusive, with what was seen, why it matters and the remedy.

Preflight, verification, doctor and audit share it. Read :class:`Verdict`, then :func:`overall`.

Does not do: deciding; each check decides for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from freehold.evidence import Evidence
from freehold.records.base import record

__all__ = ["Outcome", "Verdict", "overall"]


class Outcome(StrEnum):
    """What a check found."""

    PASS = "pass"
    WARN = "warn"
    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"


@record
class Verdict:
    """One check's finding.

    Args:
        check: Name of the check, a short slug such as ``memory_contract``.
        outcome: pass, warn, fail or inconclusive.
        observation: What was seen, with numbers and units.
        why: Why it matters; may be empty for a pass.
        remedy: What to do; may be empty for a pass.
        node: Which machine it was seen on.
        evidence: The numbers behind it, by name.
    """

    check: str
    outcome: Outcome
    observation: str
    why: str = ""
    remedy: str = ""
    node: str = "local"
    evidence: Mapping[str, Evidence] = field(default_factory=dict)


def overall(verdicts: Iterable[Verdict]) -> Outcome:
    """The worst outcome; an empty set is inconclusive, never a pass."""
    order = list(Outcome)
    return max((v.outcome for v in verdicts), key=order.index, default=Outcome.INCONCLUSIVE)
