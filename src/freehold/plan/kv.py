"""How large the KV cache is per token, from what the checkpoint says about its attention.

Grouped-query attention keeps one key and one value per key/value head and layer; latent attention (MLA) keeps one
latent vector and one rotary key per layer, shared by all heads. Layers without attention keep none, so layers are
counted by the tensors they hold, not by the number in the header: a model of 93 layers may have 24 that cache.
Where a header does not say enough, the answer is "not known", with the reason. Read :func:`read_kv_layout`.

Does not do: recurrent state of linear-attention layers; its size is in no header, and the plan says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from freehold.evidence import Evidence, calculate
from freehold.plan.constants import KvType
from freehold.records.inventory import Inventory, Role

__all__ = ["KvLayout", "kv_bytes_per_token", "read_kv_layout"]

_HEADER = "the checkpoint's header"
_RECURRENT = frozenset({Role.SSM_PROJ, Role.SSM_STATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """What one token leaves behind in each layer that caches.

    Args:
        kind: ``latent`` for MLA, ``grouped`` for everything with key and value heads.
        layers: Layers that cache.
        key_elements: Elements of keys (or of the latent with its rotary part) per token and layer.
        value_elements: Elements of values per token and layer; 0 where the latent holds them.
        recurrent_layers: Layers that keep a state instead, whose size is not known.
        window_tokens: Longest stretch that some layers look back; which layers is not said. None without.
        note: What is uncertain, one sentence; "" when nothing is.
    """

    kind: str
    layers: Evidence
    key_elements: Evidence
    value_elements: Evidence
    recurrent_layers: int = 0
    window_tokens: int | None = None
    note: str = ""


def read_kv_layout(inventory: Inventory) -> KvLayout:
    """How a checkpoint's layers cache, as far as its header and its tensors say.

    Args:
        inventory: The checkpoint.
    """
    arch = inventory.architecture
    recurrent = _layers_with(inventory, _RECURRENT)
    if arch.kv_lora_rank is not None:
        return KvLayout(
            kind="latent",
            layers=_count_layers(inventory, Role.ATTN_MLA, frozenset()),
            key_elements=_latent_elements(inventory),
            value_elements=Evidence.verified(0, "", source="latent attention: values are computed from the latent"),
            recurrent_layers=len(recurrent),
            note=_state_note(len(recurrent)),
        )
    both = _layers_with(inventory, frozenset({Role.ATTN_QKV})) & recurrent
    if both:
        layers = Evidence.not_measured(
            f"{len(both)} layers hold attention and recurrent tensors, and the header does not say which of them cache"
        )
    else:
        layers = _count_layers(inventory, Role.ATTN_QKV, recurrent)
    value_dim = arch.head_dim if arch.value_head_dim is None else arch.value_head_dim
    return KvLayout(
        kind="grouped",
        layers=layers,
        key_elements=_head_elements(arch.num_kv_heads, arch.head_dim, "key"),
        value_elements=_head_elements(arch.num_kv_heads, value_dim, "value"),
        recurrent_layers=len(recurrent),
        window_tokens=arch.sliding_window,
        note=_state_note(len(recurrent))
        or (
            f"some layers look back only {arch.sliding_window:,} tokens; the header does not say which, so all are "
            "counted with the whole context: an upper bound"
            if arch.sliding_window is not None
            else ""
        ),
    )


def kv_bytes_per_token(layout: KvLayout, key_type: KvType, value_type: KvType) -> Evidence:
    """Bytes that one token takes in the KV cache, all layers together.

    For 30 layers, 3 heads of 64 and f16: 30 × (192 + 192) × 2 B = 23,040 B.

    Args:
        layout: How the checkpoint caches.
        key_type: Storage of keys, or of the latent.
        value_type: Storage of values.

    Returns:
        Calculated bytes, or not measured with the reason.
    """
    return calculate(
        "B",
        f"layers × (key elements in {key_type.name} + value elements in {value_type.name})",
        lambda layers, keys, values: layers * (key_type.bytes_for(keys) + value_type.bytes_for(values)),
        layers=layout.layers,
        keys=layout.key_elements,
        values=layout.value_elements,
    )


def _layers_with(inventory: Inventory, roles: frozenset[Role]) -> frozenset[int]:
    return frozenset(t.layer for t in inventory.tensors if t.layer is not None and t.role in roles)


def _count_layers(inventory: Inventory, role: Role, without: frozenset[int]) -> Evidence:
    counted = _layers_with(inventory, frozenset({role})) - without
    if counted:
        return Evidence.verified(len(counted), "", source=f"layers that hold {role} tensors")
    if inventory.tensors and without:
        return Evidence.verified(0, "", source="no layer holds attention tensors")
    if inventory.architecture.num_layers is None:
        return Evidence.not_measured("the header does not say how many layers there are")
    return Evidence.verified(inventory.architecture.num_layers, "", source=f"number of layers in {_HEADER}")


def _latent_elements(inventory: Inventory) -> Evidence:
    arch = inventory.architecture
    names = {t.name for t in inventory.tensors}
    if inventory.format == "gguf" and any(n.endswith(".attn_kv_b.weight") for n in names):
        return Evidence.not_measured(
            "this GGUF holds the latent projection unsplit (attn_kv_b, an early conversion), and engines cache such "
            "files head by head"
        )
    if arch.rope_head_dim is None:
        return Evidence.not_measured("the header does not say the width of the rotary key")
    assert arch.kv_lora_rank is not None
    return Evidence.verified(
        arch.kv_lora_rank + arch.rope_head_dim,
        "",
        source=f"latent width {arch.kv_lora_rank} + rotary width {arch.rope_head_dim} in {_HEADER}",
    )


def _head_elements(num_kv_heads: int | None, head_dim: int | None, what: str) -> Evidence:
    if num_kv_heads is None:
        return Evidence.not_measured("the header does not say how many key/value heads there are")
    if head_dim is None:
        return Evidence.not_measured(f"the header does not say how wide a {what} head is")
    return Evidence.verified(num_kv_heads * head_dim, "", source=f"{num_kv_heads} heads × {head_dim} wide in {_HEADER}")


def _state_note(num_layers: int) -> str:
    if num_layers == 0:
        return ""
    return f"{num_layers} layers keep a recurrent state whose size the header does not give"
