"""Catalogue facts: several values side by side where sources differ, each with its kind, source and date.

A fact is a row of a TOML table: a name (``memory``), a basis (``labelled``, ``exposed``, ``usable``), a value with its
unit, who says so, where and when. Files of the user lie over ours: tables merge key by key, a list replaces a list.
Read :class:`Fact`, then :func:`read_facts`.

Does not do: what the facts are about (``hardware/catalogue.py``, ``models/catalogue.py``).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from freehold.errors import InputError
from freehold.evidence import Evidence, Kind

__all__ = ["Fact", "choose_fact", "merge_tables", "nearest", "parse_toml", "read_facts", "read_user_tables"]

_MAX_FILE_BYTES = 4 * 2**20
_ROW_KEYS = {"name", "basis", "value", "unit", "kind", "source", "checked", "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One statement about one thing.

    Args:
        name: What it is about: ``memory``, ``bandwidth``, ``price`` …
        basis: In which sense, where there are several: ``labelled``, ``exposed``, ``usable``; "" for the only one.
        evidence: The value with its unit, kind, source and date.
        note: What a reader should know about it; "" for nothing.
    """

    name: str
    basis: str
    evidence: Evidence
    note: str = ""


def read_facts(rows: object, where: str) -> tuple[Fact, ...]:
    """Read a list of fact rows.

    Args:
        rows: Tables with ``name value kind source checked`` and optionally ``basis unit note``.
        where: What to call the place in an error.

    Raises:
        InputError: A row lacks something, has something unknown, or is not a value at all.
    """
    if not isinstance(rows, list):
        raise _bad_row(where, f"`facts` is a {type(rows).__name__}, not a list of tables")
    return tuple(_read_row(row, f"{where}, fact {number}") for number, row in enumerate(rows, 1))


def _read_row(row: object, where: str) -> Fact:
    if not isinstance(row, dict):
        raise _bad_row(where, "it is not a table")
    unknown = sorted(set(row) - _ROW_KEYS)
    missing = sorted({"name", "value", "kind", "source", "checked"} - set(row))
    if unknown or missing:
        said = [f"unknown: {', '.join(unknown)}"] if unknown else []
        raise _bad_row(where, "; ".join([*said, *([f"missing: {', '.join(missing)}"] if missing else [])]))
    value, kind = row["value"], row["kind"]
    if not isinstance(value, bool | int | float | str):
        raise _bad_row(where, f"a value is a number or a text, not a {type(value).__name__}")
    if not isinstance(row["source"], str) or not row["source"].strip():
        raise _bad_row(where, f"{row['name']} has no source")
    if row.get("unit") and isinstance(value, bool | str):
        raise _bad_row(where, f"{value!r} is no number of {row['unit']}")
    if not isinstance(value, str | bool) and value < 0:
        raise _bad_row(where, f"{row['name']} is {value}, and no such quantity is negative")
    kinds = [k.value for k in Kind if k not in (Kind.NOT_MEASURED, Kind.MEASURED)]
    if kind not in kinds:
        raise _bad_row(where, f"kind is {kind!r}, expected one of {', '.join(kinds)}")
    checked = row["checked"]
    return Fact(
        name=str(row["name"]),
        basis=str(row.get("basis", "")),
        evidence=Evidence(
            value=value,
            kind=Kind(kind),
            unit=str(row.get("unit", "")),
            source=str(row["source"]),
            date=checked.isoformat() if isinstance(checked, date) else str(checked),
        ),
        note=str(row.get("note", "")),
    )


def choose_fact(facts: Iterable[Fact], name: str, basis: str | None = None) -> Evidence:
    """The fact to calculate with: of that name and basis, the most trusted kind, the first of equals.

    Args:
        facts: Facts about one thing.
        name: Which quantity.
        basis: In which sense; None takes any.

    Returns:
        Its evidence, or ``not_measured`` where the catalogue has none.
    """
    found = [f for f in facts if f.name == name and basis in (None, f.basis)]
    if not found:
        what = f"{basis} {name}" if basis else name
        return Evidence.not_measured(f"the catalogue has no {what.replace('_', ' ')}")
    return min(found, key=lambda f: f.evidence.kind.rank).evidence


def merge_tables(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one table over another: tables merge key by key, anything else replaces.

    Args:
        under: The table below.
        over: The table on top.
    """
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge_tables(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Read a TOML document.

    Raises:
        InputError: It is none; the place of the mistake is named.
    """
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where} is no TOML", why=str(error), fix="correct the line that is named") from None


def read_user_tables(paths: Sequence[Path]) -> list[tuple[str, dict[str, Any]]]:
    """Read the user's TOML files, in order.

    Args:
        paths: Files; one that does not exist is an error, so list only what is there.

    Raises:
        InputError: A file is too long or no TOML in UTF-8, or it cannot be read.
    """
    tables = []
    for path in paths:
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot read the catalogue file {path}", why=str(error), fix="correct it or take it out of the folder"
            ) from None
        if len(data) > _MAX_FILE_BYTES:
            raise InputError(
                f"{path} is longer than {_MAX_FILE_BYTES:,} B",
                why="a catalogue file holds facts, not data",
                fix="take it out of the folder",
            )
        tables.append((str(path), parse_toml(text, str(path))))
    return tables


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a misspelt one; None where nothing is.

    Args:
        name: What was asked for.
        known: Every name there is.
    """
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[found[0]] if found else None


def _bad_row(where: str, why: str) -> InputError:
    return InputError(f"a mistake in the catalogue: {where}", why=why, fix="correct the row")
