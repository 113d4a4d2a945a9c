"""Plans a recipe on this machine: reads its checkpoint's headers, probes, decides.

The one place of this package that touches the outside; the journey does the same step by step, with records in between.
Read :func:`plan_here`.

Does not do: the arithmetic (``plan/estimate.py``), or downloading what a hub lets us read in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from freehold.engines.registry import engine
from freehold.hardware.probe import probe_facts, probe_state
from freehold.models.inventory import read_inventory, read_remote_inventory
from freehold.models.source import fetch_model, parse_source
from freehold.plan.ceiling import working_set_bytes
from freehold.plan.estimate import plan
from freehold.progress import Listener, Progress, ignore
from freehold.recipes.write import dump_recipe
from freehold.records.base import encode, sha256_hex
from freehold.records.inventory import Inventory
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import Plan
from freehold.records.recipe import Recipe
from freehold.world import World

__all__ = ["PlannedHere", "plan_here"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHere:
    """A plan and what it was made from."""

    plan: Plan
    inventory: Inventory
    facts: NodeFacts
    state: NodeState


def plan_here(recipe: Recipe, world: World, *, cache: Path, listener: Listener = ignore) -> PlannedHere:
    """Decide whether a recipe fits this machine now, and how fast it can be at most.

    Args:
        recipe: What is to be served.
        world: The outside.
        cache: Folder for what has to be fetched to be read.
        listener: Told what is happening.

    Raises:
        InputError: The model, an engine or an option does not exist, or the checkpoint cannot be read.
        PrerequisiteError: Something is missing on the machine or the network.
    """
    chosen = engine(recipe.engine.name)
    chosen.check_options(recipe)
    inventory = _read_headers(recipe, world, cache, listener)
    listener(Progress(stage="plan", message="measuring how fast this machine reads memory"))
    facts = probe_facts(world)
    state = probe_state(world, folder=cache, working_set_bytes=working_set_bytes(inventory), facts=facts)
    record = plan(
        recipe,
        inventory,
        facts,
        state,
        memory_constants=chosen.memory_terms(),
        made_from={
            "recipe.yaml": sha256_hex(dump_recipe(recipe).encode()),
            "inventory.json": sha256_hex(encode(inventory)),
            "node.json": sha256_hex(encode(facts)),
            "node_state.json": sha256_hex(encode(state)),
        },
    )
    word = {True: "fits", False: "does not fit", None: "not known whether it fits"}[record.fits]
    listener(Progress(stage="plan", message=word, is_final=True, is_failed=record.fits is False))
    return PlannedHere(plan=record, inventory=inventory, facts=facts, state=state)


def _read_headers(recipe: Recipe, world: World, cache: Path, listener: Listener) -> Inventory:
    source = parse_source(recipe.model)
    if source.repo is not None:
        return read_remote_inventory(source.repo, source.revision, file=source.file, listener=listener)
    fetched = fetch_model(source, cache=cache, world=world, listener=listener)
    return read_inventory(fetched.files[0], source=fetched.source)
