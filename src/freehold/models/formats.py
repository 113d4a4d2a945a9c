"""How many bytes a tensor takes: the storage types of GGUF and safetensors, from one table each.

A GGUF type packs a fixed number of weights into a block of a fixed number of bytes; a safetensors type has a fixed
number of bits per element. Both tables are data (``data/gguf_types.toml``, ``data/safetensors_types.toml``).
Read :class:`QuantFormat`; a :class:`RawTensor` is
what a header says of one tensor.

Does not do: decoding blocks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["QuantFormat", "RawTensor", "gguf_formats", "load_facts", "removed_gguf_types", "safetensors_bits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantFormat:
    """One storage type of GGUF tensors.

    Args:
        number: Its number in the file.
        name: Its name: ``Q4_1``, ``IQ1_S``, ``F32`` …
        weights_per_block: Weights that share a block; a row is a whole number of blocks.
        bytes_per_block: Size of a block, scales included.
    """

    number: int
    name: str
    weights_per_block: int
    bytes_per_block: int

    @property
    def bits_per_weight(self) -> float:
        """Bits per weight, scales included."""
        return 8 * self.bytes_per_block / self.weights_per_block


class RawTensor(NamedTuple):
    """One tensor as a header states it: row-major shape, payload bytes, offset from the start of the data."""

    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int
    offset: int


@lru_cache(maxsize=16)
def load_facts(name: str) -> Mapping[str, Any]:
    """A table of facts from ``freehold/data``; it says its own source and date."""
    return tomllib.loads(files("freehold").joinpath("data", name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def gguf_formats() -> Mapping[int, QuantFormat]:
    """Every storage type of GGUF by its number."""
    columns = load_facts("gguf_types.toml")["columns"]
    rows = [QuantFormat(**dict(zip(columns, row, strict=True))) for row in load_facts("gguf_types.toml")["types"]]
    return MappingProxyType({row.number: row for row in rows})


@lru_cache(maxsize=1)
def removed_gguf_types() -> Mapping[int, str]:
    """Numbers that once were types, with their names; files that use them have to be made again."""
    return MappingProxyType({int(number): name for number, name in load_facts("gguf_types.toml")["removed"].items()})


@lru_cache(maxsize=1)
def safetensors_bits() -> Mapping[str, int]:
    """Bits per element of every storage type of safetensors, by name."""
    return MappingProxyType(dict(load_facts("safetensors_types.toml")["bits"]))
