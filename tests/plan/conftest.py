"""Checkpoints, machines and constants for planning tests, each built from plain numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from freehold.evidence import Evidence
from freehold.records.inventory import Architecture, GroupTotal, Inventory, Role, Tensor
from freehold.records.node import Accelerator, NodeFacts, NodeState
from freehold.records.recipe import BenchRequest, EngineRequest, OptionValue, Recipe

MIB, GIB = 2**20, 2**30

SMOLLM2 = Architecture(
    name="llama",
    vocab_size=49152,
    num_layers=30,
    hidden_size=576,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    ffn_size=1536,
    context_tokens=8192,
    tied_embeddings=True,
)
"""SmolLM2-135M-Instruct, from its header."""
DEEPSEEK_V3 = Architecture(
    name="DeepseekV3ForCausalLM",
    vocab_size=129280,
    num_layers=61,
    hidden_size=7168,
    num_heads=128,
    num_kv_heads=128,
    head_dim=192,
    value_head_dim=128,
    kv_lora_rank=512,
    rope_head_dim=64,
    ffn_size=18432,
    num_routed_experts=256,
    num_experts_per_token=8,
    num_shared_experts=1,
    expert_ffn_size=2048,
    context_tokens=163840,
)
"""DeepSeek-V3, from its config.json."""


def build_inventory(architecture: Architecture, tensors: Sequence[Tensor], *, format: str = "gguf") -> Inventory:
    """An inventory whose totals follow from its tensors."""

    def totals(key: str) -> dict[str, GroupTotal]:
        groups: dict[str, list[int]] = {}
        for tensor in tensors:
            groups.setdefault(str(getattr(tensor, key)), []).append(tensor.bytes)
        return {name: GroupTotal(bytes=sum(sizes), num_tensors=len(sizes)) for name, sizes in groups.items()}

    total = sum(t.bytes for t in tensors)
    return Inventory(
        source="test",
        format=format,  # type: ignore[arg-type]
        tensor_bytes=total,
        file_bytes=total,
        num_tensors=len(tensors),
        by_role=totals("role"),
        by_type=totals("type"),
        architecture=architecture,
        files=(),
        header_sha256="0" * 64,
        tensors=tuple(tensors),
    )


def tensor(role: Role, size: int, *, layer: int | None = None, type: str = "Q8_0", name: str | None = None) -> Tensor:
    """One tensor of a role and size."""
    return Tensor(
        name=name or f"{role}.{layer}", role=role, type=type, shape=(1, size), bytes=size, shard=0, layer=layer
    )


def dense_tensors(layers: int = 30, *, type: str = "Q4_1", is_tied: bool = True) -> list[Tensor]:
    """A dense model: 1 MB of attention and 2 MB of feed-forward a layer, 36 MB of embedding."""
    found = [tensor(Role.TOKEN_EMBD, 36_000_000, type=type)]
    for layer in range(layers):
        found.append(tensor(Role.ATTN_QKV, 1_000_000, layer=layer, type=type))
        found.append(tensor(Role.DENSE_FFN, 2_000_000, layer=layer, type=type))
        found.append(tensor(Role.NORM, 2_304, layer=layer, type="F32"))
    if not is_tied:
        found.append(tensor(Role.OUTPUT_HEAD, 36_000_000, type=type))
    return found


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine to plan for."""

    free_bytes: int | None = 16 * GIB
    bandwidth_bytes_per_s: float | None = 20e9
    machine: str = "x86_64"
    accelerators: tuple[Accelerator, ...] = field(default=())

    def facts(self) -> NodeFacts:
        return NodeFacts(
            name="local",
            system="Linux",
            machine=self.machine,
            processor="test",
            num_cores=2,
            memory_bytes=16 * GIB,
            accelerators=self.accelerators,
            python="3.11",
            libraries={},
        )

    def state(self) -> NodeState:
        missing = Evidence.not_measured("the system does not say", "bytes_memory")
        return NodeState(
            free_memory_bytes=missing
            if self.free_bytes is None
            else Evidence.measured(self.free_bytes, "bytes_memory", source="test"),
            swap_used_bytes=Evidence.measured(0, "bytes_memory", source="test"),
            free_disk_bytes=Evidence.measured(100 * GIB, "bytes_disk", source="test"),
            read_bandwidth_bytes_per_s=Evidence.not_measured("no buffer", "bytes/s")
            if self.bandwidth_bytes_per_s is None
            else Evidence.measured(self.bandwidth_bytes_per_s, "bytes/s", source="test", n=9),
            taken_at="2026-11-30T00:00:00Z",
        )


def build_recipe(
    context: int = 2048,
    sequences: int = 1,
    *,
    options: Mapping[str, OptionValue] | None = None,
    runtime: str = "embedded",
    concurrency: tuple[int, ...] = (1,),
) -> Recipe:
    """A recipe of some size."""
    return Recipe(
        name="test",
        model="test",
        engine=EngineRequest(name="llama.cpp", runtime=runtime),
        context=context,
        sequences=sequences,
        options=options or {},
        bench=BenchRequest(concurrency=concurrency),
    )


@pytest.fixture(scope="session")
def constants() -> dict[str, Any]:
    """The constants that freehold ships for its first engine."""
    text = (files("freehold") / "data" / "engines" / "llama_cpp_memory.toml").read_text()
    return tomllib.loads(text)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The builders of this file, for tests that cannot import it."""
    return SimpleNamespace(
        inventory=build_inventory,
        tensor=tensor,
        dense_tensors=dense_tensors,
        machine=Machine,
        recipe=build_recipe,
        smollm2=SMOLLM2,
        deepseek_v3=DEEPSEEK_V3,
    )
