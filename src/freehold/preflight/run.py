"""Runs every check before anybody decides, so that all findings are there at once.

Read :data:`CHECKS`, then :func:`run_preflight`.

Does not do: deciding to go on; the caller reads the report's outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from freehold.engines.interface import Engine
from freehold.errors import FreeholdError
from freehold.preflight.accelerators import check_accelerators
from freehold.preflight.checkpoint import check_checkpoint, check_pins
from freehold.preflight.context import check_context
from freehold.preflight.disk import check_disk
from freehold.preflight.engine import check_engine, check_engine_options
from freehold.preflight.exposure import check_exposure
from freehold.preflight.load import check_load
from freehold.preflight.memory import check_memory_contract
from freehold.preflight.port import check_port
from freehold.preflight.question import Check, Question
from freehold.preflight.swap import check_swap
from freehold.records.inventory import Inventory
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import Plan
from freehold.records.preflight import PreflightReport
from freehold.records.recipe import Recipe
from freehold.records.verdict import Outcome, Verdict, overall
from freehold.world import World

__all__ = ["CHECKS", "run_checks", "run_preflight"]

CHECKS: Mapping[str, Check] = {
    "memory_contract": check_memory_contract,
    "checkpoint": check_checkpoint,
    "pins": check_pins,
    "engine": check_engine,
    "engine_options": check_engine_options,
    "context": check_context,
    "port": check_port,
    "exposure": check_exposure,
    "disk": check_disk,
    "swap": check_swap,
    "accelerators": check_accelerators,
    "load": check_load,
}
"""Every check by name, in the order of the report."""


def run_preflight(
    recipe: Recipe,
    plan: Plan,
    facts: NodeFacts,
    state: NodeState,
    engine: Engine,
    world: World,
    *,
    cache: Path,
    run_folder: Path,
    model_files: Sequence[Path],
    made_from: Mapping[str, str],
    inventory: Inventory | None = None,
    root: Path = Path("/"),
) -> PreflightReport:
    """Check whether a recipe may be started here and now.

    Args:
        recipe: What is to be served.
        plan: What it needs.
        facts: What the machine is.
        state: How it is.
        engine: Who is to serve it.
        world: The outside.
        cache: Folder for downloads.
        run_folder: Folder of the run.
        model_files: The checkpoint's files.
        made_from: sha256 of each record it is made from.
        inventory: What the checkpoint's files are made of.
        root: Where ``/proc`` is.
    """
    question = Question(
        recipe=recipe,
        plan=plan,
        facts=facts,
        state=state,
        engine=engine,
        world=world,
        cache=cache,
        run_folder=run_folder,
        model_files=model_files,
        inventory=inventory,
        root=root,
    )
    verdicts = run_checks(question, CHECKS)
    return PreflightReport(made_from=made_from, verdicts=verdicts, outcome=overall(verdicts))


def run_checks(question: Question, checks: Mapping[str, Check]) -> tuple[Verdict, ...]:
    """Run checks one after the other; one that breaks is inconclusive and stops no other.

    Args:
        question: What they are asked about.
        checks: By name; those that do not apply are left out of the result.
    """
    verdicts = []
    for name, check in checks.items():
        verdict = _run(name, check, question)
        if verdict is not None:
            verdicts.append(replace(verdict, node=question.facts.name))
    return tuple(verdicts)


def _run(name: str, check: Check, question: Question) -> Verdict | None:
    try:
        return check(question)
    except FreeholdError as error:
        return Verdict(
            check=name, outcome=Outcome.INCONCLUSIVE, observation=error.what, why=error.why, remedy=error.fix
        )
    except Exception as error:  # noqa: BLE001 — a check that breaks must not hide what the others find
        return Verdict(
            check=name,
            outcome=Outcome.INCONCLUSIVE,
            observation=f"the check itself failed: {type(error).__name__}: {error}",
            why="nothing is known about what it looks at",
            remedy="report it, with this text; judge yourself whether to go on",
        )
