"""Is there room for logs, samples and the report, and in the cache?

Does not do: room for a model that is not here yet; whoever fetches it checks that.
"""

from __future__ import annotations

from freehold.hardware.probe import free_disk
from freehold.preflight.question import Question, thresholds
from freehold.records.verdict import Outcome, Verdict
from freehold.units import format_disk
from freehold.world import utc_text

__all__ = ["check_disk"]


def check_disk(question: Question) -> Verdict:
    """Compare the free space of both folders' disks with what a run writes."""
    limits = thresholds()["disk"]
    date = utc_text(question.world.now())
    places = {"run folder": question.run_folder, "cache": question.cache}
    evidence = {name: free_disk(folder, date=date) for name, folder in places.items()}
    sizes = {name: e.number for name, e in evidence.items() if e.number is not None}
    why = "a run that cannot write its records is lost, however well it went"
    if len(sizes) < len(places):
        silent = [name for name in places if name not in sizes]
        return Verdict(
            check="disk",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"the disk of the {' and the '.join(silent)} does not say how much is free",
            why=why,
            remedy="choose folders on a local disk with `--run-dir` and `--cache`",
            evidence=evidence,
        )
    tightest = min(sizes, key=lambda name: sizes[name])
    free_bytes = sizes[tightest]
    outcome = (
        Outcome.FAIL
        if free_bytes < limits["need_bytes"]
        else Outcome.WARN
        if free_bytes < limits["comfortable_bytes"]
        else Outcome.PASS
    )
    shown = f"{format_disk(round(free_bytes))} free for the {tightest}"
    if outcome is Outcome.PASS:
        return Verdict(check="disk", outcome=outcome, observation=shown, evidence=evidence)
    wanted = limits["need_bytes"] if outcome is Outcome.FAIL else limits["comfortable_bytes"]
    return Verdict(
        check="disk",
        outcome=outcome,
        observation=f"{shown}, {format_disk(wanted)} wanted",
        why=why,
        remedy="free some space, or choose another disk with `--run-dir`",
        evidence=evidence,
    )
