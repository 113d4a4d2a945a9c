"""What an engine shards, replicates, pads and dequantises when it splits a model, as data.

Every ``data/engines/*_layout.toml`` is one set of rules: for tensors of a role, and where needed of a name, along which
axis they are cut, in which type they are kept once loaded, and under which name their extra bytes appear in a plan.
Read :func:`layout_rules`, then :class:`LayoutRule`.

Does not do: applying them (``plan/legality.py``, ``plan/residency.py``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from freehold.errors import InputError

__all__ = ["AllReduceRule", "LayoutRule", "LayoutRules", "layout_rule_names", "layout_rules"]

_SUFFIX = "_layout.toml"

Split = Literal["first", "rows", "columns", "whole"]
Unit = Literal["", "heads", "kv_heads", "vocab"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRule:
    """How tensors of some roles are kept.

    Args:
        roles: Roles it holds for.
        parts: Parts of a name, one of which the tensor's must have; empty for any.
        split: Axis that is cut: ``first``, ``rows`` (the last but one, outputs), ``columns`` (the last, inputs and
            quantised), or ``whole`` for a copy on every rank.
        unit: What must stay together on the axis: heads, key/value heads, or a padded vocabulary.
        kept_as: Type once loaded where it is not the stored one; weights that are floats already stay as they are.
        term: Name of what it costs beyond an even share; "" where it costs nothing.
        is_kept_whole_if_indivisible: Whether a rank keeps all of it where the axis cannot be divided.
    """

    roles: frozenset[str]
    parts: frozenset[str] = frozenset()
    split: Split
    unit: Unit = ""
    kept_as: str | None = None
    term: str = ""
    is_kept_whole_if_indivisible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceRule:
    """One all-reduce per layer of a kind and step.

    Args:
        per: ``layers``, ``dense_layers`` or ``moe_layers``.
        elements: Elements per token, as a formula of ``hidden`` and ``latent``.
        element_bytes: Bytes per element.
    """

    per: Literal["layers", "dense_layers", "moe_layers"]
    elements: str
    element_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRules:
    """Everything a plan needs to know about how an engine splits.

    Args:
        name: Name of the rule set, as an engine's in a recipe.
        title: What it describes.
        source: Where it comes from.
        checked: When.
        rules: In order; the first that fits a tensor decides, and one that none fits is kept whole.
        all_reduces: What is added up between ranks in every step.
        tp_sizes: Sizes of tensor parallelism it can do; empty for any.
        expert_splits: Ways to divide routed experts it can do: ``width``, ``experts``, ``grid``, ``uneven``,
            ``padded``, ``dequantised``.
        own_all_reduce_sizes: Numbers of ranks for which it has an all-reduce of its own; others use the library's.
        runtime_bytes: What a rank takes beside weights and cache.
        runtime_kind: How far that can be trusted.
        runtime_source: Where it comes from.
    """

    name: str
    title: str
    source: str
    checked: str
    rules: tuple[LayoutRule, ...]
    all_reduces: tuple[AllReduceRule, ...] = ()
    tp_sizes: tuple[int, ...] = ()
    expert_splits: tuple[str, ...] = ()
    own_all_reduce_sizes: tuple[int, ...] = ()
    runtime_bytes: int = 0
    runtime_kind: str = "assumed"
    runtime_source: str = ""


def layout_rule_names() -> tuple[str, ...]:
    """Names of every rule set."""
    return tuple(sorted(_all()))


def layout_rules(name: str) -> LayoutRules:
    """The rule set of a name.

    Raises:
        InputError: There is none.
    """
    found = _all().get(name)
    if found is None:
        raise InputError(
            f"nobody knows how {name!r} splits a model",
            why="what is sharded, replicated and dequantised differs between engines, and so do the bytes",
            fix=f"known are {', '.join(sorted(_all()))}",
            facts={"engine": name},
        )
    return found


@lru_cache(maxsize=1)
def _all() -> Mapping[str, LayoutRules]:
    folder = files("freehold").joinpath("data", "engines")
    tables = [
        tomllib.loads(path.read_text(encoding="utf-8")) for path in folder.iterdir() if path.name.endswith(_SUFFIX)
    ]
    return {table["name"]: _read(table) for table in tables}


def _read(table: Mapping[str, Any]) -> LayoutRules:
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    plain["checked"] = str(table["checked"])
    plain["rules"] = tuple(
        LayoutRule(**{**row, "roles": frozenset(row["roles"]), "parts": frozenset(row.get("parts", ()))})
        for row in table["rules"]
    )
    plain["all_reduces"] = tuple(AllReduceRule(**row) for row in table.get("all_reduces", ()))
    return LayoutRules(**plain)
