"""Which layouts are possible, and which tensor and number forbid the others."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from freehold.engines.layout_rules import layout_rule_names, layout_rules
from freehold.errors import InputError
from freehold.models.catalogue import find_model, instantiate, model_catalogue
from freehold.plan.layouts import Layout, enumerate_layouts, group_tensors, stage_of
from freehold.plan.legality import Judgement, judge_layout
from freehold.records.inventory import Inventory, Role


@cache
def inventory(name: str) -> Inventory:
    return instantiate(*find_model(name, model_catalogue())).inventory


NEURON = inventory("kimi-k3-neuron-iq1s")
RULES = layout_rules("vllm")


def judge(model: Inventory, engine: str = "vllm", **sizes: int | str) -> Judgement:
    rules = layout_rules(engine)
    layout = Layout(**sizes)  # type: ignore[arg-type]
    return judge_layout(layout, group_tensors(model, rules), model.architecture, rules)


@pytest.mark.parametrize("tp_size", [1, 2, 3, 6])
def test_k3_neuron_can_be_cut_by_1_2_3_and_6(tp_size: int) -> None:
    assert judge(NEURON, tp_size=tp_size).reasons == ()


@pytest.mark.parametrize(
    ("tp_size", "reason"),
    [
        (4, "TP4: ffn_down_exps 1536/4 = 384 = 1.5 blocks of 256 (IQ1_S)"),
        (8, "TP8: ffn_down_exps 1536/8 = 192 = 0.75 blocks of 256 (IQ1_S)"),
    ],
)
def test_tp4_and_tp8_are_forbidden_by_the_routed_down_projection_alone(tp_size: int, reason: str) -> None:
    assert judge(NEURON, tp_size=tp_size).reasons == (reason,)


@pytest.mark.parametrize(("ep_size", "is_supported"), [(4, True), (2, False)])
def test_whole_experts_and_the_two_dimensional_plan_are_ways_out(ep_size: int, is_supported: bool) -> None:
    found = judge(NEURON, tp_size=4, ep_size=ep_size)
    assert found.is_legal
    assert found.is_supported is is_supported


@pytest.mark.parametrize("cut", ["uneven", "padded", "dequantised"])
def test_other_cuts_are_possible_and_need_a_patch(cut: str) -> None:
    found = judge(NEURON, tp_size=4, width_cut=cut)
    assert found.is_legal
    assert found.unsupported
    assert "needs a patch" in found.unsupported[0]


def test_a_width_of_1024_makes_tp4_legal() -> None:
    # 1,024 / 4 = 256 = one block; 1,024 / 3 is no whole number.
    narrower = inventory("kimi-k3-neuron-iq1s:expert_width=1024")
    assert judge(narrower, tp_size=4).is_legal
    assert judge(narrower, tp_size=3).reasons[0] == "TP3: ffn_gate_exps 1024/3 = 341.33 (IQ1_S)"


def test_heads_experts_and_layers_are_counted() -> None:
    assert judge(NEURON, tp_size=5).reasons[0] == "TP5: 96 attention heads / 5 = 19.20"
    assert "EP5: 896 experts / 5 = 179.20" in judge(NEURON, tp_size=5, ep_size=5).reasons
    assert "PP94: 93 layers leave a stage without any" in judge(NEURON, tp_size=1, pp_size=94).reasons
    dense = inventory("smollm2-135m")
    assert "EP3: the checkpoint has no routed experts to divide" in judge(dense, tp_size=3, ep_size=3).reasons


def test_key_value_heads_are_divided_or_repeated() -> None:
    ornith = inventory("ornith-1.5-35b-a3b-nvfp4")  # 2 key/value heads, 16 heads
    assert judge(ornith, tp_size=2).is_legal
    assert judge(ornith, tp_size=4).is_legal
    eight_heads = replace(ornith.architecture, num_kv_heads=8, num_heads=48)
    rules = layout_rules("vllm")
    found = judge_layout(Layout(tp_size=3), group_tensors(ornith, rules), eight_heads, rules)
    assert "TP3: 8 key/value heads can neither be divided nor repeated between 3" in found.reasons


def test_one_head_for_all_is_repeated() -> None:
    assert judge(inventory("deepseek-v4-flash-0731"), tp_size=2).is_legal


def test_an_engine_that_divides_by_layers_says_so() -> None:
    found = judge(NEURON, engine="llama.cpp", tp_size=3)
    assert found.unsupported == ("llama.cpp does TP1 only; it divides by layers",)
    assert judge(NEURON, engine="llama.cpp", tp_size=1, pp_size=3).is_supported


def test_every_rule_set_has_a_rule_for_every_role() -> None:
    for name in layout_rule_names():
        roles = {role for rule in layout_rules(name).rules if not rule.parts for role in rule.roles}
        assert roles == {str(role) for role in Role}, name


def test_nobody_knows_how_another_engine_splits() -> None:
    with pytest.raises(InputError, match="magic"):
        layout_rules("magic")


def test_layouts_are_every_product_of_the_ranks() -> None:
    found = [(x.tp_size, x.pp_size, x.ep_size) for x in enumerate_layouts(4, has_experts=True)]
    assert found == [(4, 1, 1), (4, 1, 2), (4, 1, 4), (2, 2, 1), (2, 2, 2), (1, 4, 1)]
    assert [x.ep_size for x in enumerate_layouts(3, has_experts=False)] == [1, 1]


@pytest.mark.parametrize(("layers", "stages"), [(93, 4), (7, 3), (4, 4), (1, 1), (40, 3)])
def test_stages_take_layers_in_order_and_almost_equally_many(layers: int, stages: int) -> None:
    layout = Layout(tp_size=1, pp_size=stages)
    found = [stage_of(n, layout, layers, is_input=False) for n in range(layers)]
    assert found == sorted(found)
    counts = [found.count(stage) for stage in range(stages)]
    assert max(counts) - min(counts) <= 1
    assert stage_of(None, layout, layers, is_input=True) == 0
    assert stage_of(None, layout, layers, is_input=False) == stage_of(layers + 2, layout, layers, is_input=False)


def test_groups_hold_every_byte_once() -> None:
    groups = group_tensors(NEURON, RULES)
    assert sum(g.bytes for g in groups) == NEURON.tensor_bytes
    assert sum(g.count for g in groups) == NEURON.num_tensors
    assert len(groups) < 60
