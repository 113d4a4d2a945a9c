"""Memory, term by term, with every sum spelled out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.errors import InputError
from freehold.evidence import Evidence
from freehold.plan.constants import MemoryConstants, kv_type, parse_constants
from freehold.plan.footprint import Footprint, estimate_footprint, padded_context, widest_floats
from freehold.plan.kv import kv_bytes_per_token, read_kv_layout
from freehold.records.inventory import Architecture, Inventory, Role
from freehold.records.recipe import Recipe

MIB = 2**20
F16, F32, Q8 = kv_type("f16"), kv_type("f32"), kv_type("q8_0")


def terms(
    recipe: Recipe,
    inventory: Inventory,
    constants: dict[str, Any] | MemoryConstants,
    *,
    machine: str = "x86_64",
    context_tokens: int | None = None,
) -> dict[str, Evidence]:
    parsed = constants if isinstance(constants, MemoryConstants) else parse_constants(constants, "test")
    found: Footprint = estimate_footprint(
        recipe, inventory, parsed, machine=machine, context_tokens=context_tokens or recipe.context
    )
    return {term.name: term.bytes for term in found.terms}


# --- KV cache ---------------------------------------------------------------------------------------------------------


def test_grouped_query_attention_by_hand(make: SimpleNamespace) -> None:
    layout = read_kv_layout(make.inventory(make.smollm2, []))
    # 30 layers × (3 key heads × 64 + 3 value heads × 64) × 2 B
    assert kv_bytes_per_token(layout, F16, F16).value == 30 * (3 * 64 + 3 * 64) * 2 == 23_040
    # q8_0 stores 32 elements in 34 bytes: 192 elements are 6 blocks
    assert kv_bytes_per_token(layout, Q8, Q8).value == 30 * (6 * 34 + 6 * 34) == 12_240
    assert kv_bytes_per_token(layout, Q8, F16).value == 30 * (6 * 34 + 192 * 2) == 17_640


def test_latent_attention_by_hand(make: SimpleNamespace) -> None:
    layout = read_kv_layout(make.inventory(make.deepseek_v3, [], format="safetensors"))
    # 61 layers × (latent 512 + rotary 64) × 2 B; 128 heads share it
    assert kv_bytes_per_token(layout, F16, F16).value == 61 * (512 + 64) * 2 == 70_272


def test_value_heads_may_have_another_width(make: SimpleNamespace) -> None:
    arch = replace(make.smollm2, value_head_dim=128)
    assert kv_bytes_per_token(read_kv_layout(make.inventory(arch, [])), F16, F16).value == 30 * (3 * 64 + 3 * 128) * 2


def test_only_layers_that_hold_attention_cache(make: SimpleNamespace) -> None:
    """93 layers, 24 with latent attention: the header's 93 would give 107,136 B, which is 3.9 times too much."""
    arch = replace(make.deepseek_v3, num_layers=93)
    mla = [make.tensor(Role.ATTN_MLA, 100, layer=layer) for layer in range(3, 96, 4)]
    kda = [make.tensor(Role.SSM_PROJ, 100, layer=layer) for layer in range(93) if layer % 4 != 3]
    assert len(mla) == 24
    layout = read_kv_layout(make.inventory(arch, mla + kda))
    assert kv_bytes_per_token(layout, F16, F16).value == 24 * (512 + 64) * 2 == 27_648
    assert layout.recurrent_layers == 70
    assert "70 layers keep a recurrent state" in layout.note


def test_a_hybrid_counts_its_attention_layers(make: SimpleNamespace) -> None:
    attention = [make.tensor(Role.ATTN_QKV, 100, layer=layer) for layer in (3, 7)]
    linear = [make.tensor(Role.SSM_STATE, 100, layer=layer) for layer in (0, 1, 2, 4, 5, 6)]
    layout = read_kv_layout(make.inventory(make.smollm2, attention + linear))
    assert layout.layers.value == 2
    assert kv_bytes_per_token(layout, F16, F16).value == 2 * 768


def test_a_model_of_recurrent_layers_alone_caches_nothing(make: SimpleNamespace) -> None:
    layout = read_kv_layout(make.inventory(make.smollm2, [make.tensor(Role.SSM_STATE, 1, layer=i) for i in range(5)]))
    assert kv_bytes_per_token(layout, F16, F16).value == 0
    assert layout.recurrent_layers == 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_layers": None}, "how many layers there are"),
        ({"num_kv_heads": None}, "how many key/value heads there are"),
        ({"head_dim": None}, "how wide a key head is"),
        ({"kv_lora_rank": 512, "rope_head_dim": None}, "the width of the rotary key"),
    ],
)
def test_what_a_header_does_not_say_is_not_guessed(
    make: SimpleNamespace, change: dict[str, int | None], reason: str
) -> None:
    layout = read_kv_layout(make.inventory(replace(make.smollm2, **change), []))
    evidence = kv_bytes_per_token(layout, F16, F16)
    assert evidence.is_missing
    assert reason in str(evidence.reason)


def test_layers_that_hold_both_kinds_are_not_guessed(make: SimpleNamespace) -> None:
    both = [make.tensor(role, 1, layer=0) for role in (Role.ATTN_QKV, Role.SSM_STATE)]
    evidence = kv_bytes_per_token(read_kv_layout(make.inventory(make.smollm2, both)), F16, F16)
    assert "1 layers hold attention and recurrent tensors" in str(evidence.reason)


def test_an_early_conversion_of_latent_attention_is_not_guessed(make: SimpleNamespace) -> None:
    old = [make.tensor(Role.ATTN_MLA, 1, layer=0, name="blk.0.attn_kv_b.weight")]
    assert "unsplit" in str(kv_bytes_per_token(read_kv_layout(make.inventory(make.deepseek_v3, old)), F16, F16).reason)
    hub = read_kv_layout(make.inventory(make.deepseek_v3, old, format="safetensors"))
    assert kv_bytes_per_token(hub, F16, F16).value == 1 * 576 * 2


def test_a_window_of_unknown_layers_is_counted_whole_and_said(make: SimpleNamespace) -> None:
    layout = read_kv_layout(make.inventory(replace(make.smollm2, sliding_window=512), []))
    assert kv_bytes_per_token(layout, F16, F16).value == 23_040
    assert layout.window_tokens == 512
    assert "an upper bound" in layout.note


def test_an_unknown_type_of_cache_is_refused(make: SimpleNamespace, constants: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="an unknown type of KV cache: 'q3_0'"):
        terms(make.recipe(options={"cache-type-k": "q3_0"}), make.inventory(make.smollm2, []), constants)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("f32", 32), ("f16", 16), ("bf16", 16), ("fp8", 8), ("q8_0", 8.5), ("q5_1", 6), ("q5_0", 5.5), ("q4_1", 5),
     ("q4_0", 4.5), ("iq4_nl", 4.5)],
)  # fmt: skip
def test_bits_per_element_of_every_type(name: str, bits: float) -> None:
    assert kv_type(name).bytes_for(320) * 8 == bits * 320
    assert kv_type(name.upper()) == kv_type(name)


@pytest.mark.parametrize("name", ["Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL", "BF16", "F16", "F32"])
def test_block_sizes_are_those_of_the_gguf_package(name: str) -> None:
    import gguf

    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    ours = kv_type(name)
    assert (ours.block_elements, ours.block_bytes) == (elements, size)


# --- all terms --------------------------------------------------------------------------------------------------------


def test_all_terms_of_a_small_model_by_hand(make: SimpleNamespace, constants: dict[str, Any]) -> None:
    found = terms(make.recipe(2048), make.inventory(make.smollm2, make.dense_tensors()), constants)
    assert {name: e.value for name, e in found.items()} == {
        "weights": 36_000_000 + 30 * (1_000_000 + 2_000_000 + 2_304),
        "kv_cache": 23_040 * 2048,
        # 512 tokens × ((5 × 576 + 3 × 1,536) floats × 4 B + 2,048 × 2 B of mask) + 32 KiB + one row of 49,152 floats
        "workspace": 512 * ((5 * 576 + 3 * 1536) * 4 + 2048 * 2) + 32768 + 49152 * 4,
        "runtime": 48_758_784 + 420 * 49_152,
    }
    assert found["weights"].trust == "verified"
    assert found["kv_cache"].trust == "calculated", "from the header and the recipe alone"
    assert found["workspace"].trust == "assumed", "the engine's constants are a fit"


def test_contexts_are_rounded_up_per_sequence(make: SimpleNamespace, constants: dict[str, Any]) -> None:
    parsed = parse_constants(constants, "test")
    assert [padded_context(n, parsed) for n in (1, 256, 257, 300)] == [256, 256, 512, 512]
    found = terms(make.recipe(300, 3), make.inventory(make.smollm2, []), constants)
    assert found["kv_cache"].value == 23_040 * 512 * 3


@pytest.mark.parametrize(
    ("options", "ubatch"),
    [({}, 512), ({"ubatch-size": 128}, 128), ({"batch-size": 256}, 256), ({"ubatch-size": 4096}, 2048)],
)
def test_the_micro_batch_follows_the_options(
    make: SimpleNamespace, constants: dict[str, Any], options: dict[str, int], ubatch: int
) -> None:
    found = terms(make.recipe(8192, options=options), make.inventory(make.smollm2, []), constants)
    assert found["workspace"].value == ubatch * (7488 * 4 + 8192 * 2) + 32768 + 49152 * 4


@pytest.mark.parametrize("value", [0, -1, True, "many", 1.5])
def test_a_micro_batch_that_is_no_count_is_refused(
    make: SimpleNamespace, constants: dict[str, Any], value: object
) -> None:
    with pytest.raises(InputError, match=r"`options\.ubatch-size` is"):
        terms(make.recipe(options={"ubatch-size": value}), make.inventory(make.smollm2, []), constants)


@pytest.mark.parametrize("value", ["off", "OFF", "0", False, "disabled"])
def test_without_flash_attention_the_scores_of_all_heads_are_kept(
    make: SimpleNamespace, constants: dict[str, Any], value: str | bool
) -> None:
    found = terms(make.recipe(2048, options={"flash-attn": value}), make.inventory(make.smollm2, []), constants)
    floats = 5 * 576 + 576 + 2 * 192 + 9 * 2048
    assert found["workspace"].value == 512 * (floats * 4 + 2048 * 4) + 32768 + 49152 * 4


MEASURED = [
    # hidden, ffn, heads, kv heads, head dim, experts per token, expert ffn, context, logged MiB
    (576, 1536, 9, 3, 64, None, None, 512, 15.14),
    (576, 1536, 9, 3, 64, None, None, 2048, 16.64),
    (576, 1536, 9, 3, 64, None, None, 8192, 22.64),
    (1024, 2048, 16, 16, 64, None, None, 2048, 24.02),
    (1024, 4096, 16, 4, 64, None, None, 2048, 36.02),
    (576, 1536, 9, 3, 128, None, None, 2048, 16.64),
    (512, 512, 32, 8, 128, None, None, 2048, 23.02),
    (512, 512, 32, 32, 128, None, None, 2048, 39.02),
    (512, 512, 64, 8, 128, None, None, 2048, 39.02),
    (1024, None, 16, 4, 64, 2, 512, 2048, 16.02),
    (1024, None, 16, 4, 64, 4, 512, 2048, 24.02),
    (1024, None, 16, 4, 64, 4, 1024, 2048, 36.02),
    (2048, None, 16, 4, 64, 8, 512, 2048, 78.02),
    (1024, None, 16, 4, 64, 8, 256, 2048, 40.02),
]


@pytest.mark.parametrize("row", MEASURED)
def test_the_workspace_is_what_the_engine_logged(row: tuple[Any, ...], constants: dict[str, Any]) -> None:
    """Log lines "compute buffer size" of real loads, see data/engines/llama_cpp_memory.toml."""
    hidden, ffn, heads, kv_heads, head_dim, experts, expert_ffn, context, logged_mib = row
    arch = Architecture(
        hidden_size=hidden,
        ffn_size=ffn,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        num_experts_per_token=experts,
        expert_ffn_size=expert_ffn,
    )
    rule = parse_constants(constants, "test").workspace
    assert rule is not None
    floats = widest_floats(arch, rule, context_tokens=context, is_flash=True)
    assert floats is not None
    predicted = 512 * (4 * floats + rule.mask_bytes * context) + rule.fixed_bytes
    assert predicted / MIB == pytest.approx(logged_mib, rel=0.01)


def test_the_workspace_of_latent_attention_is_what_the_engine_logged(constants: dict[str, Any]) -> None:
    rule = parse_constants(constants, "test").workspace
    assert rule is not None
    for hidden, heads, logged_mib in ((256, 4, 14.51), (256, 8, 25.51), (512, 16, 49.01), (1024, 16, 52.01)):
        arch = Architecture(
            hidden_size=hidden,
            ffn_size=2 * hidden,
            num_heads=heads,
            kv_lora_rank=512,
            rope_head_dim=64,
            num_experts_per_token=2,
            expert_ffn_size=256,
        )
        floats = widest_floats(arch, rule, context_tokens=2048, is_flash=True)
        assert floats is not None
        assert (512 * (4 * floats + 2 * 2048) + 32768) / MIB == pytest.approx(logged_mib, rel=0.01)


@pytest.mark.parametrize("name", ["hidden_size", "num_heads", "num_kv_heads", "head_dim", "ffn_size", "vocab_size"])
def test_a_workspace_of_unknown_widths_is_not_guessed(
    make: SimpleNamespace, constants: dict[str, Any], name: str
) -> None:
    arch = replace(make.smollm2, **{name: None})
    assert terms(make.recipe(), make.inventory(arch, []), constants)["workspace"].is_missing


# --- the copy of the weights ------------------------------------------------------------------------------------------


def test_types_the_kernels_want_otherwise_are_copied(make: SimpleNamespace, constants: dict[str, Any]) -> None:
    untied = make.inventory(make.smollm2, make.dense_tensors(type="Q4_0", is_tied=False))
    # all matrices, the output head included; not the embedding, not the norms
    assert terms(make.recipe(), untied, constants)["weights_copy"].value == 30 * 3_000_000 + 36_000_000
    tied = make.inventory(make.smollm2, make.dense_tensors(type="Q4_0"))
    # the embedding is also the head, and is copied as that
    assert terms(make.recipe(), tied, constants)["weights_copy"].value == 30 * 3_000_000 + 36_000_000


def test_types_the_kernels_take_as_they_are_stay(make: SimpleNamespace, constants: dict[str, Any]) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors(type="Q4_1"))
    assert "weights_copy" not in terms(make.recipe(), inventory, constants)


@pytest.mark.parametrize(("machine", "runtime"), [("aarch64", "embedded"), ("x86_64", "/opt/llama-server")])
def test_a_build_nobody_measured_is_bounded_from_above(
    make: SimpleNamespace, constants: dict[str, Any], machine: str, runtime: str
) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors(type="Q4_1"))
    recipe = make.recipe(runtime=runtime)
    assert terms(recipe, inventory, constants, machine=machine)["weights_copy"].value == 30 * 3_000_000 + 36_000_000
    off = make.recipe(runtime=runtime, options={"repack": False})
    assert "weights_copy" not in terms(off, inventory, constants, machine=machine)


# --- old prompts ------------------------------------------------------------------------------------------------------


def test_a_cache_of_old_prompts_counts_with_its_limit(make: SimpleNamespace, constants: dict[str, Any]) -> None:
    inventory = make.inventory(make.smollm2, [])
    assert "prompt_cache" not in terms(make.recipe(), inventory, constants)
    found = terms(make.recipe(options={"cache-ram": 512}), inventory, constants)
    assert found["prompt_cache"].value == 512 * MIB
    assert "no limit" in str(terms(make.recipe(options={"cache-ram": -1}), inventory, constants)["prompt_cache"].reason)


# --- engines nobody measured, and mistakes in the data ----------------------------------------------------------------


def test_an_engine_nobody_measured_has_unknown_terms_and_known_weights(make: SimpleNamespace) -> None:
    found = terms(make.recipe(), make.inventory(make.smollm2, make.dense_tensors()), {})
    assert found["weights"].value == 126_069_120
    assert [name for name, e in found.items() if e.is_missing] == ["kv_cache", "workspace", "runtime"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"kw": {}}, "unknown memory constants of test: kw"),
        ({"runtime": {"base": 1}}, r"memory constants test\.runtime"),
        ({"kv": {}}, r"memory constants test\.kv"),
    ],
)
def test_mistakes_in_constants_are_named(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse_constants(change, "test")


# --- properties -------------------------------------------------------------------------------------------------------


def total(found: dict[str, Evidence]) -> int:
    return sum(int(e.number) for e in found.values() if e.number is not None)


@given(context=st.integers(1, 100_000), more=st.integers(0, 100_000), sequences=st.integers(1, 64))
def test_memory_never_falls_as_the_context_grows(
    make: SimpleNamespace, constants: dict[str, Any], context: int, more: int, sequences: int
) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors(1))
    short = terms(make.recipe(context, sequences), inventory, constants)
    long = terms(make.recipe(context + more, sequences), inventory, constants)
    assert total(short) <= total(long)


@given(context=st.integers(1, 100_000), sequences=st.integers(1, 64), more=st.integers(0, 64))
def test_more_sequences_never_take_less(
    make: SimpleNamespace, constants: dict[str, Any], context: int, sequences: int, more: int
) -> None:
    inventory = make.inventory(make.deepseek_v3, [])
    few = terms(make.recipe(context, sequences), inventory, constants)
    many = terms(make.recipe(context, sequences + more), inventory, constants)
    assert total(few) <= total(many)
