"""What one token, or one sequence, leaves in memory while it is served: keys and values, latents, recurrent state.

An item says in how many layers, how many elements, whether per token or per sequence, how far back it is kept, and
whether it is divided by heads between ranks or kept whole on each. Read :class:`ContextItem`, then
:func:`items_of_inventory`.

Does not do: bytes per rank (``plan/residency.py``), or sizes that neither a header nor the catalogue states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal

from freehold.records.inventory import Inventory, Role, Tensor

__all__ = ["ContextItem", "KnownContext", "items_of_inventory"]

_RECURRENT = frozenset({Role.SSM_PROJ, Role.SSM_STATE})
_ATTENTION = frozenset({Role.ATTN_QKV, Role.ATTN_MLA})


_DELTA_PARTS = {
    "ssm_a": "decay", "A_log": "decay",
    "ssm_conv1d_q": "q", "q_conv1d": "q", "ssm_conv1d_k": "k", "k_conv1d": "k", "ssm_conv1d_v": "v", "v_conv1d": "v",
}  # fmt: skip
"""Names of the tensors that give the size of the state: GGUF's and the publisher's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem:
    """One kind of thing that is kept while a sequence lives.

    Args:
        name: ``keys_values``, ``mla_latent``, ``linear_state`` …
        layers: Layers that keep it.
        elements: Elements per layer and token, or per layer and sequence.
        type: Storage unless the recipe says otherwise: ``bf16``, ``f32`` … (``data/kv_types.toml``).
        per: What it is kept for.
        tokens_per_entry: Tokens that share one entry; 1 unless the model compresses its cache.
        window_tokens: Entries of older tokens are dropped; None keeps all.
        heads: Heads that ranks divide between them; None means that every rank keeps all of it.
        is_kv: Whether it is cache that a KV type applies to; recurrent state is not.
        source: Where its size comes from.
    """

    name: str
    layers: int
    elements: int
    type: str = "bf16"
    per: Literal["token", "sequence"] = "token"
    tokens_per_entry: int = 1
    window_tokens: int | None = None
    heads: int | None = None
    is_kv: bool = True
    source: str = "the checkpoint's header"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownContext:
    """What a header says of what is kept.

    Args:
        items: Everything whose size is known.
        missing: Why the size of the rest is not known, one sentence; "" where all is known.
        notes: What else to know, one sentence each.
    """

    items: tuple[ContextItem, ...] = ()
    missing: str = ""
    notes: tuple[str, ...] = ()


def items_of_inventory(inventory: Inventory) -> KnownContext:
    """What a checkpoint's own header says is kept, and what it does not say.

    Args:
        inventory: The checkpoint.

    Returns:
        The items, and why others are missing.
    """
    arch = inventory.architecture
    recurrent = _layers_with(inventory.tensors, _RECURRENT)
    attention = _layers_with(inventory.tensors, _ATTENTION)
    state = _delta_state(inventory, recurrent)
    missing = (
        f"{len(recurrent)} layers keep a recurrent state whose size the header does not give."
        if recurrent and not state
        else ""
    )
    if arch.kv_lora_rank is not None:
        if arch.rope_head_dim is None:
            return KnownContext(missing="The header does not say how wide the rotary key beside the latent is.")
        latent_layers = _layers_with(inventory.tensors, frozenset({Role.ATTN_MLA}))
        layers = len(latent_layers) or arch.num_layers or 0
        item = ContextItem(name="mla_latent", layers=layers, elements=arch.kv_lora_rank + arch.rope_head_dim)
        return KnownContext(items=(item, *state), missing=missing)
    if arch.num_kv_heads is None or arch.head_dim is None or arch.num_layers is None:
        return KnownContext(missing="The header does not say how many key/value heads there are, or how wide they are.")
    value_dim = arch.head_dim if arch.value_head_dim is None else arch.value_head_dim
    item = ContextItem(
        name="keys_values",
        layers=len(attention - recurrent) or (0 if recurrent else arch.num_layers),
        elements=arch.num_kv_heads * (arch.head_dim + value_dim),
        heads=arch.num_kv_heads,
    )
    notes: tuple[str, ...] = ()
    if arch.sliding_window is not None:
        notes = (
            f"Some layers look back only {arch.sliding_window:,} tokens; the header does not say which, so all are "
            "counted with the whole context: an upper bound.",
        )
    return KnownContext(items=(item, *state), missing=missing, notes=notes)


def _delta_state(inventory: Inventory, layers: set[int]) -> tuple[ContextItem, ...]:
    """State of Kimi Delta Attention, from the shapes of its tensors; nothing where a layer is of another kind.

    A head keeps a matrix of key width × value width, and the convolutions of query, key and value their last inputs.
    """
    shapes: dict[int, dict[str, tuple[int, ...]]] = {layer: {} for layer in layers}
    for tensor in inventory.tensors:
        part = _DELTA_PARTS.get(tensor.name.removesuffix(".weight").rsplit(".", 1)[-1])
        if part is not None and tensor.layer in shapes:
            shapes[tensor.layer][part] = tensor.shape
    kinds = {tuple(sorted(found.items())) for found in shapes.values()}
    if len(kinds) != 1 or {part for part, _ in next(iter(kinds))} != set(_DELTA_PARTS.values()):
        return ()
    found = dict(next(iter(kinds)))
    heads = prod(found["decay"])
    widths = [found[name][0] for name in ("q", "k", "v")]
    if any(width % heads for width in widths) or widths[0] != widths[1]:
        return ()
    source = "shapes of the tensors; four bytes per element, as published deployments keep it"
    inputs = sum(found[name][0] * (found[name][-1] - 1) for name in ("q", "k", "v"))
    state = heads * (widths[1] // heads) * (widths[2] // heads)
    return tuple(
        ContextItem(
            name=name,
            layers=len(layers),
            elements=size,
            type="f32",
            per="sequence",
            heads=heads,
            is_kv=False,
            source=source,
        )
        for name, size in (("delta_state", state), ("delta_conv", inputs))
    )


def _layers_with(tensors: Iterable[Tensor], roles: frozenset[Role]) -> set[int]:
    return {t.layer for t in tensors if t.layer is not None and t.role in roles}
