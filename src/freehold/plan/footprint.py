"""How much memory serving takes, term by term: weights, their copy, KV cache, workspace, old prompts, the process.

Every term is an :class:`~freehold.evidence.Evidence` with its inputs and a detail that a reader can redo on paper.
Read :func:`estimate_footprint`.

Does not do: whether it fits (``plan/estimate.py``), or anything of the machine but its processor's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from freehold.evidence import Evidence, calculate
from freehold.plan.constants import (
    KvType,
    MemoryConstants,
    WorkspaceRule,
    count_option,
    kv_type,
)
from freehold.plan.kv import KvLayout, kv_bytes_per_token, read_kv_layout
from freehold.records.inventory import Architecture, Inventory, Role
from freehold.records.plan import MemoryTerm
from freehold.records.recipe import Recipe
from freehold.units import format_bytes, format_memory

__all__ = ["Footprint", "estimate_footprint", "is_flash_off", "kv_types_of", "padded_context", "widest_floats"]

_MATRIX_ROLES = frozenset(Role) - {Role.NORM, Role.ROUTER, Role.RESIDUAL_SCORE, Role.TOKEN_EMBD, Role.OTHER}
"""Roles of tensors that are multiplied with; only those are copied into a kernel's layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """All terms at one context.

    Args:
        terms: The terms; an unknown one is among them with its reason.
        kv_bytes_per_token: KV cache of one token.
        layout: How the checkpoint caches.
    """

    terms: tuple[MemoryTerm, ...]
    kv_bytes_per_token: Evidence
    layout: KvLayout


def estimate_footprint(
    recipe: Recipe, inventory: Inventory, constants: MemoryConstants, *, machine: str, context_tokens: int
) -> Footprint:
    """What a recipe takes of memory at a context.

    Args:
        recipe: What is served: sequences and engine options count.
        inventory: The checkpoint.
        constants: What is known about the engine.
        machine: Processor architecture.
        context_tokens: Tokens per sequence.

    Raises:
        InputError: An option that memory depends on has no usable value.
    """
    layout = read_kv_layout(inventory)
    terms = [_weights(inventory), *_repack(recipe, inventory, constants, machine)]
    per_token = Evidence.not_measured("nobody measured how this engine stores its KV cache", "B")
    if constants.kv is not None:
        per_token = kv_bytes_per_token(layout, *kv_types_of(recipe, constants))
    terms.append(_kv_cache(recipe, per_token, constants, layout, context_tokens))
    if layout.recurrent_layers:
        terms.append(
            MemoryTerm(
                name="state",
                bytes=Evidence.not_measured(layout.note, "bytes_memory"),
                detail=f"{layout.recurrent_layers} layers × sequences × a size that is not in the header",
            )
        )
    terms.append(_workspace(recipe, inventory, constants, context_tokens))
    terms += _prompt_cache(recipe, constants)
    terms.append(_runtime(inventory, constants))
    return Footprint(terms=tuple(terms), kv_bytes_per_token=per_token, layout=layout)


def padded_context(context_tokens: int, constants: MemoryConstants) -> int:
    """A context as the engine rounds it up, per sequence."""
    step = constants.kv.granularity_tokens if constants.kv is not None else 1
    return -(-context_tokens // step) * step


def kv_types_of(recipe: Recipe, constants: MemoryConstants) -> tuple[KvType, KvType]:
    """Storage of keys and of values: what the recipe's options say, else the engine's default.

    Raises:
        InputError: An option names a type nobody knows.
    """
    rule = constants.kv
    assert rule is not None, "only called where the engine's KV storage is known"
    chosen = [
        str(recipe.options.get(option, rule.default_type)) if option is not None else rule.default_type
        for option in (rule.key_type_option, rule.value_type_option)
    ]
    return kv_type(chosen[0]), kv_type(chosen[1])


def is_flash_off(recipe: Recipe, rule: WorkspaceRule) -> bool:
    """Whether the recipe switches flash attention off."""
    if rule.no_flash is None or rule.no_flash.option not in recipe.options:
        return False
    value = recipe.options[rule.no_flash.option]
    return value is False or str(value).lower() in rule.no_flash.off_values


def _weights(inventory: Inventory) -> MemoryTerm:
    return MemoryTerm(
        name="weights",
        bytes=Evidence.verified(
            inventory.tensor_bytes, "bytes_memory", source=f"sum over the tensors in the headers of {inventory.source}"
        ),
        detail=f"{inventory.num_tensors:,} tensors, {format_bytes(inventory.tensor_bytes)}",
    )


def _repack(recipe: Recipe, inventory: Inventory, constants: MemoryConstants, machine: str) -> Iterator[MemoryTerm]:
    rule = constants.repack
    if rule is None or recipe.options.get(rule.option) is False:
        return
    seen = rule.measured
    is_seen = recipe.engine.runtime == seen.runtime and machine == seen.machine
    types = frozenset(seen.types if is_seen else rule.other.types)
    is_tied = not any(t.role is Role.OUTPUT_HEAD for t in inventory.tensors)
    copied = sum(
        t.bytes
        for t in inventory.tensors
        if t.type.upper() in types and (t.role in _MATRIX_ROLES or (is_tied and t.role is Role.TOKEN_EMBD))
    )
    if not copied:
        return
    names = sorted({t.type for t in inventory.tensors if t.type.upper() in types})
    source = constants.source if is_seen else rule.other.source or constants.source
    yield MemoryTerm(
        name="weights_copy",
        bytes=calculate(
            "bytes_memory",
            "bytes of the matrices of the copied types",
            lambda matrices, types: matrices,
            matrices=Evidence.verified(copied, "bytes_memory", source="tensors in the headers"),
            types=Evidence.assumed(", ".join(names), source=source),
        ),
        detail=f"matrices of type {', '.join(names)} are copied into the kernels' layout"
        + ("" if is_seen else ", at most: this build and processor were not measured"),
    )


def _kv_cache(
    recipe: Recipe, per_token: Evidence, constants: MemoryConstants, layout: KvLayout, context_tokens: int
) -> MemoryTerm:
    context = padded_context(context_tokens, constants)
    rounded = "" if context == context_tokens else f" (rounded up from {context_tokens:,})"
    shown = f"{per_token.value:,} B" if isinstance(per_token.value, int) else "unknown"
    bound = ", an upper bound" if layout.window_tokens is not None else ""
    return MemoryTerm(
        name="kv_cache",
        bytes=calculate(
            "bytes_memory",
            "bytes per token × context × sequences",
            lambda bytes_per_token, context, sequences: bytes_per_token * context * sequences,
            bytes_per_token=per_token,
            context=Evidence.verified(context, "tokens", source=f"the recipe{rounded}"),
            sequences=Evidence.verified(recipe.sequences, "", source="the recipe"),
        ),
        detail=f"{shown} per token × {context:,} tokens{rounded} × {_sequences(recipe.sequences)}{bound}",
    )


def widest_floats(arch: Architecture, rule: WorkspaceRule, *, context_tokens: int, is_flash: bool) -> int | None:
    """Floats per token at the widest point of a layer; None where the header does not give the widths.

    For a dense model 576 wide with a feed-forward of 1,536: 5 × 576 + 3 × 1,536 = 7,488.

    Args:
        arch: The checkpoint's widths.
        rule: The engine's constants.
        context_tokens: Tokens per sequence; counts only without flash attention.
        is_flash: Whether flash attention is on.
    """
    hidden, heads = arch.hidden_size, arch.num_heads
    if hidden is None or heads is None:
        return None
    points = []
    if arch.kv_lora_rank is not None:
        if arch.rope_head_dim is None:
            return None
        latent = 2 * (arch.kv_lora_rank + arch.rope_head_dim) + rule.latent_head_floats
        points.append(3 * hidden + heads * latent)
    else:
        if arch.head_dim is None or arch.num_kv_heads is None:
            return None
        query, key = heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
        points.append(5 * hidden + (max(2 * query, query + 3 * key) if is_flash else query + 2 * key))
    if not is_flash:
        points[0] += heads * context_tokens
    if arch.num_experts_per_token is not None and arch.expert_ffn_size is not None:
        experts = arch.num_experts_per_token
        points.append(hidden + experts * (hidden + 3 * arch.expert_ffn_size))
        points.append(3 * hidden + 2 * experts * hidden)
    if arch.ffn_size is not None:
        points.append(5 * hidden + 3 * arch.ffn_size)
    return max(points) if len(points) > 1 else None


def _workspace(recipe: Recipe, inventory: Inventory, constants: MemoryConstants, context_tokens: int) -> MemoryTerm:
    rule, arch = constants.workspace, inventory.architecture
    if rule is None:
        unknown = Evidence.not_measured("nobody measured the workspace of this engine", "bytes_memory")
        return MemoryTerm(name="workspace", bytes=unknown, detail="activations of one micro-batch")
    context = padded_context(context_tokens, constants)
    is_flash = not is_flash_off(recipe, rule)
    floats = widest_floats(arch, rule, context_tokens=context, is_flash=is_flash)
    if floats is None or arch.vocab_size is None:
        unknown = Evidence.not_measured("the header does not give all widths of the layers", "bytes_memory")
        return MemoryTerm(name="workspace", bytes=unknown, detail="activations of one micro-batch")
    assert rule.no_flash is not None or is_flash
    mask_bytes = rule.mask_bytes if rule.no_flash is None or is_flash else rule.no_flash.mask_bytes
    ubatch = min(
        count_option(recipe, rule.ubatch_option, rule.ubatch_tokens),
        count_option(recipe, rule.batch_option, rule.batch_tokens),
        context * recipe.sequences,
    )
    output_bytes = recipe.sequences * arch.vocab_size * rule.output_bytes_per_vocab_entry
    return MemoryTerm(
        name="workspace",
        bytes=calculate(
            "bytes_memory",
            "micro-batch × (4 B × widest point of a layer + mask × context) + fixed + output row of each sequence",
            lambda ubatch, floats, context, engine: (
                ubatch * (4 * floats + mask_bytes * context) + rule.fixed_bytes + output_bytes
            ),
            ubatch=Evidence.verified(ubatch, "tokens", source="recipe, options and the engine's default"),
            floats=Evidence.verified(floats, "", source="widths in the checkpoint's header"),
            context=Evidence.verified(context, "tokens", source="the recipe, rounded up by the engine"),
            engine=Evidence.assumed("fitted", source=constants.source),
        ),
        detail=f"micro-batch {ubatch:,} × ({floats:,} floats × 4 B + {context:,} tokens × {mask_bytes} B mask)"
        + ("" if is_flash else " without flash attention")
        + f" + {format_memory(rule.fixed_bytes + output_bytes)} outputs",
    )


def _prompt_cache(recipe: Recipe, constants: MemoryConstants) -> Iterator[MemoryTerm]:
    rule = constants.prompt_cache
    if rule is None:
        return
    value = recipe.options.get(rule.option)
    if value == rule.unlimited_value:
        unknown = Evidence.not_measured(
            f"`options.{rule.option}: {value}` sets no limit to old prompts", "bytes_memory"
        )
        yield MemoryTerm(name="prompt_cache", bytes=unknown, detail="old prompts kept for reuse")
        return
    is_given = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    size = int(value) * rule.option_unit_bytes if is_given and value is not None else rule.default_bytes
    if size:
        yield MemoryTerm(
            name="prompt_cache",
            bytes=Evidence.verified(size, "bytes_memory", source=f"`{rule.option}` of the engine, its limit"),
            detail="old prompts kept for reuse, at most",
        )


def _runtime(inventory: Inventory, constants: MemoryConstants) -> MemoryTerm:
    rule, vocab_size = constants.runtime, inventory.architecture.vocab_size
    if rule is None:
        unknown = Evidence.not_measured("nobody measured the process of this engine", "bytes_memory")
        return MemoryTerm(name="runtime", bytes=unknown, detail="program, libraries, vocabulary")
    entries = (
        Evidence.verified(vocab_size, "", source="the checkpoint's header")
        if vocab_size is not None
        else Evidence.not_measured("the header does not give the size of the vocabulary")
    )
    return MemoryTerm(
        name="runtime",
        bytes=calculate(
            "bytes_memory",
            "base + bytes per vocabulary entry × entries",
            lambda base, per_entry, entries: base + per_entry * entries,
            base=Evidence.assumed(rule.base_bytes, "bytes_memory", source=constants.source),
            per_entry=Evidence.assumed(rule.bytes_per_vocab_entry, "B", source=constants.source),
            entries=entries,
        ),
        detail=f"program and libraries {format_memory(rule.base_bytes)} + {rule.bytes_per_vocab_entry} B × "
        f"{'unknown' if vocab_size is None else f'{vocab_size:,}'} vocabulary entries",
    )


def _sequences(count: int) -> str:
    return "1 sequence" if count == 1 else f"{count:,} sequences"
