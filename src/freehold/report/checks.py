"""What is said about correctness and about the machine: every finding of verification and preflight.

Does not do: checking (``verify/``, ``preflight/``).
"""

from __future__ import annotations

from freehold.records.verdict import Outcome, Verdict
from freehold.report.document import Block, Cell, Facts, Findings, Section, Text
from freehold.report.load import RunRecords, Stage
from freehold.units import format_number

__all__ = ["preflight_section", "verification_section"]


def verification_section(run: RunRecords) -> Section:
    """The chapter on whether the server answers as its checkpoint should."""
    verification = run.verification
    if verification is None:
        blocks: tuple[Block, ...] = (Text(text=run.missing_text(Stage.VERIFICATION, "Verification"), is_missing=True),)
        lead = ""
    else:
        lead = _lead("check", verification.verdicts)
        blocks = (
            Facts(slug="verification-facts", caption="What the answers were held against", items=_origin(run)),
            Findings(slug="verification-findings", caption="Verification checks", verdicts=verification.verdicts),
        )
    return Section(slug="correctness", title="Correctness", lead=lead, blocks=blocks)


def _origin(run: RunRecords) -> tuple[tuple[str, Cell], ...]:
    verification = run.verification
    assert verification is not None
    items: list[tuple[str, Cell]] = [
        ("scope", "an independent engine's reference" if verification.scope == "reference" else verification.scope),
        ("checkpoint sha256", verification.checkpoint_sha256 or "— unknown: the weights of this server were not seen"),
    ]
    reference = verification.reference
    if reference is not None:
        items += [
            ("reference made by", reference.engine),
            ("with", reference.command),
            ("on", reference.date),
            ("for checkpoint", reference.checkpoint_sha256),
            ("reference sha256", reference.sha256),
        ]
    return tuple(items)


def preflight_section(run: RunRecords) -> Section:
    """The chapter on whether the machine was fit to start."""
    if run.preflight is None:
        blocks: tuple[Block, ...] = (Text(text=run.missing_text(Stage.PREFLIGHT, "Preflight"), is_missing=True),)
        lead = ""
    else:
        lead = _lead("check", run.preflight.verdicts)
        blocks = (Findings(slug="preflight-findings", caption="Preflight checks", verdicts=run.preflight.verdicts),)
    return Section(slug="preflight", title="Machine checks", lead=lead, blocks=blocks)


def _lead(noun: str, verdicts: tuple[Verdict, ...]) -> str:
    counts = {outcome: sum(v.outcome is outcome for v in verdicts) for outcome in Outcome}
    words = {
        Outcome.PASS: "passed",
        Outcome.WARN: "passed with a warning",
        Outcome.INCONCLUSIVE: "gave no answer",
        Outcome.FAIL: "failed",
    }
    parts = [f"{format_number(count, '')} {words[outcome]}" for outcome, count in counts.items() if count]
    total = f"{format_number(len(verdicts), '')} {noun}{'' if len(verdicts) == 1 else 's'}"
    return f"{total}: {', '.join(parts)}." if parts else f"No {noun} was made."
