"""How a whole journey ended: which stages ran, what they left, and the headline figures.

Does not do: running stages (``journey.py`` of the package).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Literal

from freehold.evidence import Evidence
from freehold.records.base import record

__all__ = ["Journey", "StageResult", "StageStatus"]


class StageStatus(StrEnum):
    """What became of a stage."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


@record
class StageResult:
    """One stage of a journey.

    Args:
        stage: ``model plan preflight launch verify bench report stop``.
        status: What became of it.
        reason: Why, where it did not finish; the first sentence of its error.
        seconds: How long it took; None where it did not run.
        record: File name of its record in the run folder, None where it leaves none.
        sha256: Hash of that record.
    """

    stage: str
    status: StageStatus
    reason: str = ""
    seconds: float | None = None
    record: str | None = None
    sha256: str | None = None


@record
class Journey:
    """One ``freehold up``.

    Args:
        name: Name of the recipe, or the address for an attached server.
        version: Version of freehold.
        command: The command line that was given.
        started_at: UTC ISO time.
        stages: Every stage, in order.
        is_serving: Whether the server was left running.
        base_url: Address of the server while it is running, else None.
        headline: The figures a person looks for first, by name.
        where: Path of the run folder on the machine that made it.
    """

    schema: Literal["freehold.journey/1"] = "freehold.journey/1"
    name: str
    version: str
    command: str
    started_at: str
    stages: tuple[StageResult, ...]
    is_serving: bool
    base_url: str | None
    headline: Mapping[str, Evidence] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
