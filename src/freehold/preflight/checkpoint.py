"""Are the checkpoint's files those that were read: all there, of the same size, and the pinned ones?

Does not do: hashing; the model stage did, and its hash is compared with the pin.
"""

from __future__ import annotations

import os

from freehold.preflight.question import Question
from freehold.records.verdict import Outcome, Verdict
from freehold.units import format_bytes, format_disk

__all__ = ["check_checkpoint", "check_pins"]

_MODEL_PIN = "model"


def check_checkpoint(question: Question) -> Verdict:
    """Compare the files with the inventory."""
    files = question.model_files
    if not files:
        return _fail("no file of the checkpoint is known", "name a checkpoint as `model` in the recipe")
    problems = []
    for path in files:
        if not path.is_file():
            problems.append(f"{path.name} is missing")
        elif not os.access(path, os.R_OK):
            problems.append(f"{path.name} may not be read")
    inventory = question.inventory
    if inventory is not None:
        size_by_name = {path.name: path.stat().st_size for path in files if path.is_file()}
        for entry in inventory.files:
            size = size_by_name.get(entry.name)
            if size is None:
                if not any(path.name == entry.name for path in files):
                    problems.append(f"{entry.name} is not among the files to serve")
            elif size != entry.bytes:
                problems.append(
                    f"{entry.name} has {format_bytes(size)}, its header was read at {format_bytes(entry.bytes)}"
                )
        unread = {path.name for path in files} - {entry.name for entry in inventory.files}
        problems += [f"{name} was never read" for name in sorted(unread)]
    if problems:
        return _fail("; ".join(problems), "fetch the checkpoint again, and leave its files alone while it is served")
    if inventory is None:
        return Verdict(
            check="checkpoint",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"{len(files)} files are there; their headers were not read, so their sizes say nothing",
            why="an engine fed with a cut file fails late, or answers nonsense",
            remedy="run `freehold inspect` on the checkpoint",
        )
    total = format_disk(sum(entry.bytes for entry in inventory.files))
    count = f"{len(files)} file{'s' if len(files) > 1 else ''}"
    return Verdict(
        check="checkpoint", outcome=Outcome.PASS, observation=f"{count}, {total}, of the sizes that were read"
    )


def check_pins(question: Question) -> Verdict | None:
    """Compare the recipe's pins with what is here; a pin that nobody can check is no pin."""
    pins = question.recipe.pins
    if not pins:
        return None
    unknown = sorted(set(pins) - {_MODEL_PIN})
    found = question.inventory.checkpoint_sha256 if question.inventory is not None else None
    wanted = pins.get(_MODEL_PIN)
    if wanted is not None and found is not None and wanted.lower() != found:
        return Verdict(
            check="pins",
            outcome=Outcome.FAIL,
            observation=f"the checkpoint is {found}, the recipe pins {wanted.lower()}",
            why="another checkpoint gives other answers and other speeds",
            remedy="fetch the pinned checkpoint, or change `pins.model` and verify again",
        )
    if unknown or (wanted is not None and found is None):
        what = [f"`pins.{name}`" for name in unknown]
        what += ["`pins.model` (the checkpoint was not hashed)"] if wanted is not None and found is None else []
        return Verdict(
            check="pins",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"not checked: {', '.join(what)}",
            why="a pin that nobody checks promises what it does not hold",
            remedy="pin the checkpoint's sha256 as `pins.model`, and the engine's version as `engine.version`",
        )
    return Verdict(check="pins", outcome=Outcome.PASS, observation=f"the checkpoint is the pinned {found}")


def _fail(observation: str, remedy: str) -> Verdict:
    return Verdict(
        check="checkpoint",
        outcome=Outcome.FAIL,
        observation=observation,
        why="an engine fed with a wrong or cut file fails late, or answers nonsense",
        remedy=remedy,
    )
