"""What tensors are for, told from names."""

from __future__ import annotations

import pytest
from gguf.constants import TENSOR_NAMES
from hypothesis import given
from hypothesis import strategies as st

from freehold.models.formats import load_facts
from freehold.models.roles import assign_roles
from freehold.records.inventory import Role


def roles(names: list[str], form: str = "gguf", **options: object) -> list[str]:
    return [str(p.role) for p in assign_roles(names, form=form, **options)]  # type: ignore[arg-type]


def one(name: str, form: str = "gguf", **options: object) -> tuple[str, int | None]:
    (placement,) = assign_roles([name], form=form, **options)  # type: ignore[arg-type]
    return str(placement.role), placement.layer


def test_the_output_head_is_not_the_attention_output() -> None:
    assert one("output.weight") == ("output_head", None)
    assert one("blk.7.attn_output.weight") == ("attn_output", 7)
    assert one("output_norm.weight") == ("norm", None)
    assert one("output_res_score.weight") == ("residual_score", None)
    assert one("my_output.weight")[0] == "other"
    assert one("output.extra.weight")[0] == "other"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("token_embd.weight", "token_embd"),
        ("blk.0.attn_q.weight", "attn_qkv"),
        ("blk.0.attn_q.bias", "attn_qkv"),
        ("blk.0.attn_q_norm.weight", "norm"),
        ("blk.0.attn_kv_a_mqa.weight", "attn_mla"),
        ("blk.0.attn_gate.weight", "attn_gate"),
        ("blk.0.ffn_gate.weight", "dense_ffn"),
        ("blk.0.ffn_gate_inp.weight", "router"),
        ("blk.0.exp_probs_b.bias", "router"),
        ("blk.0.ffn_gate_exps.weight", "routed_gate"),
        ("blk.0.ffn_gate.3.weight", "routed_gate"),
        ("blk.0.ffn_down_exps.weight", "routed_down"),
        ("blk.0.ffn_down_shexp.weight", "shared_expert"),
        ("blk.0.ffn_routed_down.weight", "latent_proj"),
        ("blk.0.ffn_routed_norm.weight", "norm"),
        ("blk.0.ssm_g.weight", "ssm_proj"),
        ("blk.0.ssm_conv1d_q.weight", "ssm_state"),
        ("blk.0.ssm_a", "ssm_state"),
        ("blk.0.ssm_norm.weight", "norm"),
        ("blk.0.attn_res_score.weight", "residual_score"),
        ("v.blk.3.attn_q.weight", "vision"),
        ("mm.0.weight", "vision"),
        ("rope_freqs.weight", "other"),
    ],
)
def test_gguf_names(name: str, role: str) -> None:
    assert one(name)[0] == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.embed_tokens.weight", "token_embd"),
        ("lm_head.weight", "output_head"),
        ("model.norm.weight", "norm"),
        ("model.layers.4.self_attn.q_proj.weight", "attn_qkv"),
        ("model.layers.4.self_attn.k_proj.bias", "attn_qkv"),
        ("model.layers.4.self_attn.k_proj.k_scale", "attn_qkv"),
        ("model.layers.4.self_attn.q_norm.weight", "norm"),
        ("model.layers.4.self_attn.o_proj.weight_scale_inv", "attn_output"),
        ("model.layers.4.self_attn.sinks", "attn_qkv"),
        ("model.layers.4.mlp.gate.weight", "router"),
        ("model.layers.4.mlp.gate.e_score_correction_bias", "router"),
        ("model.layers.4.mlp.router.weight", "router"),
        ("model.layers.4.mlp.gate_proj.weight", "dense_ffn"),
        ("model.layers.4.mlp.experts.11.gate_proj.weight", "routed_gate"),
        ("model.layers.4.mlp.experts.11.up_proj.weight_packed", "routed_up"),
        ("model.layers.4.mlp.experts.gate_up_proj_blocks", "routed_gate"),
        ("model.layers.4.mlp.experts.down_proj_scales", "routed_down"),
        ("model.layers.4.block_sparse_moe.experts.2.w1.weight", "routed_gate"),
        ("model.layers.4.block_sparse_moe.experts.2.w2.weight", "routed_down"),
        ("model.layers.4.block_sparse_moe.experts.2.w3.weight", "routed_up"),
        ("model.layers.4.mlp.shared_experts.down_proj.weight", "shared_expert"),
        ("model.layers.4.mlp.shared_expert.down_proj.weight", "shared_expert"),
        ("model.layers.4.mlp.shared_expert_gate.weight", "router"),
        ("model.layers.4.pre_feedforward_layernorm.weight", "norm"),
        ("model.layers.4.linear_attn.in_proj_qkvz.weight", "ssm_proj"),
        ("model.layers.4.linear_attn.A_log", "ssm_state"),
        ("language_model.model.layers.4.self_attn.q_proj.weight", "attn_qkv"),
        ("model.language_model.layers.4.self_attn.q_proj.weight", "attn_qkv"),
        ("model.visual.blocks.4.attn.qkv.weight", "vision"),
        ("vision_tower.encoder.layers.4.self_attn.q_proj.weight", "vision"),
        ("model.layers.4.self_attn.rotary_emb.inv_freq", "other"),
    ],
)
def test_hugging_face_names(name: str, role: str) -> None:
    assert one(name, "safetensors") == (role, 4 if ".layers.4." in name and role != "vision" else None)


def test_q_belongs_to_mla_only_in_a_layer_with_a_compressed_cache() -> None:
    names = ["blk.0.attn_q.weight", "blk.1.attn_q.weight", "blk.1.attn_kv_a_mqa.weight"]
    assert roles(names) == ["attn_qkv", "attn_mla", "attn_mla"]
    names = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"]
    names.append("model.layers.1.self_attn.kv_a_proj_with_mqa.weight")
    assert roles(names, "safetensors") == ["attn_qkv", "attn_mla", "attn_mla"]


def test_a_family_has_a_table_of_its_own() -> None:
    kda, mla = "model.layers.0.self_attn.g_proj.weight", "model.layers.3.self_attn.g_proj.weight"
    names = [kda, mla, "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"]
    assert roles(names, "safetensors", family="kimi_linear") == ["ssm_proj", "attn_gate", "attn_mla"]
    assert roles(names, "safetensors", family="llama") == ["attn_gate", "attn_gate", "attn_mla"]
    assert roles(names, "safetensors", family=("kimi_k3", "x")) == ["ssm_proj", "attn_gate", "attn_mla"]
    v4 = [
        "layers.2.attn.wq_a.weight",
        "layers.2.attn.wo_b.scale",
        "layers.2.hc_attn_fn",
        "layers.2.ffn.experts.7.w1.weight",
    ]
    assert roles(v4, "safetensors", family="deepseek_v4") == [
        "attn_mla",
        "attn_output",
        "residual_score",
        "routed_gate",
    ]


def test_layers_after_the_last_draft_tokens() -> None:
    names = [
        "model.layers.60.mlp.gate.weight",
        "model.layers.61.mlp.gate.weight",
        "model.layers.61.embed_tokens.weight",
    ]
    assert roles(names, "safetensors", num_layers=61) == ["router", "draft", "draft"]
    assert roles(names, "safetensors") == ["router", "router", "token_embd"]
    # a name that only drafting has marks its whole layer, whatever the metadata says
    names = ["blk.3.attn_q.weight", "blk.4.attn_q.weight", "blk.4.nextn.eh_proj.weight", "output.weight"]
    assert roles(names) == ["attn_qkv", "draft", "draft", "output_head"]
    assert roles(["mtp.0.attn.wq_a.weight", "norm.weight"], "safetensors") == ["draft", "norm"]


def test_every_name_of_the_gguf_package_is_in_the_table() -> None:
    names = [name.replace("{bid}", "3") + ".weight" for name in TENSOR_NAMES.values()]
    placements = assign_roles(names, form="gguf")
    assert [n for n, p in zip(names, placements, strict=True) if not p.is_known] == []
    speech = ("a.", "conv1d", "convnext", "posnet", "rope_f")
    others = [n for n, p in zip(names, placements, strict=True) if p.role is Role.OTHER]
    assert [n for n in others if not n.startswith(speech)] == []


def test_every_role_of_the_table_is_a_role_and_every_pattern_has_one_meaning() -> None:
    facts = load_facts("roles.toml")
    tables = [facts["gguf"], facts["hf"], *facts["families"]]
    for table in tables:
        patterns = [p for rule in table["rules"] for p in rule["patterns"]]
        assert len(patterns) == len(set(patterns)), [p for p in patterns if patterns.count(p) > 1]
        assert {rule["role"] for rule in table["rules"]} <= set(Role)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["blk", "7", "layers", "weight"])
    ).map(".".join),
    st.sampled_from(["gguf", "safetensors"]),
)
def test_any_name_has_exactly_one_placement(name: str, form: str) -> None:
    (placement,) = assign_roles([name], form=form)  # type: ignore[arg-type]
    assert placement.role in Role
    assert placement.layer is None or str(placement.layer) in name


@given(st.integers(0, 99_999), st.integers(0, 99_999))
def test_numbers_do_not_change_what_a_tensor_is_for(layer: int, expert: int) -> None:
    name = f"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"
    assert one(name, "safetensors") == ("routed_up", layer)


def test_a_draft_module_that_counts_its_own_layers_takes_none_of_the_models() -> None:
    names = ["model.layers.0.self_attn.q_proj.weight", "mtp.layers.0.mlp.experts.gate_proj.weight", "mtp.fc.weight"]
    placements = assign_roles(names, form="safetensors", family="qwen3_5_moe", num_layers=40)
    assert [(p.role.value, p.layer) for p in placements] == [("attn_qkv", 0), ("draft", None), ("draft", None)]


def test_deepseek4_names_of_llama_cpp_are_known() -> None:
    names = [
        "blk.2.attn_kv.weight",
        "blk.2.attn_output_a.weight",
        "blk.2.attn_compressor_kv.weight",
        "output_hc_fn.weight",
    ]
    placements = assign_roles(names, form="gguf", family="deepseek4", num_layers=43)
    assert [p.role.value for p in placements] == ["attn_mla", "attn_output", "attn_mla", "residual_score"]
