"""The verdict that opens every rendering, and the reservations that the rest has to repeat.

Read :func:`judge`. Speed without a passing verification of the same run is UNVERIFIED, whatever the reason.

Does not do: verifying (``verify/``); it reads the records and compares their hashes.
"""

from __future__ import annotations

from freehold.records.journey import StageStatus
from freehold.records.verdict import Outcome
from freehold.report.document import Headline, Mark
from freehold.report.load import RunRecords, Stage
from freehold.report.provenance import broken_links
from freehold.report.wording import plural

__all__ = ["INTERRUPTED", "SELF_CONSISTENCY", "UNVERIFIED", "document_mark", "judge", "speed_mark"]

UNVERIFIED = "UNVERIFIED"
SELF_CONSISTENCY = "self-consistency only"
INTERRUPTED = "interrupted"


def judge(run: RunRecords) -> Headline:
    """The verdict on a run, in the words that come first."""
    headline = _unverified(run) or _verified(run) or _ended_early(run)
    return Headline(outcome=headline.outcome, word=headline.word, sentence=headline.sentence, marks=tuple(_marks(run)))


def document_mark(run: RunRecords) -> str:
    """The reservation that every figure and table repeats: ``UNVERIFIED``, ``self-consistency only`` or nothing."""
    if _unverified(run) is not None:
        return UNVERIFIED
    if run.verification is not None and run.verification.passed and run.verification.scope != "reference":
        return SELF_CONSISTENCY
    return ""


def speed_mark(run: RunRecords) -> str:
    """The same for tables of speed, which also say when the benchmark was cut short."""
    marks = [document_mark(run), INTERRUPTED if run.bench is not None and run.bench.interrupted else ""]
    return ", ".join(mark for mark in marks if mark)


def _unverified(run: RunRecords) -> Headline | None:
    """The headline of a run whose speed does not stand on a passing verification; None for any other."""
    if run.bench is None:
        return None
    verification = run.verification
    if verification is None:
        claim = " It claims one, but its record is not in the run folder." if run.bench.verified else ""
        return Headline(
            outcome=Outcome.INCONCLUSIVE,
            word=UNVERIFIED,
            sentence=f"Speed was measured without a verification of the answers.{claim}",
        )
    if not verification.passed:
        how = "failed" if verification.outcome is Outcome.FAIL else "was inconclusive"
        return Headline(
            outcome=Outcome.FAIL,
            word=UNVERIFIED,
            sentence=f"The verification {how}, and speed was measured all the same. "
            "These are not the figures of a server that answers as its checkpoint should.",
        )
    if not run.bench.verified:
        return Headline(
            outcome=Outcome.INCONCLUSIVE,
            word=UNVERIFIED,
            sentence="Speed was measured with `--unverified`; no verification stands behind these figures.",
        )
    recorded = {name: sha for name, sha in run.bench.made_from.items() if "verif" in name}
    if recorded and run.sha256_by_file.get(Stage.VERIFICATION.file) not in recorded.values():
        return Headline(
            outcome=Outcome.INCONCLUSIVE,
            word=UNVERIFIED,
            sentence="Speed was measured after another verification than the one in this run folder.",
        )
    return None


def _verified(run: RunRecords) -> Headline | None:
    verification = run.verification
    if verification is None:
        return None
    speed = "" if run.bench is not None else f" Speed was not measured: {run.why_missing(Stage.BENCH)}."
    if not verification.passed:
        failed = [v for v in verification.verdicts if v.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
        checks = ", ".join(v.check.replace("_", " ") for v in failed) or "no check gave a result"
        if verification.outcome is Outcome.FAIL:
            word, outcome = "verification failed", Outcome.FAIL
        else:
            word, outcome = "verification inconclusive", Outcome.INCONCLUSIVE
        return Headline(
            outcome=outcome, word=word, sentence=f"No speed was measured. What stands against it: {checks}."
        )
    if verification.scope == "reference":
        engine = f" ({verification.reference.engine})" if verification.reference is not None else ""
        return Headline(
            outcome=Outcome.PASS,
            word="verified",
            sentence=f"The answers agree with an independent engine's reference{engine}.{speed}",
        )
    return Headline(
        outcome=Outcome.WARN,
        word=SELF_CONSISTENCY,
        sentence="The server agrees with itself; no independent reference says that its answers are those of the "
        f"checkpoint.{speed}",
    )


def _ended_early(run: RunRecords) -> Headline:
    """The headline of a run in which nothing was verified and nothing measured."""
    if run.plan is not None and run.plan.fits is False and run.deployment is None:
        return Headline(
            outcome=Outcome.FAIL,
            word="does not fit",
            sentence=f"Nothing was started: {run.plan.contract.contract_free_bytes.text} must be free, "
            f"{run.plan.free_memory_bytes.text} are.",
        )
    if run.preflight is not None and run.preflight.outcome is Outcome.FAIL and run.deployment is None:
        failed = sum(v.outcome is Outcome.FAIL for v in run.preflight.verdicts)
        return Headline(
            outcome=Outcome.FAIL,
            word="not started",
            sentence=f"{plural(failed, 'preflight check')} said no, so nothing was started.",
        )
    stage = Stage.DEPLOYMENT if run.deployment is None else Stage.VERIFICATION
    what = "No server got ready" if run.deployment is None else "The answers were not verified"
    return Headline(outcome=Outcome.INCONCLUSIVE, word="not verified", sentence=f"{what}: {run.why_missing(stage)}.")


def _marks(run: RunRecords) -> list[Mark]:
    marks = []
    if run.bench is not None and run.bench.interrupted:
        counted = sum(arm.requests for arm in run.bench.arms)
        marks.append(
            Mark(word=INTERRUPTED, sentence=f"The benchmark was cut short after {plural(counted, 'counted request')}.")
        )
    elif run.journey is not None:
        cut = [
            r.stage
            for r in run.journey.stages
            if r.status is StageStatus.INTERRUPTED and r.stage not in ("stop", "report")
        ]
        if cut:
            marks.append(Mark(word=INTERRUPTED, sentence=f"The run was cut short during {', '.join(cut)}."))
    links = broken_links(run)
    if links:
        marks.append(Mark(word="chain broken", sentence=f"{'; '.join(links)}.", outcome=Outcome.FAIL))
    if run.file_problems:
        marks.append(Mark(word="files changed", sentence=f"{'; '.join(run.file_problems)}.", outcome=Outcome.FAIL))
    if run.is_attached:
        sentence = "The server is somebody else's: nothing was planned, checked or started by freehold."
        marks.append(Mark(word="attached", sentence=sentence))
    if run.verification is not None and run.verification.passed:
        verdicts = run.verification.verdicts
        still_open = sum(v.outcome is Outcome.INCONCLUSIVE for v in verdicts)
        warned = sum(v.outcome is Outcome.WARN for v in verdicts)
        if still_open:
            sentence = f"{plural(still_open, 'verification check')} came to no conclusion."
            marks.append(Mark(word="open checks", sentence=sentence))
        if warned:
            sentence = f"{plural(warned, 'verification check')} passed with a warning."
            marks.append(Mark(word="warnings", sentence=sentence))
    return marks
