"""Models that can be planned without a checkpoint: architecture, tensor recipe, published totals, prices, licence.

One TOML file per model under ``data/catalogue/models``. A model may have parameters, such as the expert width of a
pruned one, with the values that are possible and why others are not. Read :func:`model_catalogue`,
:func:`find_model`, then :func:`instantiate`.

Does not do: reading checkpoints (``models/inventory.py``); a catalogue model never replaces one that is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from freehold.errors import InputError
from freehold.evidence import Evidence, Kind
from freehold.models.blueprint import build_inventory
from freehold.models.context_items import ContextItem
from freehold.models.dimensions import evaluate, layer_sets
from freehold.records.catalogue import (
    Fact,
    choose_fact,
    merge_tables,
    nearest,
    parse_toml,
    read_facts,
    read_user_tables,
)
from freehold.records.inventory import Architecture, Inventory

__all__ = ["CatalogueModel", "ModelEntry", "ModelParameter", "find_model", "instantiate", "model_catalogue"]

_KEYS = {
    "name", "title", "aliases", "source", "checked", "format", "family", "notes", "facts", "dimensions", "layers",
    "parameters", "architecture", "tensors", "context", "published", "routed_code_bits", "speculation",
}  # fmt: skip
_PARAMETER_KEYS = {"default", "minimum", "maximum", "divides", "divides_why", "multiple_of", "multiple_of_why"}
_CONTEXT_KEYS = {
    "name", "layers", "elements", "type", "per", "tokens_per_entry", "window_tokens", "heads", "is_kv",
}  # fmt: skip


_PUBLISHED: dict[str, Any] = {
    "hardware": str,
    "nodes": int,
    "tp_size": int,
    "config": str,
    "value": (int, float),
    "kind": str,
    "source": str,
}
_SPECULATION: dict[str, Any] = {
    "hardware": str, "nodes": int, "workload": str, "depths": list, "step_s": list, "emitted": list, "kind": str,
    "source": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParameter:
    """A dimension that may be chosen.

    Args:
        name: Its name, as in ``NAME:expert_width=1024``.
        default: Value of the published model.
        minimum: Smallest value.
        maximum: Largest value.
        divides: A number that the value has to divide; 0 for none.
        divides_why: Why.
        multiple_of: A number that has to divide the value.
        multiple_of_why: Why.
    """

    name: str
    default: int
    minimum: int = 1
    maximum: int = 2**31
    divides: int = 0
    divides_why: str = ""
    multiple_of: int = 1
    multiple_of_why: str = ""

    @property
    def allowed(self) -> tuple[int, ...]:
        """Every value that is possible, where that is a list worth reading."""
        steps = range(-(-self.minimum // self.multiple_of) * self.multiple_of, self.maximum + 1, self.multiple_of)
        return tuple(v for v in steps[:10_000] if self.objection(v) is None)

    def objection(self, value: int) -> str | None:
        """Why a value is not possible; None where it is."""
        if not self.minimum <= value <= self.maximum:
            return f"it lies outside {self.minimum:,} … {self.maximum:,}"
        if self.divides and self.divides % value:
            return f"{self.divides:,} / {value:,} = {self.divides / value:g}: {self.divides_why}"
        if value % self.multiple_of:
            return f"{value:,} / {self.multiple_of:,} = {value / self.multiple_of:g}: {self.multiple_of_why}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A catalogue file, read.

    Args:
        name: Name on the command line.
        title: Full name.
        aliases: Other names.
        facts: Published totals, parameters, prices, licence; each with its source.
        parameters: Dimensions that may be chosen.
        notes: What to know, one sentence each.
        published: Speeds that others measured: ``hardware nodes config value kind source checked``.
        table: The file itself.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    facts: tuple[Fact, ...]
    parameters: tuple[ModelParameter, ...]
    notes: tuple[str, ...]
    published: tuple[Mapping[str, Any], ...]
    table: Mapping[str, Any]

    def fact(self, name: str, basis: str | None = None) -> Evidence:
        """The most trusted value of a quantity, or not measured.

        Args:
            name: Which quantity: ``tensor_bytes``, ``price``, ``active_params`` …
            basis: In which sense.
        """
        return choose_fact(self.facts, name, basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """A catalogue model with its parameters chosen.

    Args:
        entry: The entry.
        values: Value of every parameter.
        is_published: Whether these are the values that the facts hold for.
        inventory: Its tensors.
        context_items: What a token and a sequence leave in memory.
        routed_code_bits: Bits of a routed weight without its scales; None where nobody says.
    """

    entry: ModelEntry
    values: Mapping[str, int]
    is_published: bool
    inventory: Inventory
    context_items: tuple[ContextItem, ...]
    routed_code_bits: int | None = None

    def fact(self, name: str, basis: str | None = None) -> Evidence:
        """A published fact; not measured where other parameters than the published ones are chosen."""
        if not self.is_published and name in {"tensor_bytes", "file_bytes", "active_params", "total_params"}:
            return Evidence.not_measured(f"nobody published {name} for {_shown(self.values)}")
        return self.entry.fact(name, basis)


@lru_cache(maxsize=8)
def model_catalogue(user_files: tuple[Path, ...] = ()) -> Mapping[str, ModelEntry]:
    """Every known model by its name.

    Args:
        user_files: The user's own files, one model each; one with a name of ours lies over ours.

    Raises:
        InputError: A user's file has a mistake.
    """
    tables: dict[str, Mapping[str, Any]] = {}
    folder = files("freehold").joinpath("data", "catalogue", "models")
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.name.endswith(".toml"):
            table = parse_toml(path.read_text(encoding="utf-8"), path.name)
            tables[table["name"]] = table
    for where, table in read_user_tables(user_files):
        name = table.get("name")
        if not isinstance(name, str) or not name:
            raise _bad(where, "a model file begins with `name`")
        tables[name] = merge_tables(tables.get(name, {}), table)
    return {name: _read_entry(name, table) for name, table in tables.items()}


def _read_entry(name: str, table: Mapping[str, Any]) -> ModelEntry:
    try:
        return _read_table(name, table)
    except (TypeError, ValueError, AttributeError) as error:  # a value of another kind than its key wants
        raise _bad(f"model {name}", f"a value is of the wrong kind: {error}") from None


def _read_table(name: str, table: Mapping[str, Any]) -> ModelEntry:
    unknown = sorted(set(table) - _KEYS)
    missing = sorted({"title", "source", "checked", "format", "architecture", "tensors"} - set(table))
    if unknown or missing:
        raise _bad(f"model {name}", f"unknown: {', '.join(unknown) or 'none'}; missing: {', '.join(missing) or 'none'}")
    if table["format"] not in ("gguf", "safetensors"):
        raise _bad(f"model {name}", f"format is {table['format']!r}, expected gguf or safetensors")
    for key, wanted in (("published", _PUBLISHED), ("speculation", _SPECULATION)):
        for row in table.get(key, ()):
            lacking = sorted(k for k, kind in wanted.items() if not isinstance(row.get(k), kind))
            if lacking:
                raise _bad(f"model {name}, {key}", f"missing or of the wrong kind: {', '.join(lacking)}")
            _check_measurement(name, row)
    parameters = []
    for key, row in table.get("parameters", {}).items():
        if not isinstance(row, dict) or set(row) - _PARAMETER_KEYS or type(row.get("default")) is not int:
            raise _bad(f"model {name}, parameter {key}", f"known keys are {', '.join(sorted(_PARAMETER_KEYS))}")
        parameters.append(ModelParameter(name=key, **row))
    return ModelEntry(
        name=name,
        title=table["title"],
        aliases=tuple(table.get("aliases", ())),
        facts=read_facts(table.get("facts", []), f"model {name}"),
        parameters=tuple(parameters),
        notes=tuple(table.get("notes", ())),
        published=tuple(table.get("published", ())),
        table=table,
    )


def _check_measurement(name: str, row: Mapping[str, Any]) -> None:
    kinds = {k.value for k in Kind if k not in (Kind.NOT_MEASURED, Kind.MEASURED)}
    series = [row[key] for key in ("depths", "step_s", "emitted") if key in row]
    numbers = [n for values in series for n in values] + [row.get("value", 1)]
    if row["kind"] not in kinds or "checked" not in row:
        raise _bad(f"model {name}", f"a measurement has `checked`, and a kind of {', '.join(sorted(kinds))}")
    if len({len(values) for values in series}) > 1 or any(not isinstance(n, int | float) or n < 0 for n in numbers):
        raise _bad(f"model {name}", "depths, step_s and emitted are as many numbers each, none negative")
    if any(n <= 0 for n in row.get("step_s", ())) or (series and not series[0]):
        raise _bad(f"model {name}", "a step takes time, and there is at least one")


def find_model(text: str, catalogue: Mapping[str, ModelEntry]) -> tuple[ModelEntry, dict[str, int]]:
    """A model by ``NAME`` or ``NAME:PARAMETER=VALUE,…``.

    Args:
        text: What was asked for.
        catalogue: Every model.

    Returns:
        The entry, and the values that were given for its parameters.

    Raises:
        InputError: Nobody knows the model or the parameter, or a value is no whole number.
    """
    name, separator, rest = text.strip().partition(":")
    names = {alias.lower(): entry for entry in catalogue.values() for alias in (entry.name, *entry.aliases)}
    entry = names.get(name.lower())
    if entry is None:
        near = nearest(name, names)
        raise InputError(
            f"no model in the catalogue is called {name!r}",
            why="a plan for another model would give numbers that look right and are not",
            fix=(f"did you mean `{near}`? " if near else "")
            + "`freehold catalog list` shows all; a checkpoint is given by its path or as `hf:OWNER/REPO`",
            facts={"model": name, "known": sorted(catalogue)},
        )
    values = {}
    for part in rest.split(",") if separator else ():
        key, equals, number = part.partition("=")
        known = [p.name for p in entry.parameters]
        if key.strip() not in known:
            raise InputError(
                f"{entry.name} has no parameter {key.strip()!r}",
                why=f"it has {', '.join(known) or 'none'}",
                fix=f"write `{entry.name}:{known[0]}=…`" if known else f"write `{entry.name}`",
            )
        if not equals or not number.strip().isascii() or not number.strip().isdigit() or len(number) > 12:
            raise InputError(
                f"not a value for {key.strip()}: {number!r}",
                why="it is a positive whole number",
                fix=f"write it like `{entry.name}:{key.strip()}=1024`",
            )
        values[key.strip()] = int(number)
    return entry, values


def instantiate(entry: ModelEntry, values: Mapping[str, int] | None = None) -> CatalogueModel:
    """Make a catalogue model's inventory with some of its parameters chosen.

    Args:
        entry: The model.
        values: Values of parameters; the published ones by default.

    Raises:
        InputError: A value is not possible; the reason and the possible ones are named.
    """
    try:
        return _instantiate(entry, values)
    except (TypeError, ValueError, AttributeError, KeyError) as error:  # a value of another kind than its key wants
        raise _bad(f"model {entry.name}", f"a value is of the wrong kind: {error}") from None


def _instantiate(entry: ModelEntry, values: Mapping[str, int] | None) -> CatalogueModel:
    chosen = {p.name: (values or {}).get(p.name, p.default) for p in entry.parameters}
    for parameter in entry.parameters:
        value = chosen[parameter.name]
        objection = parameter.objection(value)
        if objection is not None:
            raise InputError(
                f"{entry.name}: {parameter.name} cannot be {value:,}",
                why=objection,
                fix=f"possible are {', '.join(f'{v:,}' for v in parameter.allowed)}",
                facts={"parameter": parameter.name, "value": value, "allowed": list(parameter.allowed)},
            )
    is_published = all(chosen[p.name] == p.default for p in entry.parameters)
    table = entry.table
    dimensions: dict[str, int] = dict(chosen)
    for key, expression in table.get("dimensions", {}).items():
        dimensions[key] = evaluate(expression, dimensions)
    layers = layer_sets(table.get("layers", {}))
    suffix = "" if is_published else f":{_shown(chosen)}"
    payload = entry.fact("tensor_bytes").number if is_published else None
    on_disk = entry.fact("file_bytes").number if is_published else None
    inventory = build_inventory(
        source=f"catalogue:{entry.name}{suffix}",
        format=_format(table["format"]),
        family=table.get("family"),
        architecture=_architecture(entry, dimensions),
        rows=table["tensors"],
        dimensions=dimensions,
        layers=layers,
        published_tensor_bytes=None if payload is None else int(payload),
        published_file_bytes=None if on_disk is None else int(on_disk),
        notes=entry.notes,
    )
    return CatalogueModel(
        entry=entry,
        values=chosen,
        is_published=is_published,
        inventory=inventory,
        context_items=tuple(_context_item(entry, row, dimensions, layers) for row in table.get("context", ())),
        routed_code_bits=table.get("routed_code_bits"),
    )


def _format(text: str) -> Literal["gguf", "safetensors"]:
    return "gguf" if text == "gguf" else "safetensors"


def _architecture(entry: ModelEntry, dimensions: Mapping[str, int]) -> Architecture:
    known = {f.name for f in fields(Architecture)}
    stated: dict[str, Any] = {}
    for key, value in entry.table["architecture"].items():
        if key not in known:
            raise _bad(f"model {entry.name}, architecture", f"{key!r} is no field; known: {', '.join(sorted(known))}")
        is_dimension = isinstance(value, str) and key != "name"
        stated[key] = (
            evaluate(value, dimensions) if is_dimension else tuple(value) if isinstance(value, list) else value
        )
    texts, lists = {"name", "chat_template_sha256"}, {"eos_token_ids"}
    for key, value in stated.items():
        wanted = str if key in texts else tuple if key in lists else bool if key == "tied_embeddings" else int
        if type(value) is not wanted:
            raise _bad(f"model {entry.name}, architecture", f"{key} is {value!r}, expected {wanted.__name__}")
    return Architecture(**stated)


def _context_item(
    entry: ModelEntry, row: Mapping[str, Any], dimensions: Mapping[str, int], layers: Mapping[str, tuple[int, ...]]
) -> ContextItem:
    where = f"model {entry.name}, context {row.get('name', '?')}"
    if set(row) - _CONTEXT_KEYS or not {"name", "layers", "elements"} <= set(row) or row["layers"] not in layers:
        raise _bad(where, f"known keys are {', '.join(sorted(_CONTEXT_KEYS))}, and `layers` names a set of layers")
    counts = [row[key] for key in ("tokens_per_entry", "window_tokens") if key in row]
    if any(type(count) is not int or count < 1 for count in counts) or not isinstance(row.get("type", ""), str):
        raise _bad(where, "tokens_per_entry and window_tokens are whole numbers of at least 1, and type is a name")
    heads = row.get("heads")
    return ContextItem(
        name=row["name"],
        layers=len(layers[row["layers"]]),
        elements=evaluate(row["elements"], dimensions),
        type=row.get("type", "bf16"),
        per="sequence" if row.get("per") == "sequence" else "token",
        tokens_per_entry=row.get("tokens_per_entry", 1),
        window_tokens=row.get("window_tokens"),
        heads=None if heads is None else evaluate(heads, dimensions),
        is_kv=row.get("is_kv", True),
        source=f"the catalogue entry {entry.name}",
    )


def _shown(values: Mapping[str, int]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())


def _bad(where: str, why: str) -> InputError:
    return InputError(f"a mistake in the catalogue: {where}", why=why, fix="correct the file")
