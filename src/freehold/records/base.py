"""Turns record types into JSON and back, strictly, and names each by the hash of its bytes.

A record is a frozen dataclass whose first field is ``schema: Literal["freehold.<name>/<n>"]``. :func:`encode` and
:func:`decode` are the only way in and out. Types are declared with :func:`record`, which makes unknown fields an error.

Does not do: files and folders (``records/folder.py``).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

from freehold.errors import InputError

__all__ = ["Record", "decode", "encode", "json_schema", "record", "schema_name", "sha256_hex", "to_plain"]

T = TypeVar("T")
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class Record(Protocol):
    """Any schema-stamped, frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def schema(self) -> str:
        """Name and version, such as ``freehold.plan/1``."""
        ...


R = TypeVar("R", bound=Record)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only, slotted dataclass that refuses unknown fields when it is read."""
    cls.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@lru_cache(maxsize=64)
def _adapter(cls: type[Any]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def schema_name(cls: type[Record]) -> str:
    """The schema a record type is stamped with."""
    for f in fields(cls):
        if f.name == "schema":
            return str(f.default)
    raise TypeError(f"{cls.__name__} has no schema field")


def to_plain(value: object) -> Any:
    """A record (or any part of one) as dicts, lists and JSON scalars."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"not a record: {type(value).__name__}")
    return _adapter(type(value)).dump_python(value, mode="json")


def encode(value: Record) -> bytes:
    """A record as indented UTF-8 JSON with a final newline; the same record always gives the same bytes.

    Half of a surrogate pair, which a path or a server's answer may hold and UTF-8 may not, is spelled out: ``\\udcff``.
    """
    text = json.dumps(to_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return _HALF_PAIR.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()


def decode(cls: type[R], data: bytes, *, name: str = "record") -> R:
    """Read a record of a known type.

    Args:
        cls: The record type.
        data: UTF-8 JSON.
        name: What to call the source in an error, such as a path.

    Raises:
        InputError: No JSON, another schema, a missing or unknown field, or a value of the wrong type.
    """
    from pydantic import ValidationError

    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name} is no JSON", why=str(error), fix="delete it and run the stage that writes it again"
        ) from None
    expected = schema_name(cls)
    found = plain.get("schema") if isinstance(plain, dict) else None
    if found != expected:
        raise InputError(
            f"{name} has schema {found!r}, expected {expected!r}",
            why="it was written by another stage, or by another version of freehold",
            fix="use the version that wrote it, or run the stage again",
        )
    try:
        result: R = _adapter(cls).validate_json(data)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'record'}: {e['msg']}" for e in error.errors()[:5]]
        raise InputError(
            f"{name} does not follow {expected}",
            why="; ".join(lines),
            fix="records are not edited by hand; run the stage again",
        ) from None
    return result


def json_schema(cls: type[Record]) -> dict[str, Any]:
    """The JSON Schema of a record type, as published under ``data/schemas``."""
    schema: dict[str, Any] = _adapter(cls).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def sha256_hex(data: bytes) -> str:
    """Lower-case SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()
