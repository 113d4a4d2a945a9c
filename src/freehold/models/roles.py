"""What a tensor is for, told from its whole name by a table that is data (``data/roles.toml``).

Names are compared part by part and anchored at both ends: ``output.weight`` is the output head,
``attn_output.weight`` never is. A family's own table is asked before the general one. Two things need more than a
name: in a layer with a compressed KV cache (MLA) some names mean something else, and whole layers that only draft
tokens (MTP) count as draft. Read :func:`assign_roles`.

Does not do: looking at shapes or bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

from freehold.models.formats import load_facts
from freehold.records.inventory import Role

__all__ = ["Placement", "assign_roles"]

_NUMBER = re.compile(r"\.([0-9]+)(?=\.|\Z)")
_MAX_LAYER_DIGITS = 6

Format = Literal["gguf", "safetensors"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a tensor belongs: its role, its layer where it has one, and whether the table knows its name."""

    role: Role
    layer: int | None
    is_known: bool


@dataclass(frozen=True, slots=True)
class _Rule:
    role: Role
    role_in_mla_layer: Role | None


_UNKNOWN = _Rule(Role.OTHER, None)


@dataclass(slots=True)
class _Slot:
    """All tensors that share a rule and a layer; their role is known once every name has been seen."""

    rule: _Rule
    layer: int | None
    placement: Placement | None = None


@dataclass(slots=True)
class _Reading:
    """What is known of all names that differ in their numbers only."""

    rule: _Rule
    layer_number: int | None  # which of the name's numbers is its layer
    slot_by_digits: dict[str, _Slot] = field(default_factory=dict)


class _Table:
    """The rules of one format and family, indexed by a pattern's last part."""

    def __init__(self, form: Literal["gguf", "hf"], families: tuple[str, ...]) -> None:
        facts = load_facts("roles.toml")
        self._storage = frozenset(facts["storage"])
        self._layer_parts = frozenset(facts[form]["layer_parts"])
        self._apart = frozenset(facts["apart"])
        self._by_end: dict[str, list[tuple[int, tuple[str, ...], _Rule]]] = {}
        self._open_ended: list[tuple[int, tuple[str, ...], _Rule]] = []
        rules: list[dict[str, Any]] = []
        for entry in facts["families"]:
            if entry["format"] == form and set(families) & set(entry["names"]):
                rules += entry["rules"]
        rules += facts[form]["rules"]
        order = 0
        for row in rules:
            in_mla = row.get("in_mla_layer")
            rule = _Rule(Role(row["role"]), Role(in_mla) if in_mla else None)
            for pattern in row["patterns"]:
                parts = tuple(pattern.split("."))
                place = self._open_ended if "*" in parts[-1] else self._by_end.setdefault(parts[-1], [])
                place.append((order, parts, rule))
                order += 1

    def read(self, template: str) -> _Reading:
        """What a name with ``*`` for its numbers is."""
        parts = template.split(".")
        layer_number = None
        seen = 0
        for before, part in pairwise(parts):
            if part == "*":
                if before in self._layer_parts:
                    layer_number = seen
                    break
                seen += 1
        while len(parts) > 1 and parts[-1] in self._storage:
            parts.pop()
        candidates = sorted(self._by_end.get(parts[-1], []) + self._open_ended, key=lambda c: c[0])
        rule = next((rule for _, pattern, rule in candidates if _matches(pattern, parts)), _UNKNOWN)
        is_apart = rule.role is Role.VISION or not self._apart.isdisjoint(parts)
        return _Reading(rule, None if is_apart else layer_number)


@lru_cache(maxsize=8)
def _table(form: Literal["gguf", "hf"], families: tuple[str, ...]) -> _Table:
    return _Table(form, families)


def _matches(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        return any(_matches(rest, parts[skip:]) for skip in range(len(parts) + 1))
    if not parts or not _part_matches(first, parts[0]):
        return False
    return _matches(rest, parts[1:])


def _part_matches(pattern: str, part: str) -> bool:
    if pattern.endswith("*"):
        return part.startswith(pattern[:-1])
    return pattern == part


def assign_roles(
    names: Iterable[str],
    *,
    form: Format,
    family: str | tuple[str, ...] | None = None,
    num_layers: int | None = None,
) -> list[Placement]:
    """Role and layer of every tensor, in the order of the names.

    Args:
        names: Tensor names of one checkpoint.
        form: Whose names they are.
        family: Architecture name, or several, as the checkpoint states them; each may have rules of its own.
        num_layers: Number of blocks; layers from there on draft tokens. None where the checkpoint says nothing.

    Returns:
        One placement per name. Names the table does not know have role ``other``.
    """
    families = (family,) if isinstance(family, str) else family or ()
    table = _table("gguf" if form == "gguf" else "hf", families)
    readings: dict[str, _Reading] = {}
    slots: list[_Slot] = []
    # This loop runs half a million times for the largest checkpoints. The tensors of a layer lie together, and all
    # layers hold much the same, so most names are a prefix seen just now and a rest seen before.
    readings_by_head: dict[str, dict[str, _Reading]] = {}
    prefix, digits, by_rest = "\0", "", dict[str, _Reading]()
    for name in names:
        if name.startswith(prefix):
            rest = name[len(prefix) :]
            reading = by_rest.get(rest)
            if reading is None:
                reading = by_rest[rest] = _look_up(name, table, readings)[0]
            here = "" if reading.layer_number is None else digits
        else:
            reading, head, here = _look_up(name, table, readings)
            if here:
                prefix, digits = f"{head}.{here}.", here
                by_rest = readings_by_head.setdefault(head, {})
        slot = reading.slot_by_digits.get(here)
        if slot is None:
            is_layer = 0 < len(here) <= _MAX_LAYER_DIGITS
            slot = reading.slot_by_digits[here] = _Slot(reading.rule, int(here) if is_layer else None)
        slots.append(slot)
    _decide([s for reading in readings.values() for s in reading.slot_by_digits.values()], num_layers)
    return [slot.placement for slot in slots if slot.placement is not None]


def _look_up(name: str, table: _Table, readings: dict[str, _Reading]) -> tuple[_Reading, str, str]:
    """What a name is, the text before its layer's number, and that number; both empty outside the layers."""
    pieces = _NUMBER.split(name)  # text, number, text, number, …, text
    template = ".*".join(pieces[::2])
    reading = readings.get(template)
    if reading is None:
        reading = readings[template] = table.read(template)
    if reading.layer_number is None:
        return reading, "", ""
    place = 2 * reading.layer_number + 1
    head = "".join(f".{piece}" if position % 2 else piece for position, piece in enumerate(pieces[:place]))
    return reading, head, pieces[place]


def _decide(slots: Sequence[_Slot], num_layers: int | None) -> None:
    """Give each slot its placement, now that it is known what else its layer holds."""
    layers = {slot.layer for slot in slots if slot.layer is not None}
    mla_layers = {slot.layer for slot in slots if slot.rule.role is Role.ATTN_MLA}
    draft_layers = {slot.layer for slot in slots if slot.rule.role is Role.DRAFT} & layers
    if num_layers is not None:
        draft_layers |= {layer for layer in layers if layer >= num_layers}
    for slot in slots:
        role = slot.rule.role
        if slot.layer in draft_layers:
            role = Role.DRAFT
        elif slot.rule.role_in_mla_layer is not None and slot.layer is not None and slot.layer in mla_layers:
            role = slot.rule.role_in_mla_layer
        slot.placement = Placement(role, slot.layer, slot.rule is not _UNKNOWN)
