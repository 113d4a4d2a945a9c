"""An engine's memory constants as typed values, read once from the plain mapping that the engine gives.

Every engine fills in what is known about it (``engines.Engine.memory_terms``); a section that is missing becomes None,
and the planner then says that the term is not known instead of taking it for nothing.

Read :class:`MemoryConstants`, then :func:`parse_constants`.

Does not do: arithmetic (``plan/footprint.py``), or knowing any engine.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, TypeVar

from freehold.errors import InputError
from freehold.records.recipe import OptionValue, Recipe

__all__ = [
    "Headroom",
    "KvRule",
    "KvType",
    "MemoryConstants",
    "NoFlashRule",
    "PromptCacheRule",
    "RepackRule",
    "RepackTypes",
    "RuntimeRule",
    "WorkspaceRule",
    "count_option",
    "kv_type",
    "parse_constants",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvType:
    """Storage of a KV cache element: bytes per block of elements."""

    name: str
    block_elements: int
    block_bytes: int

    def bytes_for(self, elements: int) -> int:
        """Bytes of some elements, whole blocks."""
        return -(-elements // self.block_elements) * self.block_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRule:
    """Which type the KV cache has and how contexts are rounded.

    Args:
        default_type: Type unless an option says otherwise.
        key_type_option: Engine option for keys; None without one.
        value_type_option: Engine option for values.
        granularity_tokens: Contexts are rounded up to a multiple of it, per sequence.
    """

    default_type: str
    key_type_option: str | None = None
    value_type_option: str | None = None
    granularity_tokens: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFlashRule:
    """What changes when flash attention is off: the option, the values that switch it off, the mask's width."""

    option: str
    off_values: tuple[str, ...]
    mask_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRule:
    """Constants of the compute buffer; the formula stands in ``plan/footprint.py``.

    Args:
        ubatch_tokens: Tokens of one micro-batch.
        ubatch_option: Engine option that changes it.
        batch_tokens: Tokens of one batch; a smaller batch makes the micro-batch smaller.
        batch_option: Engine option that changes it.
        mask_bytes: Bytes of an attention mask element.
        latent_head_floats: Floats per head and token beside latent and rotary, in latent attention.
        fixed_bytes: Beside all that.
        output_bytes_per_vocab_entry: Per sequence.
        no_flash: What changes without flash attention.
    """

    ubatch_tokens: int
    ubatch_option: str
    batch_tokens: int
    batch_option: str
    mask_bytes: int
    latent_head_floats: int
    fixed_bytes: int
    output_bytes_per_vocab_entry: int
    no_flash: NoFlashRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRule:
    """What the process takes beside model and buffers: a base, and more per vocabulary entry."""

    base_bytes: int
    bytes_per_vocab_entry: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepackTypes:
    """Storage types that are copied into another layout, for one runtime and processor, or for all others."""

    types: tuple[str, ...]
    runtime: str | None = None
    machine: str | None = None
    source: str | None = None
    checked: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepackRule:
    """When weights are copied at load.

    Args:
        option: Engine option that switches it off.
        measured: What was seen for one runtime and processor.
        other: An upper bound for all others.
    """

    option: str
    measured: RepackTypes
    other: RepackTypes


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCacheRule:
    """Memory for old prompts: engine option, its unit, the value that means no limit, and the default."""

    option: str
    default_bytes: int
    option_unit_bytes: int
    unlimited_value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """What to keep free beyond the prediction: a share of it, and at least some bytes."""

    share: float
    min_bytes: int
    source: str | None = None
    checked: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """Everything the planner knows about an engine's memory; None for what nobody measured."""

    source: str
    checked: str | None = None
    kv: KvRule | None = None
    workspace: WorkspaceRule | None = None
    runtime: RuntimeRule | None = None
    repack: RepackRule | None = None
    prompt_cache: PromptCacheRule | None = None
    headroom: Headroom | None = None


def parse_constants(plain: Mapping[str, Any], engine: str) -> MemoryConstants:
    """Read an engine's constants.

    Args:
        plain: ``source``, ``checked``, and the sections of :class:`MemoryConstants`, each optional.
        engine: Name of the engine, for the source of a value where the mapping has none.

    Raises:
        ValueError: A section has an unknown or a missing entry; that is a mistake in the engine's data.
    """
    unknown = set(plain) - {f.name for f in fields(MemoryConstants)}
    if unknown:
        raise ValueError(f"unknown memory constants of {engine}: {', '.join(sorted(unknown))}")
    checked = plain.get("checked")

    def section(name: str, cls: type[T], **nested: type[Any]) -> T | None:
        return _build(cls, plain[name], f"{engine}.{name}", nested) if name in plain else None

    return MemoryConstants(
        source=str(plain.get("source") or f"memory constants of {engine}"),
        checked=None if checked is None else str(checked),
        kv=section("kv", KvRule),
        workspace=section("workspace", WorkspaceRule, no_flash=NoFlashRule),
        runtime=section("runtime", RuntimeRule),
        repack=section("repack", RepackRule, measured=RepackTypes, other=RepackTypes),
        prompt_cache=section("prompt_cache", PromptCacheRule),
        headroom=section("headroom", Headroom),
    )


def _build(cls: type[T], plain: Mapping[str, Any], where: str, nested: Mapping[str, type[Any]]) -> T:
    values = {
        key: _build(nested[key], value, f"{where}.{key}", {})
        if key in nested
        else tuple(value)
        if isinstance(value, list)
        else value
        for key, value in plain.items()
    }
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"memory constants {where}: {error}") from None


@lru_cache(maxsize=1)
def _kv_types() -> Mapping[str, Any]:
    text = (files("freehold") / "data" / "kv_types.toml").read_text(encoding="utf-8")
    return {name: row for name, row in tomllib.loads(text).items() if isinstance(row, dict)}


def kv_type(name: str) -> KvType:
    """A KV cache type by its name.

    Raises:
        InputError: Nobody knows a type of that name.

    Source:
        ``data/kv_types.toml``.
    """
    row = _kv_types().get(name.lower())
    if row is None:
        raise InputError(
            f"an unknown type of KV cache: {name!r}",
            why="the size of its elements decides how much context fits",
            fix=f"known types are {', '.join(_kv_types())}",
        )
    return KvType(name=name.lower(), **row)


def count_option(recipe: Recipe, option: str | None, default: int) -> int:
    """An engine option that is a positive count, or the default.

    Raises:
        InputError: The recipe gives something else for it.
    """
    value: OptionValue | None = recipe.options.get(option) if option is not None else None
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(
            f"`options.{option}` is {value!r}, expected a whole number of at least 1",
            why="the memory plan depends on it",
            fix=f"give a number, or remove it: {default:,} is the default",
        )
    return value
