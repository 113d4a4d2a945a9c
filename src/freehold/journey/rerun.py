"""Runs one stage again from a run folder: everything it needs is read from there.

The new record replaces the old one. What later stages made from the old one is set aside under ``superseded/``, so
that a run never shows figures beside a verification they were not made from. Read :func:`rerun_stage`.

Does not do: stopping a server it starts; ``freehold stop RUN`` does that.
"""

from __future__ import annotations

from collections.abc import Callable

from freehold.errors import InputError, PrerequisiteError
from freehold.journey import steps
from freehold.journey.course import Course
from freehold.journey.ending import JourneyOutcome, finish
from freehold.journey.run import ATTACHED_STAGES, RECIPE_STAGES
from freehold.journey.steps import Scene
from freehold.records.base import Record
from freehold.records.bench import BenchResult
from freehold.records.deployment import Deployment
from freehold.records.folder import RunFolder
from freehold.records.inventory import Inventory
from freehold.records.journey import Journey, StageResult, StageStatus
from freehold.records.plan import Plan
from freehold.records.preflight import PreflightReport
from freehold.records.recipe import BenchRequest, Recipe
from freehold.records.verification import Verification

__all__ = ["RERUNNABLE", "rerun_stage"]

_RECORDS: dict[str, type[Record]] = {
    "plan": Plan,
    "preflight": PreflightReport,
    "launch": Deployment,
    "verify": Verification,
    "bench": BenchResult,
}
RERUNNABLE = tuple(_RECORDS)
"""Stages that can be run again, in their order."""


def rerun_stage(
    scene: Scene, stage: str, *, request: BenchRequest | None = None, reference: str | None = None
) -> JourneyOutcome:
    """Run one stage again.

    Args:
        scene: The run folder, the world, who listens, and what the user chose.
        stage: One of :data:`RERUNNABLE`. ``plan`` works on what was probed then, ``preflight`` looks anew; ``launch``
            leaves its server running; ``verify`` and ``bench`` need one.
        request: For ``bench``, what to measure; None as before.
        reference: For ``verify``, what to compare with; None as before.

    Returns:
        The saved journey, this stage's result in it; its error is None when the stage finished.

    Raises:
        InputError: There is no such stage, the run lacks what it is made from, or a stage before the start was named
            while the run's server lives.
    """
    if stage not in _RECORDS:
        raise InputError(
            f"no stage {stage!r} that can be run again",
            why=f"these can: {', '.join(RERUNNABLE)}",
            fix="name one of them, or run the whole journey with `freehold up`",
        )
    folder = scene.folder
    before = folder.find(Journey)
    recipe = _recipe_of(folder)
    if recipe is None and stage in ("plan", "preflight", "launch"):
        raise InputError(
            f"{folder.path} has no {stage} to run again",
            why="its server was not started by freehold, so there is no recipe",
            fix="`freehold verify` and `freehold bench` can be run again",
        )
    if stage in ("plan", "preflight", "launch"):
        _refuse_beside_a_server(scene)
    later = RERUNNABLE[RERUNNABLE.index(stage) + 1 :]
    kept = tuple(r for r in before.stages if r.stage not in (stage, "stop")) if before else ()
    kept = tuple(_superseded(r, stage) if r.stage in later else r for r in kept)
    course = Course(
        RECIPE_STAGES if recipe is not None else ATTACHED_STAGES,
        folder=folder,
        world=scene.world,
        listener=scene.listener,
        before=kept,
    )
    work = _work(scene, course, stage, recipe, request=request, reference=reference)

    def stages() -> None:
        folder.set_aside([_RECORDS[name] for name in (stage, *later)], scene.world.now())
        work()

    name = recipe.name if recipe is not None else before.name if before is not None else folder.path.name
    is_serving = stage in ("verify", "bench") or (before is not None and before.is_serving)
    return finish(
        scene,
        course,
        name,
        stages,
        stops_server=lambda went_wrong: went_wrong if stage == "launch" else not is_serving and recipe is not None,
    )


def _refuse_beside_a_server(scene: Scene) -> None:
    from freehold.launch.status import living_pids

    alive = living_pids(scene.folder, scene.world)
    if alive:
        raise InputError(
            f"the server of {scene.folder.path} is running",
            why=f"its memory and port are taken by process {', '.join(map(str, alive))}, and its records would be lost",
            fix=f"end it first with `freehold stop {scene.folder.path}`",
        )


def _work(
    scene: Scene,
    course: Course,
    stage: str,
    recipe: Recipe | None,
    *,
    request: BenchRequest | None,
    reference: str | None,
) -> Callable[[], None]:
    from freehold.engines.registry import dialect_named
    from freehold.engines.registry import engine as find_engine

    folder = scene.folder
    if stage in ("verify", "bench"):
        deployment = _running(scene)
        dialect = dialect_named(deployment.engine)

        def verify() -> None:
            with course.stage("verify") as note:
                steps.read_verification(
                    scene,
                    deployment,
                    dialect,
                    note,
                    reference=reference or (recipe.verify.reference if recipe is not None else None),
                    inventory=folder.find(Inventory),
                )

        def bench() -> None:
            with course.stage("bench") as note:
                steps.read_bench(
                    scene,
                    deployment,
                    dialect,
                    note,
                    request=request or (recipe.bench if recipe is not None else BenchRequest()),
                    plan=folder.find(Plan),
                    verification=folder.find(Verification),
                )

        return verify if stage == "verify" else bench
    assert recipe is not None
    chosen = recipe
    engine = find_engine(chosen.engine.name)
    inventory = folder.load(Inventory)

    def plan() -> None:
        with course.stage("plan") as note:
            steps.read_plan(scene, chosen, inventory, engine, note)

    def preflight() -> None:
        with course.stage("preflight") as note:
            model = steps.find_model(scene, chosen, inventory, stage="preflight")
            state = steps.look_at_machine(scene, inventory)
            steps.read_preflight(scene, chosen, model, folder.load(Plan), engine, note, state=state)

    def launch() -> None:
        with course.stage("launch") as note:
            model = steps.find_model(scene, chosen, inventory, stage="launch")
            steps.read_deployment(scene, chosen, model, folder.load(Plan), engine, note)

    return {"plan": plan, "preflight": preflight, "launch": launch}[stage]


def _running(scene: Scene) -> Deployment:
    from freehold.client.openai import open_endpoint

    deployment = scene.folder.load(Deployment)
    process = deployment.process
    if process is None:
        # Asked before anything is set aside: figures of a server that is gone still hold.
        open_endpoint(scene.world, deployment.base_url, scene.choices.api_key, model=deployment.model)
        return deployment
    alive = scene.world.process(process.pid)
    if alive is None or abs(alive.started_at - process.started_at) > 1.0:
        raise PrerequisiteError(
            f"the server of {scene.folder.path} is not running",
            why=f"process {process.pid} has ended",
            fix=f"start it again with `freehold launch {scene.folder.path}`",
        )
    return deployment


def _recipe_of(folder: RunFolder) -> Recipe | None:
    from freehold.recipes.read import read_recipe

    path = folder.path / "recipe.yaml"
    return read_recipe(path) if path.is_file() else None


def _superseded(result: StageResult, by: str) -> StageResult:
    return StageResult(
        stage=result.stage, status=StageStatus.NOT_RUN, reason=f"{by} was run again; the old record was set aside"
    )
