"""What every check is asked about, and the thresholds it judges by.

Does not do: checking.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from freehold.engines.interface import Engine
from freehold.records.inventory import Inventory
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import Plan
from freehold.records.recipe import Recipe
from freehold.records.verdict import Verdict
from freehold.world import World

__all__ = ["Check", "Question", "thresholds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May this recipe be started here, now?

    Args:
        recipe: What is to be served.
        plan: What it needs.
        facts: What the machine is.
        state: How it is.
        engine: Who is to serve it.
        world: The outside.
        cache: Folder for downloads.
        run_folder: Folder of the run.
        model_files: The checkpoint's files, in order.
        inventory: What the checkpoint's files are made of; None where they were not read.
        root: Where ``/proc`` is.
    """

    recipe: Recipe
    plan: Plan
    facts: NodeFacts
    state: NodeState
    engine: Engine
    world: World
    cache: Path
    run_folder: Path
    model_files: Sequence[Path]
    inventory: Inventory | None
    root: Path = Path("/")


Check = Callable[[Question], Verdict | None]
"""A check gives its verdict, or None where it does not apply: a pass over nothing would be no pass."""


@lru_cache(maxsize=1)
def thresholds() -> Mapping[str, Mapping[str, Any]]:
    """Limits by check.

    Source:
        ``data/preflight.toml``.
    """
    return tomllib.loads((files("freehold") / "data" / "preflight.toml").read_text(encoding="utf-8"))
