"""Does it answer correctly: every check's verdict, bound to the checkpoint.

Does not do: checking (``verify/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from freehold.records.base import record
from freehold.records.verdict import Outcome, Verdict

__all__ = ["ReferenceOrigin", "Verification"]


@record
class ReferenceOrigin:
    """Where the reference log-probabilities come from.

    Args:
        sha256: Hash of the reference file.
        checkpoint_sha256: Checkpoint it belongs to.
        engine: Engine that made it, with version and precision.
        command: How it was made.
        date: When.
    """

    sha256: str
    checkpoint_sha256: str
    engine: str
    command: str
    date: str


@record
class Verification:
    """The gate before any speed.

    Args:
        checkpoint_sha256: The checkpoint that was verified; None for an attached server of unknown weights.
        scope: ``reference`` where answers were compared with an independent engine's, else
            ``self-consistency only``, which every headline repeats.
        reference: Origin of the reference, if there is one.
        verdicts: Every check.
        outcome: The worst of them.
        passed: Whether speed may be measured: no check failed, what can be asked of any server was answered, and
            where a known checkpoint has a reference, the comparison with it came to a conclusion. Other open checks
            are shown and do not block.
    """

    schema: Literal["freehold.verification/1"] = "freehold.verification/1"
    made_from: Mapping[str, str]
    checkpoint_sha256: str | None
    scope: Literal["reference", "self-consistency only"]
    reference: ReferenceOrigin | None = None
    verdicts: tuple[Verdict, ...]
    outcome: Outcome
    passed: bool
