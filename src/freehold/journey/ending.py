"""How a journey ends, well or not: servers stopped, the journey's record written, the report rendered.

Read :func:`finish`. Once the stages are over, Ctrl-C is held back: a second one must not leave an orphan or half a
record.

Does not do: running stages.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freehold import __version__
from freehold.errors import FreeholdError, Interrupted
from freehold.evidence import Evidence
from freehold.journey import steps
from freehold.journey.course import Course, staged
from freehold.journey.steps import Scene
from freehold.records.bench import BenchResult
from freehold.records.deployment import Deployment
from freehold.records.folder import RunFolder
from freehold.records.journey import Journey
from freehold.records.plan import Plan
from freehold.world import World, utc_text

if TYPE_CHECKING:
    from freehold.launch.stop import StopReport

__all__ = ["JourneyOutcome", "finish", "headline_figures", "stop_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JourneyOutcome:
    """How it ended, and the error to show if it did not end well."""

    journey: Journey
    error: FreeholdError | None


def finish(
    scene: Scene, course: Course, name: str, stages: Callable[[], None], *, stops_server: Callable[[bool], bool]
) -> JourneyOutcome:
    """Run some stages and end the journey properly, whatever they raise.

    Args:
        scene: The run folder, the world, who listens, and what the user chose.
        course: The book of stages.
        name: Name of the recipe, or the address of an attached server.
        stages: Runs the stages.
        stops_server: Whether to stop the server at the end, given whether something went wrong.

    Raises:
        Exception: What a bug in a stage raised, after everything was ended and saved.
    """
    started_at = utc_text(scene.world.now())
    error: FreeholdError | None = None
    crash: Exception | None = None
    try:
        stages()
    except FreeholdError as caught:
        error = caught
    except KeyboardInterrupt:
        error = Interrupted()
    except Exception as caught:  # noqa: BLE001 - even a bug leaves no server and no journey without its record
        crash = caught
    with _uninterrupted():
        bench = scene.folder.find(BenchResult)
        if error is None and bench is not None and bench.interrupted:
            error = Interrupted(
                "interrupted during bench",
                fix=f"what was measured is in {scene.folder.path}; run the same command again for the rest",
            )
        is_serving = False
        if stops_server(error is not None or crash is not None):
            error = _stop(scene, course) or error
        else:
            course.skip("stop", "the server was asked to stay")
            is_serving = True
        journey = _journey(scene, course, name, started_at, is_serving=is_serving)
        try:
            scene.folder.save(journey)
            # The report tells how the journey ended, so it is rendered last and is no stage of the record.
            with course.stage("report") as note:
                steps.write_pages(scene, note)
        except FreeholdError as caught:
            error = error or caught
    if crash is not None:
        raise crash
    return JourneyOutcome(journey=journey, error=error)


def stop_run(folder: RunFolder, world: World, *, timeout_s: float) -> StopReport:
    """End the servers of a run later, and write down that it serves no more.

    Raises:
        EngineError: A process could not be ended.
    """
    from freehold.launch.stop import stop

    report = stop(folder, world, timeout_s=timeout_s)
    journey = folder.find(Journey)
    if journey is not None and journey.is_serving:
        folder.save(replace(journey, is_serving=False, base_url=None))
    return report


def _stop(scene: Scene, course: Course) -> FreeholdError | None:
    from freehold.launch.stop import stop

    if not any(scene.folder.path.glob("process-*.json")):
        return None
    try:
        with course.stage("stop") as note:
            report = stop(scene.folder, scene.world, staged(scene.listener, "stop"))
            note.summary = report.summary
    except FreeholdError as caught:
        return caught
    return None


def _journey(scene: Scene, course: Course, name: str, started_at: str, *, is_serving: bool) -> Journey:
    deployment = scene.folder.find(Deployment)
    is_there = deployment is not None and (is_serving or deployment.origin == "attached")
    return Journey(
        name=name,
        version=__version__,
        command=scene.choices.command,
        started_at=started_at,
        stages=course.results(),
        is_serving=is_serving and deployment is not None,
        base_url=deployment.base_url if deployment is not None and is_there else None,
        headline=headline_figures(scene.folder.find(Plan), bench=scene.folder.find(BenchResult)),
        where={"run": str(scene.folder.path.resolve())},
    )


def headline_figures(plan: Plan | None, *, bench: BenchResult | None) -> dict[str, Evidence]:
    """The figures a person looks for first: decode speed and TTFT per prompt class and concurrency, and the ceiling."""
    figures: dict[str, Evidence] = {}
    for arm in bench.arms if bench else ():
        label = f"{arm.prompt_class}_c{arm.concurrency}"
        for metric in ("decode_tok_per_s", "ttft_s"):
            if metric in arm.metrics:
                figures[f"{label}_{metric}"] = arm.metrics[metric].mean
        figures[f"{label}_output_tok_per_s"] = arm.output_tok_per_s
    if plan is not None:
        figures["decode_ceiling_tok_per_s"] = plan.decode_ceiling_tok_per_s
    return figures


@contextmanager
def _uninterrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
