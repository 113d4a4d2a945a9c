"""Everything a run folder holds, read once: records, hashes, raw samples, and what does not match its manifest.

A stage that has not run is no error: it stays None, and :meth:`RunRecords.why_missing` says why. A record that cannot
be read is one. Read :func:`load_run`.

Does not do: deciding what the records mean (``content.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from freehold.recipes.read import read_recipe
from freehold.records.base import sha256_hex
from freehold.records.bench import BenchResult
from freehold.records.deployment import Deployment
from freehold.records.folder import RunFolder
from freehold.records.inventory import Inventory
from freehold.records.journey import Journey, StageResult, StageStatus
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import Plan
from freehold.records.preflight import PreflightReport
from freehold.records.recipe import Recipe
from freehold.records.verdict import Outcome
from freehold.records.verification import Verification
from freehold.report.samples import Sample, read_samples

__all__ = ["RECIPE_FILE", "REPORT_FILES", "RunRecords", "Stage", "load_run"]

RECIPE_FILE = "recipe.yaml"
REPORT_FILES = ("report.html", "report.md")


class Stage(StrEnum):
    """The stages whose records a run folder may hold, in the order in which they run."""

    INVENTORY = "inventory"
    NODE = "node"
    NODE_STATE = "node_state"
    PLAN = "plan"
    PREFLIGHT = "preflight"
    DEPLOYMENT = "deployment"
    VERIFICATION = "verification"
    BENCH = "bench"

    @property
    def file(self) -> str:
        """Base name of its record."""
        return f"{self.value}.json"


_JOURNEY_NAMES = {
    Stage.INVENTORY: ("model",),
    Stage.PLAN: ("plan",),
    Stage.PREFLIGHT: ("preflight",),
    Stage.DEPLOYMENT: ("launch", "attach"),
    Stage.VERIFICATION: ("verify",),
    Stage.BENCH: ("bench",),
}
_OF_OUR_SERVER = (Stage.INVENTORY, Stage.NODE, Stage.NODE_STATE, Stage.PLAN, Stage.PREFLIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """A run as it was saved; None where a stage has not run.

    Args:
        folder: Where it was read from; only the terminal shows it, so that a report says the same wherever it lies.
        recipe: What was asked for.
        recipe_text: The same as it stands in the file.
        inventory: What the checkpoint is made of.
        node: What the machine is.
        node_state: How it was before the start.
        plan: What was predicted.
        preflight: Whether it might start.
        deployment: What was running.
        verification: Whether it answered correctly.
        bench: How fast it was.
        journey: Which stages ran, if a whole journey did.
        samples: Every request of the benchmark, in the order of its file.
        samples_missing: Why there are no samples; empty when there are.
        sha256_by_file: Hash of each record and raw file that was read, by its name in the folder.
        file_problems: What does not match the manifest, one sentence each.
    """

    folder: Path
    recipe: Recipe | None = None
    recipe_text: str | None = None
    inventory: Inventory | None = None
    node: NodeFacts | None = None
    node_state: NodeState | None = None
    plan: Plan | None = None
    preflight: PreflightReport | None = None
    deployment: Deployment | None = None
    verification: Verification | None = None
    bench: BenchResult | None = None
    journey: Journey | None = None
    samples: tuple[Sample, ...] = ()
    samples_missing: str = ""
    sha256_by_file: Mapping[str, str] = field(default_factory=dict)
    file_problems: tuple[str, ...] = ()

    @property
    def is_attached(self) -> bool:
        """Whether the server was somebody else's."""
        return self.deployment is not None and self.deployment.origin == "attached"

    def stage_result(self, stage: Stage) -> StageResult | None:
        """What the journey says about a stage, None where no journey is recorded or it does not know the stage."""
        if self.journey is None:
            return None
        names = _JOURNEY_NAMES.get(stage, ())
        return next((result for result in self.journey.stages if result.stage in names), None)

    def why_missing(self, stage: Stage) -> str:
        """Why a stage has no record, as a clause after ``not measured:``; empty when it has one.

        What the other records say comes first: it names the cause, where the journey only names the stage before.
        """
        if getattr(self, stage.value) is not None:
            return ""
        if self.is_attached and stage in _OF_OUR_SERVER:
            return "attached to a server that freehold did not start"
        blocker = self._blocker(stage)
        if blocker:
            return blocker
        told = self.stage_result(stage)
        if told is not None and told.reason:
            return told.reason
        return f"the run folder holds no {stage.file}"

    def missing_text(self, stage: Stage, name: str) -> str:
        """A sentence that stands where a stage's result should be: ``Preflight not run: no server was running.``"""
        told = self.stage_result(stage)
        words = {StageStatus.FAILED: "failed", StageStatus.INTERRUPTED: "interrupted"}
        how = words.get(told.status, "not run") if told is not None else "not run"
        return f"{name} {how}: {self.why_missing(stage)}."

    def _blocker(self, stage: Stage) -> str:
        if stage not in (Stage.PREFLIGHT, Stage.DEPLOYMENT, Stage.VERIFICATION, Stage.BENCH):
            return ""
        if self.deployment is None and self.plan is not None and self.plan.fits is False:
            return "the plan does not fit this machine's free memory"
        if stage is Stage.PREFLIGHT:
            return ""
        if self.deployment is None and self.preflight is not None and self.preflight.outcome is Outcome.FAIL:
            return "a preflight check said no, so nothing was started"
        if stage is Stage.DEPLOYMENT:
            return ""
        if self.deployment is None:
            return "no server was running"
        if stage is Stage.BENCH and self.verification is not None and not self.verification.passed:
            failed = self.verification.outcome is Outcome.FAIL
            return f"the verification {'failed' if failed else 'was inconclusive'}, so no speed was measured"
        return ""


def load_run(folder: RunFolder) -> RunRecords:
    """Read a run folder whole.

    Args:
        folder: The run.

    Raises:
        InputError: A record, the recipe or the raw samples cannot be read.
        PrerequisiteError: The disk does not give a file.
    """
    hashes: dict[str, str] = {}
    for name in (RECIPE_FILE, *(stage.file for stage in Stage)):
        path = folder.path / name
        if path.is_file():
            hashes[name] = sha256_hex(path.read_bytes())
    bench = folder.find(BenchResult)
    samples: tuple[Sample, ...] = ()
    samples_missing = "no benchmark was run"
    if bench is not None:
        found = read_samples(folder.samples, bench.samples)
        samples, samples_missing = found.rows, found.missing
        hashes |= {f"samples/{name}": sha for name, sha in found.sha256_by_file.items()}
    recipe_path = folder.path / RECIPE_FILE
    recipe = read_recipe(recipe_path) if recipe_path.is_file() else None
    return RunRecords(
        folder=folder.path,
        recipe=recipe,
        recipe_text=None if recipe is None else recipe_path.read_text(encoding="utf-8-sig"),
        inventory=folder.find(Inventory),
        node=folder.find(NodeFacts),
        node_state=folder.find(NodeState),
        plan=folder.find(Plan),
        preflight=folder.find(PreflightReport),
        deployment=folder.find(Deployment),
        verification=folder.find(Verification),
        bench=bench,
        journey=folder.find(Journey),
        samples=samples,
        samples_missing=samples_missing,
        sha256_by_file=hashes,
        file_problems=_file_problems(folder),
    )


def _file_problems(folder: RunFolder) -> tuple[str, ...]:
    # Logs of a server that still runs grow, and the reports themselves are about to be written again.
    skipped = (*(f"{name} " for name in REPORT_FILES), "logs/")
    return tuple(p for p in folder.check_manifest() if not p.startswith(skipped))
