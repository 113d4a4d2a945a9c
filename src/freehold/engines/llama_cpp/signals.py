"""Says what a line of llama.cpp's log means, and which lines of a dead server's log are its last words.

Patterns are data (``data/engines/llama_cpp_log.toml``), tested on captures of real logs. Read :func:`read_line`.

Does not do: following a file (``launch/watch.py``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from freehold.engines.interface import LogEvent
from freehold.units import format_memory

__all__ = ["last_words", "read_line"]

_MOST_LAST_WORDS = 5
_UNIT_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    kind: str
    expression: re.Pattern[str]
    message: str
    facts: Mapping[str, str]
    is_decisive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    prefix: re.Pattern[str]
    patterns: tuple[_Pattern, ...]


@lru_cache(maxsize=1)
def _table() -> _Table:
    path = files("freehold") / "data" / "engines" / "llama_cpp_log.toml"
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return _Table(
        prefix=re.compile(data["prefix"]),
        patterns=tuple(
            _Pattern(
                kind=row["kind"],
                expression=re.compile(row["expression"]),
                message=row["message"],
                facts=row.get("facts", {}),
                is_decisive=row.get("decisive", False),
            )
            for row in data["pattern"]
        ),
    )


def _to_bytes(text: str) -> int:
    number, _, unit = text.partition(" ")
    return round(float(number) * _UNIT_BYTES[unit])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    event: LogEvent
    is_decisive: bool


def _read(line: str) -> _Reading | None:
    table = _table()
    prefix = table.prefix.match(line)
    text = line[prefix.end() :] if prefix else line
    for pattern in table.patterns:
        found = pattern.expression.search(text)
        if found is None:
            continue
        groups = {name: (value or "").strip() for name, value in found.groupdict().items()}
        loaded = _to_bytes(groups["loaded"]) if "loaded" in groups else None
        total = _to_bytes(groups["total"]) if "total" in groups else None
        if loaded is not None:
            groups |= {"loaded": format_memory(loaded), "loaded_bytes": str(loaded)}
        if total is not None:
            groups["total"] = format_memory(total)
        if "mib" in groups:
            size = _to_bytes(f"{groups['mib']} MiB")
            groups |= {"mib": format_memory(size), "mib_bytes": str(size)}
        if "features" in groups:
            groups["features"] = " ".join(re.findall(r"(\w+) = 1\b", groups["features"]))
        if "bytes" in groups:
            groups["bytes"] = format_memory(int(groups["bytes"]))
        event = LogEvent(
            kind=pattern.kind,
            message=pattern.message.format_map(groups),
            line=line,
            done_bytes=loaded,
            total_bytes=total,
            facts={k.format_map(groups): v.format_map(groups) for k, v in pattern.facts.items()},
        )
        return _Reading(event=event, is_decisive=pattern.is_decisive)
    return None


def read_line(line: str) -> LogEvent | None:
    """What a log line says; None when nothing of interest."""
    reading = _read(line.rstrip())
    return None if reading is None else reading.event


def last_words(log: str) -> tuple[str, ...]:
    """The decisive lines of a dead server's log, each once, at most five.

    Lines that name a cause come first; without any, those that the engine itself marked as errors, else the last
    lines that are not empty.
    """
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    decisive: dict[str, str] = {}
    errors: dict[str, str] = {}
    for line in lines:
        reading = _read(line)
        prefix = _table().prefix.match(line)
        text = line[prefix.end() :] if prefix else line
        if reading is not None and reading.is_decisive:
            decisive.setdefault(text, line)
        elif prefix and prefix.group("level") == "E":
            errors.setdefault(text, line)
    for found in (decisive, errors):
        if found:
            return tuple(found.values())[:_MOST_LAST_WORDS]
    return tuple(lines[-_MOST_LAST_WORDS:])
