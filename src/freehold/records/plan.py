"""The choice: what it needs, whether that fits, how fast it can be at most.

Does not do: arithmetic (``plan/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from freehold.evidence import Evidence
from freehold.records.base import record

__all__ = ["MemoryContract", "MemoryTerm", "Plan"]


@record
class MemoryTerm:
    """One named share of memory.

    Args:
        name: ``weights``, ``kv_cache``, ``workspace``, ``runtime`` …
        bytes: How much, with its lineage.
        detail: The sum in words, so that a reader can redo it.
    """

    name: str
    bytes: Evidence
    detail: str


@record
class MemoryContract:
    """What a node's memory has to give.

    Args:
        contract_free_bytes: Bytes that must be free before the load begins.
        peak_bytes: Most bytes in use at any moment of load and work.
        steady_bytes: Bytes in use while it serves.
    """

    contract_free_bytes: Evidence
    peak_bytes: Evidence
    steady_bytes: Evidence


@record
class Plan:
    """Does it fit in this machine's free memory at the asked context, and what is the decode ceiling.

    Args:
        made_from: sha256 of each record and file it was made from, by name.
        model: Name of the model.
        engine: Name of the engine.
        context_tokens: Tokens per sequence.
        sequences: Sequences at once.
        terms: Every share of memory.
        contract: What must be free.
        free_memory_bytes: What is free.
        fits: Whether the contract is met; None where a term is not known and the known ones do not settle it.
        max_context_tokens: Longest context that fits with this many sequences; not measured where a KV size is unknown.
        step_bytes: Bytes one decode step of one sequence reads at the shortest context.
        read_bandwidth_bytes_per_s: Measured memory read bandwidth.
        decode_ceiling_tok_per_s: Upper bound for one sequence; a bound, never a prediction.
        notes: What is not certain, one sentence each.
    """

    schema: Literal["freehold.plan/1"] = "freehold.plan/1"
    made_from: Mapping[str, str]
    model: str
    engine: str
    context_tokens: int
    sequences: int
    terms: tuple[MemoryTerm, ...]
    contract: MemoryContract
    free_memory_bytes: Evidence
    fits: bool | None
    max_context_tokens: Evidence
    step_bytes: Evidence
    read_bandwidth_bytes_per_s: Evidence
    decode_ceiling_tok_per_s: Evidence
    notes: tuple[str, ...] = ()
