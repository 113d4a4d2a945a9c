"""Runs all stages in order: on a recipe, or on a server that is already there.

Read :func:`run_recipe`. Whatever happens on the way — a check that says no, a server that dies, Ctrl-C — every
finished stage stays saved, a report of what there is gets written, and what was started is stopped.

Does not do: the work of a stage (``journey/steps.py``).
"""

from __future__ import annotations

from freehold.journey import steps
from freehold.journey.course import Course
from freehold.journey.ending import JourneyOutcome, finish
from freehold.journey.steps import Scene
from freehold.records.deployment import Deployment
from freehold.records.recipe import BenchRequest, Recipe

__all__ = ["ATTACHED_STAGES", "RECIPE_STAGES", "run_attached", "run_recipe"]

RECIPE_STAGES = ("model", "plan", "preflight", "launch", "verify", "bench", "stop")
ATTACHED_STAGES = ("attach", "verify", "bench")


def run_recipe(scene: Scene, recipe: Recipe) -> JourneyOutcome:
    """Do the whole journey of one recipe.

    Args:
        scene: The run folder, the world, who listens, and what the user chose.
        recipe: What to serve.

    Returns:
        The saved journey; its error is None when every stage finished.

    Raises:
        InputError: The recipe names an engine or an option that does not exist; nothing was started.
    """
    from freehold.engines.registry import engine as find_engine

    engine = find_engine(recipe.engine.name)
    engine.check_options(recipe)
    course = Course(RECIPE_STAGES, folder=scene.folder, world=scene.world, listener=scene.listener)

    def stages() -> None:
        steps.save_recipe(scene, recipe)
        with course.stage("model") as note:
            model = steps.read_model(scene, recipe, note)
        with course.stage("plan") as note:
            steps.probe_machine(scene, model.inventory)
            plan = steps.read_plan(scene, recipe, model.inventory, engine, note)
        with course.stage("preflight") as note:
            steps.read_preflight(scene, recipe, model, plan, engine, note)
        with course.stage("launch") as note:
            deployment = steps.read_deployment(scene, recipe, model, plan, engine, note)
        with course.stage("verify") as note:
            verification = steps.read_verification(
                scene,
                deployment,
                engine.dialect,
                note,
                reference=recipe.verify.reference,
                inventory=model.inventory,
            )
        with course.stage("bench") as note:
            steps.read_bench(
                scene,
                deployment,
                engine.dialect,
                note,
                request=recipe.bench,
                plan=plan,
                verification=verification,
            )

    # A kept server is only kept by a journey that went well: a failed gate leaves nothing running.
    return finish(
        scene, course, recipe.name, stages, stops_server=lambda went_wrong: went_wrong or not scene.choices.keep
    )


def run_attached(
    scene: Scene, url: str, *, model: str | None, reference: str | None, request: BenchRequest
) -> JourneyOutcome:
    """Verify, measure and report a server that somebody else started; it is never stopped.

    Args:
        scene: The run folder, the world, who listens, and what the user chose.
        url: Address of its OpenAI-compatible API.
        model: Model to ask for; None takes the only one it offers.
        reference: Reference file to compare its answers with; None leaves self-consistency only.
        request: What to measure.
    """
    from freehold.engines.registry import dialect_named
    from freehold.launch.attach import attach

    course = Course(ATTACHED_STAGES, folder=scene.folder, world=scene.world, listener=scene.listener)

    def stages() -> None:
        with course.stage("attach") as note:
            deployment = attach(url, model=model, world=scene.world, api_key=scene.choices.api_key, made_from={})
            scene.folder.save(deployment)
            note.saved = Deployment
            note.summary = f"{deployment.engine} {deployment.engine_version or ''} serves {deployment.model}"
        dialect = dialect_named(deployment.engine)
        with course.stage("verify") as note:
            verification = steps.read_verification(
                scene, deployment, dialect, note, reference=reference, inventory=None
            )
        with course.stage("bench") as note:
            steps.read_bench(scene, deployment, dialect, note, request=request, plan=None, verification=verification)

    return finish(scene, course, url, stages, stops_server=lambda _: False)
