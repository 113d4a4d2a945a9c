"""One function per stage: takes what earlier stages left, calls the stage's library function, saves its record.

Every function takes a :class:`Scene` first. Nothing is kept in memory that is not also in the run folder, so that a
stage can be run again from there.

Does not do: the order of stages (``journey/run.py``) or any stage's work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from freehold.client.api import Endpoint
from freehold.engines.interface import Dialect, Engine
from freehold.errors import PreflightError, VerificationError
from freehold.evidence import Evidence
from freehold.journey.course import StageNote, staged
from freehold.progress import Listener
from freehold.records.bench import BenchResult
from freehold.records.deployment import Deployment
from freehold.records.folder import RunFolder
from freehold.records.inventory import Inventory
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import Plan
from freehold.records.preflight import PreflightReport
from freehold.records.recipe import BenchRequest, Recipe
from freehold.records.verdict import Outcome
from freehold.records.verification import Verification
from freehold.secret import Secret
from freehold.units import format_memory
from freehold.world import World

__all__ = [
    "Choices",
    "ModelOnDisk",
    "Scene",
    "endpoint_of",
    "find_model",
    "look_at_machine",
    "probe_machine",
    "read_bench",
    "read_deployment",
    "read_model",
    "read_plan",
    "read_preflight",
    "read_verification",
    "save_recipe",
    "write_pages",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the user chose on the command line.

    Args:
        cache: Folder for downloaded models and hashes.
        command: The command line, for the records.
        keep: Leave the server running at the end.
        is_unverified: Measure speed even if verification fails; every rendering is then marked.
        ready_timeout_s: How long the engine may take to answer its first completion.
        api_key: Key for the server.
        seed: Seed of the prompts' nonces.
    """

    cache: Path
    command: str
    keep: bool = False
    is_unverified: bool = False
    ready_timeout_s: float = 900.0
    api_key: Secret | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where a journey takes place."""

    folder: RunFolder
    world: World
    listener: Listener
    choices: Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOnDisk:
    """A checkpoint that is here: its files, in shard order, and its inventory with content hashes."""

    files: tuple[Path, ...]
    inventory: Inventory


def save_recipe(scene: Scene, recipe: Recipe) -> None:
    """Write the recipe as it was resolved, as YAML a person can run again."""
    from freehold.recipes.read import dump_recipe

    scene.folder.write("recipe.yaml", dump_recipe(recipe).encode())


def read_model(scene: Scene, recipe: Recipe, note: StageNote) -> ModelOnDisk:
    """Get the checkpoint here, read its headers, hash its contents."""
    from freehold.models.hashing import hash_checkpoint
    from freehold.models.inventory import read_inventory
    from freehold.models.source import fetch_model

    choices = scene.choices
    listener = staged(scene.listener, "model")
    fetched = fetch_model(recipe.model, cache=choices.cache, world=scene.world, listener=listener)
    inventory = hash_checkpoint(
        read_inventory(fetched.files[0], source=fetched.source),
        fetched.folder,
        listener=listener,
        cache_path=choices.cache / "models" / "hashes.json",
    )
    inventory = replace(inventory, notes=(*inventory.notes, *fetched.notes))
    scene.folder.save(inventory)
    note.saved = Inventory
    note.summary = (
        f"{inventory.num_tensors:,} tensors, {format_memory(inventory.tensor_bytes)}, "
        f"sha256 {(inventory.checkpoint_sha256 or '')[:12]}"
    )
    return ModelOnDisk(files=fetched.files, inventory=inventory)


def find_model(scene: Scene, recipe: Recipe, inventory: Inventory, *, stage: str) -> ModelOnDisk:
    """The files of a checkpoint that was read before, fetched again if they are gone; ``stage`` is what needs them.

    Raises:
        CheckpointError: They are not the ones that were read.
    """
    from freehold.models.source import fetch_model

    fetched = fetch_model(
        recipe.model,
        cache=scene.choices.cache,
        world=scene.world,
        listener=staged(scene.listener, stage),
        sha256=inventory.checkpoint_sha256,
    )
    return ModelOnDisk(files=fetched.files, inventory=inventory)


def probe_machine(scene: Scene, inventory: Inventory) -> None:
    """Find out what this machine is and how it is now, and save both."""
    from freehold.hardware.probe import probe_facts

    scene.folder.save(probe_facts(scene.world))
    scene.folder.save(look_at_machine(scene, inventory))


def look_at_machine(scene: Scene, inventory: Inventory) -> NodeState:
    """How this machine is now."""
    from freehold.hardware.probe import probe_state

    return probe_state(
        scene.world,
        folder=scene.folder.path,
        working_set_bytes=inventory.tensor_bytes,
        facts=scene.folder.load(NodeFacts),
    )


def read_plan(scene: Scene, recipe: Recipe, inventory: Inventory, engine: Engine, note: StageNote) -> Plan:
    """Decide from what is saved whether it fits and how fast it can be at most.

    Raises:
        PlanError: It does not fit; the plan that says so is saved.
    """
    from freehold.plan.estimate import plan, refuse

    folder = scene.folder
    record = plan(
        recipe,
        inventory,
        folder.load(NodeFacts),
        folder.load(NodeState),
        memory_constants=engine.memory_terms(),
        made_from={RunFolder.file_name(cls): folder.sha256(cls) for cls in (Inventory, NodeFacts, NodeState)},
    )
    folder.save(record)
    note.saved = Plan
    refuse(record)
    verdict = "fits" if record.fits else "it cannot be told whether it fits"
    note.summary = (
        f"{verdict}: needs {record.contract.contract_free_bytes.text} of {record.free_memory_bytes.text} free; "
        f"decode ceiling {record.decode_ceiling_tok_per_s.text}"
    )
    return record


def read_preflight(
    scene: Scene,
    recipe: Recipe,
    model: ModelOnDisk,
    plan: Plan,
    engine: Engine,
    note: StageNote,
    *,
    state: NodeState | None = None,
) -> PreflightReport:
    """Check the machine before anything is started; ``state`` is how it is now, as saved if None.

    Raises:
        PreflightError: A check failed; all findings are in the saved report.
    """
    from freehold.preflight.run import run_preflight

    folder = scene.folder
    report = run_preflight(
        recipe,
        plan,
        folder.load(NodeFacts),
        state or folder.load(NodeState),
        engine,
        scene.world,
        cache=scene.choices.cache,
        run_folder=folder.path,
        model_files=model.files,
        inventory=model.inventory,
        made_from={RunFolder.file_name(Plan): folder.sha256(Plan)},
    )
    folder.save(report)
    note.saved = PreflightReport
    bad = [v for v in report.verdicts if v.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
    if report.outcome is Outcome.FAIL or not report.verdicts:
        failed = [v for v in bad if v.outcome is Outcome.FAIL]
        raise PreflightError(
            f"preflight says no: {len(failed)} of {len(report.verdicts)} checks failed",
            why="; ".join(f"{v.check}: {v.observation}" for v in failed) or "no check ran",
            fix="; ".join(v.remedy for v in failed if v.remedy) or "see preflight.json in the run folder",
            facts={"failed": [v.check for v in failed]},
        )
    warned = [v.check for v in report.verdicts if v.outcome is not Outcome.PASS]
    note.summary = f"{len(report.verdicts)} checks, none failed" + (f"; look at {', '.join(warned)}" if warned else "")
    return report


def read_deployment(
    scene: Scene, recipe: Recipe, model: ModelOnDisk, plan: Plan, engine: Engine, note: StageNote
) -> Deployment:
    """Start the engine and wait until it has really completed a completion."""
    from freehold.launch.start import launch

    folder = scene.folder
    deployment = launch(
        recipe,
        engine,
        model_files=model.files,
        plan=plan,
        folder=folder,
        world=scene.world,
        listener=staged(scene.listener, "launch"),
        api_key=scene.choices.api_key,
        made_from={RunFolder.file_name(PreflightReport): folder.sha256(PreflightReport)},
        timeout_s=scene.choices.ready_timeout_s,
        keep=scene.choices.keep,
    )
    folder.save(deployment)
    note.saved = Deployment
    note.summary = (
        f"{deployment.engine} {deployment.engine_version or ''} answered after {deployment.ready_s.text}; "
        f"{deployment.memory_actual_bytes.text} resident"
    )
    return deployment


def read_verification(
    scene: Scene,
    deployment: Deployment,
    dialect: Dialect,
    note: StageNote,
    *,
    reference: str | None,
    inventory: Inventory | None,
) -> Verification:
    """Check that the answers are those of the checkpoint.

    Raises:
        VerificationError: They are not, and the user did not ask for unverified figures.
    """
    from freehold.verify.reference import find_reference, open_reference
    from freehold.verify.run import verify

    folder = scene.folder
    made_from = {RunFolder.file_name(Deployment): folder.sha256(Deployment)}
    if inventory is not None:
        made_from[RunFolder.file_name(Inventory)] = folder.sha256(Inventory)
    if reference is None and inventory is not None and inventory.checkpoint_sha256 is not None:
        reference = find_reference(inventory.checkpoint_sha256)
    record = verify(
        endpoint_of(deployment, scene.choices.api_key),
        dialect,
        scene.world,
        checkpoint_sha256=inventory.checkpoint_sha256 if inventory else None,
        reference=open_reference(reference) if reference else None,
        architecture=inventory.architecture if inventory else None,
        made_from=made_from,
        listener=staged(scene.listener, "verify"),
    )
    folder.save(record)
    note.saved = Verification
    failed = [v for v in record.verdicts if v.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
    if not record.passed and not scene.choices.is_unverified:
        raise VerificationError(
            f"verification failed: {', '.join(v.check for v in failed) or record.outcome}",
            why="; ".join(v.observation for v in failed[:3]) or "no check passed",
            fix=next((v.remedy for v in failed if v.remedy), "compare the checkpoint and the engine's log")
            + "; no speed was measured (`--unverified` measures it anyway and marks every figure)",
            facts={"failed": [v.check for v in failed]},
        )
    state = "passed" if record.passed else f"FAILED ({', '.join(v.check for v in failed)}); going on unverified"
    note.summary = f"{state}: {len(record.verdicts)} checks, {record.scope}"
    return record


def read_bench(
    scene: Scene,
    deployment: Deployment,
    dialect: Dialect,
    note: StageNote,
    *,
    request: BenchRequest,
    plan: Plan | None,
    verification: Verification | None,
) -> BenchResult:
    """Measure what a client receives."""
    from freehold.bench.run import bench

    folder = scene.folder
    made_from = {RunFolder.file_name(Deployment): folder.sha256(Deployment)}
    if verification is not None:
        made_from[RunFolder.file_name(Verification)] = folder.sha256(Verification)
    if plan is not None:
        made_from[RunFolder.file_name(Plan)] = folder.sha256(Plan)
        ceiling = plan.decode_ceiling_tok_per_s
    else:
        ceiling = Evidence.not_measured("no plan was made for a server that was already running", "tok/s")
    record = bench(
        endpoint_of(deployment, scene.choices.api_key),
        dialect,
        scene.world,
        request,
        made_from=made_from,
        ceiling=ceiling,
        verification=verification,
        unverified=scene.choices.is_unverified,
        samples_path=folder.samples / "bench.jsonl",
        listener=staged(scene.listener, "bench"),
        command=scene.choices.command,
        seed=scene.choices.seed,
    )
    folder.save(record)
    note.saved = BenchResult
    note.is_cut_short = record.interrupted
    speeds = [
        f"{arm.prompt_class} {arm.metrics['decode_tok_per_s'].mean.text}"
        for arm in record.arms
        if arm.concurrency == 1 and "decode_tok_per_s" in arm.metrics
    ]
    note.summary = f"decode, one stream: {', '.join(speeds)}" if speeds else "nothing was measured"
    return record


def write_pages(scene: Scene, note: StageNote) -> None:
    """Render the report from what is saved."""
    from freehold.report.write import write_report

    files = write_report(scene.folder)
    note.file = files.html.name
    note.summary = str(files.html)


def endpoint_of(deployment: Deployment, api_key: Secret | None) -> Endpoint:
    """The address of a deployment with the key to use."""
    return Endpoint(base_url=deployment.base_url, model=deployment.model, api_key=api_key)
