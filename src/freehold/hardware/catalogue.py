"""What hardware there is to plan for, without having it: memory, bandwidth, links, power, price, each with its source.

Memory has several truths: what the label says, what the system exposes, what a model can use. All are kept side by
side and a calculation says which one it took. Read :func:`hardware_catalogue`, then :func:`find_hardware`.

Does not do: asking a machine (``hardware/probe.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from freehold.errors import InputError
from freehold.evidence import Evidence
from freehold.records.catalogue import (
    Fact,
    choose_fact,
    merge_tables,
    nearest,
    parse_toml,
    read_facts,
    read_user_tables,
)

__all__ = ["MAX_UNITS", "Hardware", "find_hardware", "hardware_catalogue", "parse_hardware"]

MAX_UNITS = 1024
"""More of one kind than a plan is made for."""
_ENTRY_KEYS = {"title", "aliases", "is_unified", "accelerators_per_node", "compute_capability", "notes", "facts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One kind of node as it is sold.

    Args:
        name: Name on the command line: ``dgx-spark``.
        title: Full product name.
        aliases: Other names for it.
        is_unified: Whether processor and accelerator share the memory, and with it the operating system.
        accelerators_per_node: Accelerators that one unit of this entry has.
        compute_capability: Instruction set of its accelerator; None where the notion does not apply.
        notes: What to know, one sentence each.
        facts: Every statement about it.
    """

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    is_unified: bool = False
    accelerators_per_node: int = 1
    compute_capability: str | None = None
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()

    def fact(self, name: str, basis: str | None = None) -> Evidence:
        """The most trusted value of a quantity, or not measured.

        Args:
            name: Which quantity: ``memory``, ``bandwidth``, ``price`` …
            basis: In which sense.
        """
        return choose_fact(self.facts, name, basis)


@lru_cache(maxsize=8)
def hardware_catalogue(user_files: tuple[Path, ...] = ()) -> Mapping[str, Hardware]:
    """Every known kind of node by its name.

    Args:
        user_files: The user's own ``hardware.toml`` files, which lie over ours.

    Raises:
        InputError: A user's file has a mistake.
    """
    table = parse_toml(
        files("freehold").joinpath("data", "catalogue", "hardware.toml").read_text(encoding="utf-8"), "hardware.toml"
    )
    for _, over in read_user_tables(user_files):
        table = merge_tables(table, over)
    return {name: _read_entry(name, row) for name, row in table.items() if isinstance(row, dict)}


def _read_entry(name: str, row: Mapping[str, Any]) -> Hardware:
    unknown = sorted(set(row) - _ENTRY_KEYS)
    per_node = row.get("accelerators_per_node", 1)
    problem = (
        f"unknown: {', '.join(unknown)}"
        if unknown
        else f"accelerators_per_node is {per_node!r}, expected a whole number of at least 1"
        if type(per_node) is not int or not 1 <= per_node <= MAX_UNITS
        else "a title is missing"
        if not isinstance(row.get("title"), str)
        else "aliases and notes are lists of texts"
        if not all(_are_texts(row.get(key, [])) for key in ("aliases", "notes"))
        else ""
    )
    if problem:
        raise InputError(
            f"a mistake in the catalogue: hardware {name}",
            why=problem,
            fix=f"known keys: {', '.join(sorted(_ENTRY_KEYS))}",
        )
    return Hardware(
        name=name,
        title=row["title"],
        aliases=tuple(row.get("aliases", ())),
        is_unified=bool(row.get("is_unified", False)),
        accelerators_per_node=per_node,
        compute_capability=row.get("compute_capability"),
        notes=tuple(row.get("notes", ())),
        facts=read_facts(row.get("facts", []), f"hardware {name}"),
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def find_hardware(name: str, catalogue: Mapping[str, Hardware]) -> Hardware:
    """A kind of node by its name or another name for it; capitals do not matter.

    Args:
        name: What was asked for.
        catalogue: Every kind.

    Raises:
        InputError: Nobody knows it; the nearest name is suggested, and no other hardware is taken in its place.
    """
    wanted = name.strip().lower()
    names = {alias.lower(): entry for entry in catalogue.values() for alias in (entry.name, *entry.aliases)}
    if wanted in names:
        return names[wanted]
    near = nearest(wanted, names)
    raise InputError(
        f"no hardware is called {name!r}",
        why="a plan for something else would give numbers that look right and are not",
        fix=f"did you mean `{near}`? `freehold catalog list` shows all"
        if near
        else "`freehold catalog list` shows all",
        facts={"hardware": name, "known": sorted(catalogue)},
    )


def parse_hardware(text: str, catalogue: Mapping[str, Hardware]) -> tuple[Hardware, int | None]:
    """Understand ``NAME`` or ``NAME:COUNT``.

    Args:
        text: What was asked for, such as ``dgx-spark:4``.
        catalogue: Every kind.

    Returns:
        The hardware, and how many of it; None where no count was given.

    Raises:
        InputError: Nobody knows the name, or the count is no positive whole number.
    """
    name, separator, count = text.partition(":")
    entry = find_hardware(name, catalogue)
    if not separator:
        return entry, None
    if not count.isascii() or not count.isdigit() or not 1 <= int(count[:9]) <= MAX_UNITS:
        raise InputError(
            f"not a number of nodes: {count!r} in {text!r}",
            why=f"after the colon comes how many of it there are, a whole number from 1 to {MAX_UNITS:,}",
            fix=f"write it like `{entry.name}:4`",
        )
    return entry, int(count)
