"""Planning mistakes that users of other tools met, each shown not to happen here."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from freehold.engines.layout_rules import layout_rules
from freehold.errors import InputError
from freehold.hardware.catalogue import find_hardware, hardware_catalogue
from freehold.models.blueprint import build_inventory
from freehold.models.catalogue import find_model, instantiate, model_catalogue
from freehold.plan.cluster import plan_cluster
from freehold.plan.contract import Demand
from freehold.plan.subject import Subject
from freehold.records.cluster_plan import ClusterPlan, LayoutPlan
from freehold.records.inventory import Architecture

SPARK = hardware_catalogue()["dgx-spark"]
GIB = 2**30


@cache
def subject(name: str) -> Subject:
    return Subject.of_model(instantiate(*find_model(name, model_catalogue())))


def make_plan(what: Subject | str, nodes: int, **demand: int | str) -> ClusterPlan:
    wanted = Demand(**{"context_tokens": 8192, "sequences": 1, **demand})  # type: ignore[arg-type]
    model = subject(what) if isinstance(what, str) else what
    return plan_cluster(model, SPARK, layout_rules("vllm"), wanted, nodes=nodes)


def layout_of(plan: ClusterPlan, name: str) -> LayoutPlan:
    return next(x for x in plan.layouts if x.name == name)


def dense(*, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocab: int, type_name: str) -> Subject:
    """A dense model of the llama kind with 128-wide heads, embedding and head in BF16."""
    rows = [
        {"name": "model.embed_tokens.weight", "shape": [vocab, hidden], "type": "BF16"},
        {"name": "lm_head.weight", "shape": [vocab, hidden], "type": "BF16"},
    ]
    for name, shape in {
        "self_attn.q_proj": [heads * 128, hidden],
        "self_attn.k_proj": [kv_heads * 128, hidden],
        "self_attn.v_proj": [kv_heads * 128, hidden],
        "self_attn.o_proj": [hidden, heads * 128],
        "mlp.gate_proj": [ffn, hidden],
        "mlp.up_proj": [ffn, hidden],
        "mlp.down_proj": [hidden, ffn],
    }.items():
        rows.append(
            {"name": f"model.layers.{{layer}}.{name}.weight", "shape": shape, "type": type_name, "layers": "all"}
        )
    architecture = Architecture(
        name="LlamaForCausalLM",
        vocab_size=vocab,
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=128,
        ffn_size=ffn,
        context_tokens=131_072,
        tied_embeddings=False,
    )
    return Subject.of_inventory(
        build_inventory(
            source="dense",
            format="safetensors",
            family="llama",
            architecture=architecture,
            rows=rows,
            dimensions={},
            layers={"all": range(layers)},
        )
    )


LLAMA_70B = {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn": 28_672, "vocab": 128_256}


def test_the_storage_of_the_cache_is_counted_as_asked() -> None:
    whole, halved = (
        layout_of(make_plan("ornith-1.5-35b-a3b-nvfp4", 1, context_tokens=100_000, kv_type=kind), "TP1").per_rank[0]
        for kind in ("bf16", "fp8")
    )
    assert whole.kv_bytes - halved.kv_bytes == 100_000 * 20_480 // 2


def test_a_storage_nobody_knows_is_no_default() -> None:
    with pytest.raises(InputError, match="fp8_ds_mla"):
        make_plan("kimi-k2-int4", 8, kv_type="fp8_ds_mla")


def test_no_plan_asks_for_more_than_a_unit_has() -> None:
    for nodes in (1, 2, 4):
        for layout in make_plan("kimi-k3-neuron-iq1s", nodes).layouts:
            need = layout.contract_free_bytes.number
            assert need is not None
            assert (need <= 110 * GIB) is layout.fits


def test_tensor_parallelism_over_nodes_of_one_accelerator_is_possible() -> None:
    assert layout_of(make_plan("deepseek-v4-flash-0731", 2), "TP2").is_legal


def test_all_experts_are_resident_and_only_the_chosen_are_read() -> None:
    layout = layout_of(make_plan("ornith-1.5-35b-a3b-nvfp4", 1), "TP1")
    rank, step = layout.per_rank[0], layout.ceilings["step_bytes"].number
    assert rank.weights_bytes > 21 * 10**9
    assert step is not None
    experts = 40 * 256 * 3 * 2048 * 512 // 16 * 9
    assert rank.weights_bytes - step > experts * (1 - 8 / 256)


def test_the_bound_of_a_mixture_of_experts_is_not_that_of_its_total() -> None:
    layout = layout_of(make_plan("ornith-1.5-35b-a3b-nvfp4", 1), "TP1")
    bound = layout.ceilings["decode_ceiling_tok_per_s"].number
    assert bound is not None
    assert bound > 74.9 > 273e9 / layout.per_rank[0].weights_bytes, "74.9 tok/s were measured"


def test_a_model_is_not_refused_for_a_context_nobody_asked_for() -> None:
    plan = make_plan("kimi-k3-neuron-iq1s", 4)  # trained for 1,048,576 tokens, which do not fit
    layout = layout_of(plan, "TP4 EP4")
    assert layout.fits
    assert (layout.max_context_tokens["1"].number or 0) < 1_048_576


def test_layers_that_keep_no_cache_are_not_counted_and_windows_end() -> None:
    ornith = subject("ornith-1.5-35b-a3b-nvfp4")
    assert next(i for i in ornith.context_items if i.name == "keys_values").layers == 10
    flash = make_plan("deepseek-v4-flash-0731", 2, context_tokens=131_072)
    per_token = (layout_of(flash, "TP2").per_rank[0].kv_bytes - 43 * 128 * 512 * 2) / 131_072
    assert per_token == 21 * 640 / 4 * 2 + 20 * 4 * 2


def test_a_latent_cache_is_whole_on_every_rank() -> None:
    one, eight = (layout_of(make_plan("kimi-k2-int4", n), f"TP{n}").per_rank[0].kv_bytes for n in (1, 8))
    assert one == eight == 8192 * 61 * 576 * 2


def test_hardware_nobody_knows_is_no_other_hardware() -> None:
    with pytest.raises(InputError, match="rtx-4242"):
        find_hardware("rtx-4242", hardware_catalogue())


def test_why_a_dense_70b_gives_a_few_tokens_a_second() -> None:
    layout = layout_of(make_plan(dense(**LLAMA_70B, type_name="NVFP4_G16"), 1), "TP1")
    matrices = 80 * (2 * 8192 * 8192 + 2 * 1024 * 8192 + 3 * 28_672 * 8192)
    step = matrices // 16 * 9 + 128_256 * 8192 * 2 + 8192 * 2
    assert layout.ceilings["step_bytes"].number == step
    bound = layout.ceilings["decode_ceiling_tok_per_s"].number
    assert bound == pytest.approx(273e9 / step)
    assert bound == pytest.approx(6.7, abs=0.1)  # about 40.6 GB, 6.7 tok/s, as others found


def test_eight_key_value_heads_forbid_three_ranks_and_not_three_stages() -> None:
    plan = make_plan(dense(**LLAMA_70B, type_name="BF16"), 3)
    tp3 = layout_of(plan, "TP3")
    assert "TP3: 8 key/value heads can neither be divided nor repeated between 3" in tp3.reasons
    assert layout_of(plan, "TP1 PP3").is_legal
    assert plan.chosen == "TP1 PP3"


def test_a_published_size_of_one_shard_is_not_the_model() -> None:
    assert subject("kimi-k3-neuron-iq1s").payload.number == sum(
        t.bytes for t in subject("kimi-k3-neuron-iq1s").inventory.tensors
    )


def test_the_real_k3_is_no_dense_model_that_fits_one_unit() -> None:
    plan = make_plan("kimi-k3", 1)
    assert plan.chosen is None
    assert plan.answers["resident"].answer == "no"


def test_a_checkpoint_without_widths_is_planned_as_far_as_it_is_known() -> None:
    whole = subject("smollm2-135m").inventory
    bare = replace(whole, architecture=Architecture(name="something-new"))
    plan = make_plan(Subject.of_inventory(bare), 1)
    layout = layout_of(plan, "TP1")
    assert layout.per_rank[0].weights_bytes == 96_576_768
    assert layout.contract_free_bytes.is_missing
    assert layout.fits is None
    assert plan.chosen is None
    assert "how many key/value heads" in layout.verdict
    assert any("how many attention heads" in note for note in plan.notes)
    assert plan.answers["resident"].answer == plan.answers["interactive"].answer == "not known"
    too_large = replace(subject("kimi-k3").inventory, architecture=Architecture(name="something-new"))
    refused = layout_of(make_plan(Subject.of_inventory(too_large), 1), "TP1")
    assert refused.fits is False, "what is known is already too much"
    assert "more than 1.4 TiB" in refused.verdict
