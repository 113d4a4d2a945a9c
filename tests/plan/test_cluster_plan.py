"""Plans over nodes: bounds, costs, node counts and answers, with sums spelled out and inputs that move them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.engines.layout_rules import layout_rules
from freehold.errors import InputError
from freehold.evidence import Evidence
from freehold.hardware.catalogue import Hardware, hardware_catalogue
from freehold.models.catalogue import find_model, instantiate, model_catalogue
from freehold.plan.cluster import Prices, plan_cluster
from freehold.plan.contract import Demand, budget_of, longest_context
from freehold.plan.cost import estimate_cost
from freehold.plan.layouts import Layout, group_tensors
from freehold.plan.legality import judge_layout
from freehold.plan.nodes import hypothetical_widths, min_nodes
from freehold.plan.residency import estimate_residency
from freehold.plan.roofline import (
    active_params,
    active_step_bytes,
    all_reduces,
    decode_steps_per_s,
    distinct_experts,
    file_bytes_per_token,
    scan_s,
    step_bytes_of_rank,
)
from freehold.plan.subject import Subject
from freehold.records.cluster_plan import ClusterPlan, LayoutPlan
from freehold.records.inventory import Inventory, Role, Tensor

GIB = 2**30
SPARK = hardware_catalogue()["dgx-spark"]
H200 = hardware_catalogue()["h200"]
TOTAL = 330_160_710_016
EMBEDDING = 163_840 * 7168 * 2
ROUTED = 92 * 896 * 3 * 3584 * 1536 // 256 * 50


@cache
def subject(name: str) -> Subject:
    return Subject.of_model(instantiate(*find_model(name, model_catalogue())))


def make_plan(
    name: str, hardware: Hardware, nodes: int, *, context: int = 8192, sequences: int = 1, engine: str = "vllm"
) -> ClusterPlan:
    demand = Demand(context_tokens=context, sequences=sequences)
    return plan_cluster(subject(name), hardware, layout_rules(engine), demand, nodes=nodes)


def layout_named(plan: ClusterPlan, name: str) -> LayoutPlan:
    return next(x for x in plan.layouts if x.name == name)


def value(evidence: Evidence) -> float:
    assert evidence.number is not None, evidence.reason
    return float(evidence.number)


def with_fact(hardware: Hardware, name: str, factor: float) -> Hardware:
    """The hardware with every value of one quantity multiplied."""
    facts = [
        replace(f, evidence=replace(f.evidence, value=f.evidence.number * factor))  # type: ignore[operator]
        if f.name == name
        else f
        for f in hardware.facts
    ]
    return replace(hardware, facts=tuple(facts))


# --- bytes per token and bounds -------------------------------------------------------------------------------------


def test_a_token_reads_the_published_bytes() -> None:
    inventory = subject("kimi-k3-neuron-iq1s").inventory
    groups = group_tensors(inventory, layout_rules("vllm"))
    dense = TOTAL - ROUTED - EMBEDDING
    chosen = ROUTED * 16 // 896
    row = 7168 * 2  # of the embedding
    assert file_bytes_per_token(groups, inventory.architecture) == pytest.approx(dense + chosen + row, abs=4)
    assert (round(dense / 1e9, 2), round(chosen / 1e9, 2)) == (61.92, 4.75)
    assert round((dense + chosen) / 1e9, 2) == 66.67


def test_every_rank_reads_what_it_keeps_replication_included() -> None:
    inventory = subject("kimi-k3-neuron-iq1s").inventory
    groups = group_tensors(inventory, layout_rules("vllm"))
    for layout in (Layout(tp_size=4, ep_size=4), Layout(tp_size=4, ep_size=2), Layout(tp_size=3)):
        rank = estimate_residency(layout, groups, inventory.architecture)[0]
        unread = EMBEDDING / layout.tp_size + ROUTED / layout.tp_size * (1 - 16 / 896)
        read = step_bytes_of_rank(rank, groups, inventory.architecture, layout, 1)
        assert read == pytest.approx(rank.weights_bytes - unread, abs=2_000_000)  # padding, one row


def test_experts_that_some_group_must_hold_are_counted() -> None:
    # 6 of 256 experts over 4 groups: some group is chosen at least twice, and holds 64.
    inventory = subject("deepseek-v4-flash-0731").inventory
    groups = group_tensors(inventory, layout_rules("vllm"))
    layout = Layout(tp_size=4, ep_size=4)
    rank = estimate_residency(layout, groups, inventory.architecture)[0]
    routed = 43 * 256 * 3 * 4096 * 2048 // 32 * 17 // 4
    whole = step_bytes_of_rank(rank, groups, replace(inventory.architecture, num_experts_per_token=256), layout, 1)
    some = step_bytes_of_rank(rank, groups, inventory.architecture, layout, 1)
    assert whole - some == pytest.approx(routed * (1 - 2 / 64), abs=4)


@pytest.mark.parametrize(("tokens", "expected"), [(1, 16.0), (8, 896 * (1 - (880 / 896) ** 8))])
def test_distinct_experts_are_fewer_than_tokens_times_experts(tokens: int, expected: float) -> None:
    assert distinct_experts(896, 16, tokens) == pytest.approx(expected)


@given(st.integers(1, 512), st.integers(1, 64))
def test_distinct_experts_lie_between_one_token_and_all(experts: int, tokens: int) -> None:
    chosen = max(1, experts // 8)
    found = distinct_experts(experts, chosen, tokens)
    assert chosen - 1e-9 <= found <= min(experts, chosen * tokens) + 1e-9


def test_all_reduces_follow_the_rules_of_the_engine() -> None:
    inventory = subject("kimi-k3-neuron-iq1s").inventory
    found = {
        engine: all_reduces(
            layout_rules(engine), group_tensors(inventory, layout_rules(engine)), inventory.architecture
        )
        for engine in ("sparkinfer", "vllm", "llama.cpp")
    }
    # F32 sums of 7,168 after 93 attentions, of 7,168 + 3,584 after 92 mixtures of experts.
    assert found["sparkinfer"] == ((93, 28_672), (92, 43_008))
    assert sum(n for n, _ in found["sparkinfer"]) == 185
    assert sum(n for n, _ in found["vllm"]) == 186
    assert found["llama.cpp"] == ()


def test_the_bounds_of_four_sparks_stand_beside_the_published_speed() -> None:
    plan = make_plan("kimi-k3-neuron-iq1s", SPARK, 4)
    whole = layout_named(plan, "TP4 EP4")
    step = value(whole.ceilings["step_bytes"])
    reading, talking = step / 273e9, 186 * 50e-6
    assert value(whole.ceilings["decode_ceiling_tok_per_s"]) == pytest.approx(1 / max(reading, talking))
    in_turn = value(whole.ceilings["decode_ceiling_in_turn_tok_per_s"])
    assert in_turn == pytest.approx(1 / (reading + talking))
    context = 8192 * 27_648 + (434_110_464 + 30_523_392) / 4
    assert value(whole.ceilings["decode_ceiling_at_context_tok_per_s"]) == pytest.approx(
        1 / ((step + context) / 273e9 + talking)
    )
    published = plan.published[0]
    assert published.decode_tok_per_s.value == 5.076
    assert value(published.share_of_ceiling["TP4 EP4"]) == pytest.approx(5.076 / in_turn)
    assert "TP1 PP4" not in published.share_of_ceiling, "it was measured with tensor parallelism of 4"
    uneven = layout_named(plan, "TP4 uneven blocks")
    assert value(uneven.ceilings["step_bytes"]) - step == pytest.approx(ROUTED / 12 * 16 / 896, rel=0.01)


def test_three_h200_stand_beside_both_published_speeds() -> None:
    plan = make_plan("kimi-k3-neuron-iq1s", H200, 3)
    assert plan.chosen == "TP3"
    bound = value(layout_named(plan, "TP3").ceilings["decode_ceiling_in_turn_tok_per_s"])
    shares = [value(p.share_of_ceiling["TP3"]) for p in plan.published]
    assert shares == pytest.approx([6.632 / bound, 34.875 / bound])
    assert max(shares) < 1, "what is above the bound was not measured right, or not computed"


def test_speculation_is_no_share_of_a_bound_for_steps() -> None:
    plan = make_plan("deepseek-v4-flash-0731", SPARK, 2)
    assert plan.published
    assert all(e.is_missing for p in plan.published for e in p.share_of_ceiling.values())


@pytest.mark.parametrize("name", list(model_catalogue()))
def test_no_published_speed_without_speculation_beats_its_bound(name: str) -> None:
    for row in subject(name).published:
        plan = make_plan(name, hardware_catalogue()[row["hardware"]], row["nodes"])
        for published in plan.published:
            shares = [e for e in published.share_of_ceiling.values() if not e.is_missing]
            assert all(value(e) < 1 for e in shares), published.config


def test_stages_are_passed_one_after_the_other() -> None:
    inventory = subject("kimi-k3-neuron-iq1s").inventory
    plan = make_plan("kimi-k3-neuron-iq1s", SPARK, 4, engine="llama.cpp")
    chain = layout_named(plan, "TP1 PP4")
    groups = group_tensors(inventory, layout_rules("llama.cpp"))
    assert value(chain.ceilings["step_bytes"]) == pytest.approx(
        file_bytes_per_token(groups, inventory.architecture), abs=100
    )
    assert chain.ceilings["all_reduces"].value == 3


def test_bounds_move_with_bandwidth_and_latency() -> None:
    base = layout_named(make_plan("kimi-k3-neuron-iq1s", SPARK, 4), "TP4 EP4").ceilings
    faster = layout_named(make_plan("kimi-k3-neuron-iq1s", with_fact(SPARK, "bandwidth", 2), 4), "TP4 EP4").ceilings
    assert value(faster["bandwidth_floor_s"]) == pytest.approx(value(base["bandwidth_floor_s"]) / 2)
    assert value(faster["all_reduce_floor_s"]) == value(base["all_reduce_floor_s"])
    slower = layout_named(make_plan("kimi-k3-neuron-iq1s", with_fact(SPARK, "all_reduce", 3), 4), "TP4 EP4").ceilings
    assert value(slower["all_reduce_floor_s"]) == pytest.approx(value(base["all_reduce_floor_s"]) * 3)


def test_without_a_known_latency_the_bandwidth_still_bounds() -> None:
    plan = make_plan("ornith-1.5-35b-a3b-nvfp4", hardware_catalogue()["b200"], 2)
    ceilings = layout_named(plan, "TP2").ceilings
    assert ceilings["all_reduce_floor_s"].is_missing
    assert value(ceilings["decode_ceiling_tok_per_s"]) == pytest.approx(1 / value(ceilings["bandwidth_floor_s"]))


def test_active_weights_are_near_the_published_number() -> None:
    for name, published in (("kimi-k3", 104e9), ("deepseek-v4-flash-0731", 13e9), ("kimi-k2-int4", 32e9)):
        inventory = subject(name).inventory
        found = active_params(group_tensors(inventory, layout_rules("vllm")), inventory.architecture)
        assert found == pytest.approx(published, rel=0.05), name


# --- what was published, as calculations ----------------------------------------------------------------------------


def test_deepseek_says_which_total_feeds_which_figure() -> None:
    one, two = (make_plan("deepseek-v4-flash-0731", SPARK, n) for n in (1, 2))
    resident = one.answers["resident"]
    files, label = 166_886_535_336, 128 * GIB
    assert value(resident.evidence["files_deficit_bytes"]) == files - label
    assert round((files - label) / GIB, 3) == 27.425
    assert round(value(resident.evidence["files_share"]), 3) == 1.214
    payload = 166_878_536_440
    left = value(two.answers["resident"].evidence["payload_headroom_bytes"])
    assert left == 2 * 128 * 10**9 - payload
    assert round(left / 1e9, 3) == 89.121
    assert "files_deficit_bytes" not in two.answers["resident"].evidence
    assert round(files / GIB, 3) == 155.425
    steps = one.answers["interactive"].evidence["optimistic_steps_per_s"]
    assert value(steps) == pytest.approx(273e9 / (13e9 * 4 / 8)) == 42
    assert (one.answers["resident"].answer, two.answers["resident"].answer) == ("no", "yes")


def test_the_seed_table_of_six_questions_comes_out() -> None:
    answers = {
        case: {key: a.answer for key, a in make_plan(name, SPARK, nodes).answers.items()}
        for case, (name, nodes) in {
            "v4 on one": ("deepseek-v4-flash-0731", 1),
            "v4 on two": ("deepseek-v4-flash-0731", 2),
            "k3 on four": ("kimi-k3", 4),
        }.items()
    }
    keys = ["hosted_api", "stored_on_ssd", "resident", "lower_bit", "interactive", "production"]
    assert [answers["v4 on one"][k] for k in keys] == ["yes", "yes", "no", "yes", "plausible", "no"]
    assert [answers["v4 on two"][k] for k in keys] == ["yes", "yes", "yes", "yes", "yes", "no"]
    assert [answers["k3 on four"][k] for k in keys] == ["yes", "yes", "no", "no", "no", "no"]


def test_k3_takes_12_13_or_16_nodes() -> None:
    k3 = subject("kimi-k3")
    found = {name: e.value for name, e in min_nodes(k3.payload, SPARK).items()}
    # ⌈1,560.86 / 128⌉, ⌈1,560.86 / 130.674⌉, ⌈1,560.86 / 102.4⌉.
    assert found == {"labelled": 13, "exposed": 12, "planning": 16}
    larger = min_nodes(k3.payload, with_fact(SPARK, "memory", 2))
    assert {name: e.value for name, e in larger.items()} == {"labelled": 7, "exposed": 6, "planning": 8}


@pytest.mark.parametrize(
    ("nodes", "headroom", "each"),
    [
        (1, -1432.860, None),
        (2, -1304.860, None),
        (4, -1048.860, None),
        (12, -24.860, None),
        (13, 103.140, 7.934),
        (16, 487.140, 30.446),
        (18, 743.140, 41.286),
    ],
)
def test_the_table_of_node_counts_comes_out(nodes: int, headroom: float, each: float | None) -> None:
    plan = scan()
    row = next(r for r in plan.node_counts if r.nodes == nodes)
    assert round(value(row.headroom_bytes) / 1e9, 3) == headroom
    assert value(row.headroom_bytes) == nodes * 128e9 - 1_560_860_000_000
    if each is not None:
        assert round(value(row.headroom_per_node_bytes) / 1e9, 3) == each


@cache
def scan() -> ClusterPlan:
    demand = Demand(context_tokens=8192, sequences=1)
    return plan_cluster(subject("kimi-k3"), SPARK, layout_rules("vllm"), demand, node_range=range(1, 19))


def test_a_scan_says_which_layout_fits_and_why_none_does() -> None:
    rows = {r.nodes: r for r in scan().node_counts}
    assert rows[16].layout == "TP16"
    assert all(rows[n].layout is None for n in range(1, 13))
    assert "of 110.0 GiB" in rows[4].note
    assert scan().nodes is None
    assert scan().layouts == ()


@pytest.mark.parametrize(("bits", "terabytes", "nodes"), [(3, 1.2205, (10, 12)), (2, 0.8802, (7, 9))])
def test_fewer_bits_take_fewer_nodes(bits: int, terabytes: float, nodes: tuple[int, int]) -> None:
    width = next(w for w in hypothetical_widths(subject("kimi-k3"), SPARK) if w.bits == bits)
    # One bit of 2,722,740,830,208 routed weights is 340.343 GB; scales are kept.
    assert value(width.tensor_bytes) == 1_560_860_000_000 - 2_722_740_830_208 * (4 - bits) / 8
    assert round(value(width.tensor_bytes) / 1e12, 4) == terabytes
    assert (width.nodes_by_basis["labelled"].value, width.nodes_by_basis["planning"].value) == nodes


def test_a_model_of_unknown_bits_has_no_hypothetical_widths() -> None:
    assert hypothetical_widths(subject("kimi-k3-neuron-iq1s"), SPARK) == ()


def test_streaming_from_disk_is_what_was_published() -> None:
    evidence = make_plan("kimi-k3", SPARK, 1).answers["stored_on_ssd"].evidence
    assert value(evidence["streaming_s_per_token"]) == pytest.approx(104e9 * 0.5 / 7e9)
    assert round(value(evidence["streaming_s_per_token"]), 2) == 7.43
    assert round(value(evidence["streaming_tok_per_s"]), 3) == 0.135
    assert round(value(evidence["full_scan_s"])) == 223
    assert evidence["streaming_tok_per_s"].trust.value == "assumed"


@pytest.mark.parametrize(("bits", "bandwidth"), [(4, 7e9), (8, 7e9), (4, 14e9)])
def test_streaming_moves_with_bits_and_disk(bits: int, bandwidth: float) -> None:
    active = Evidence.assumed(104_000_000_000, source="a test")
    step = active_step_bytes(active, Evidence.assumed(bits, source="a test"))
    speed = Evidence.assumed(bandwidth, "bytes/s", source="a test")
    assert value(scan_s(step, speed)) == pytest.approx(104e9 * bits / 8 / bandwidth)
    assert value(decode_steps_per_s(step, speed)) == pytest.approx(bandwidth / (104e9 * bits / 8))


def test_costs_are_what_was_published() -> None:
    flash, k3 = subject("deepseek-v4-flash-0731"), subject("kimi-k3")
    one = estimate_cost(SPARK, 1, flash)
    assert value(one["electricity_usd_per_node_year"]) == pytest.approx(0.2332 * 8760 * 0.15)
    assert round(value(one["electricity_usd_per_node_year"]), 2) == 306.42
    prices = {n: value(estimate_cost(SPARK, n, k3)["purchase_usd"]) for n in (2, 12, 13, 16, 18)}
    assert prices == {2: 9398, 12: 56388, 13: 61087, 16: 75184, 18: 84582}
    assert value(one["hosted_usd_per_output_mtok"]) == pytest.approx(5 * 0.14 + 0.28) == pytest.approx(0.98)
    assert value(estimate_cost(SPARK, 1, k3)["hosted_usd_per_output_mtok"]) == pytest.approx(5 * 3 + 15) == 30
    assert value(one["break_even_output_tokens"]) == round(4699 / 0.98 * 1e6)
    assert round(value(one["break_even_output_tokens"]) / 1e9, 1) == 4.8


def test_costs_move_with_price_mix_and_use() -> None:
    k3 = subject("kimi-k3")
    given_ = estimate_cost(SPARK, 2, k3, usd_per_kwh=0.30, input_per_output=1, tokens_per_month=100_000_000)
    assert value(given_["electricity_usd_per_year"]) == pytest.approx(2 * 0.2332 * 8760 * 0.30)
    assert value(given_["hosted_usd_per_output_mtok"]) == 18
    saved = 18 * 100 - 2 * 0.2332 * 8760 * 0.30 / 12
    assert value(given_["break_even_months"]) == pytest.approx(9398 / saved)
    never = estimate_cost(SPARK, 2, k3, tokens_per_month=1)["break_even_months"]
    assert never.is_missing
    assert "never" in str(never.reason)
    dearer = estimate_cost(with_fact(SPARK, "price", 2), 2, k3)
    assert value(dearer["purchase_usd"]) == 18_796


def test_a_price_nobody_states_is_left_out() -> None:
    cost = estimate_cost(H200, 3, subject("kimi-k3-neuron-iq1s"), tokens_per_month=10)
    assert cost["purchase_usd"].is_missing
    assert cost["break_even_output_tokens"].is_missing
    assert cost["break_even_months"].is_missing


# --- contract, choice, context --------------------------------------------------------------------------------------


def test_the_contract_is_the_sum_of_its_terms() -> None:
    layout = layout_named(make_plan("kimi-k3-neuron-iq1s", SPARK, 4), "TP4 EP4")
    rank = layout.per_rank[0]
    context = 8192 * 27_648 + (434_110_464 + 30_523_392) // 4
    assert rank.kv_bytes == context
    assert rank.resident_bytes == rank.weights_bytes + context + rank.runtime_bytes
    assert value(layout.steady_bytes) == rank.resident_bytes
    peak = value(layout.peak_bytes)
    assert value(layout.contract_free_bytes) == peak + max(round(peak * 0.02), GIB)
    assert layout.contract_free_bytes.trust.value == "assumed"


def test_four_sparks_hold_the_model_and_three_do_not() -> None:
    four, three = (make_plan("kimi-k3-neuron-iq1s", SPARK, n) for n in (4, 3))
    assert four.chosen == "TP4 EP4"
    assert layout_named(four, "TP4").verdict.endswith("1536/4 = 384 = 1.5 blocks of 256 (IQ1_S)")
    tp3 = layout_named(three, "TP3")
    assert tp3.fits is False
    assert value(tp3.contract_free_bytes) > 117 * GIB


def test_ornith_fits_one_spark_at_its_whole_context() -> None:
    plan = make_plan("ornith-1.5-35b-a3b-nvfp4", SPARK, 1, context=262_144)
    layout = layout_named(plan, "TP1")
    assert plan.chosen == "TP1"
    state = 30 * (32 * 128 * 128 * 4 + (2 * 16 + 32) * 128 * 3 * 2)
    assert layout.per_rank[0].kv_bytes == 262_144 * 20_480 + state
    assert value(layout.max_context_tokens["1"]) == 262_144
    assert plan.answers["resident"].answer == "yes"


@pytest.mark.parametrize("sequences", [1, 4, 16])
def test_the_longest_context_is_the_last_that_fits(sequences: int) -> None:
    longest = int(
        value(layout_named(make_plan("kimi-k3-neuron-iq1s", SPARK, 4), "TP4 EP4").max_context_tokens[str(sequences)])
    )
    at, beyond = (
        layout_named(make_plan("kimi-k3-neuron-iq1s", SPARK, 4, context=n, sequences=sequences), "TP4 EP4")
        for n in (longest, longest + 1)
    )
    assert at.fits
    assert not beyond.fits


def test_longest_context_knows_its_limits() -> None:
    budget = Evidence.assumed(1000, "bytes_memory", source="a test")
    assert value(longest_context(lambda n: 10 * n, budget, None)) == 100
    assert value(longest_context(lambda n: 10 * n, budget, 50)) == 50
    assert longest_context(lambda n: 2000, budget, 50).is_missing
    assert longest_context(lambda n: n, Evidence.not_measured("nobody knows"), 50).reason == "nobody knows"


def test_the_budget_is_the_usable_memory_and_may_be_given() -> None:
    assert budget_of(SPARK).value == 110 * GIB
    assert budget_of(H200).value == (138_089 + 5_068) * 2**20
    labelled = replace(SPARK, facts=tuple(f for f in SPARK.facts if f.basis not in ("usable", "exposed")))
    assert value(budget_of(labelled)) == 128e9 - 2e9
    given_ = Evidence.assumed(120 * GIB, "bytes_memory", source="a test")
    demand = Demand(context_tokens=1024, sequences=1)
    plan = plan_cluster(subject("kimi-k3-neuron-iq1s"), SPARK, layout_rules("vllm"), demand, nodes=3, budget=given_)
    assert layout_named(plan, "TP3").fits


def test_a_draft_model_is_divided_between_ranks() -> None:
    demand = Demand(context_tokens=8192, sequences=1, draft_bytes=7_100_000_000)
    plan = plan_cluster(subject("kimi-k3-neuron-iq1s"), H200, layout_rules("vllm"), demand, nodes=3)
    without = make_plan("kimi-k3-neuron-iq1s", H200, 3)
    more = value(layout_named(plan, "TP3").steady_bytes) - value(layout_named(without, "TP3").steady_bytes)
    assert more == -(-7_100_000_000 // 3)


def test_prices_reach_the_plan() -> None:
    demand = Demand(context_tokens=8192, sequences=1)
    plan = plan_cluster(
        subject("kimi-k3"), SPARK, layout_rules("vllm"), demand, nodes=16, prices=Prices(input_per_output=0)
    )
    assert plan.cost["hosted_usd_per_output_mtok"].value == 15


def test_what_nobody_knows_is_not_a_no() -> None:
    bare = replace(SPARK, facts=())
    plan = make_plan("ornith-1.5-35b-a3b-nvfp4", bare, 1)
    assert plan.layouts[0].fits is None
    assert plan.answers["resident"].answer == "not known"
    assert plan.answers["stored_on_ssd"].answer == "not known"
    assert plan.answers["lower_bit"].answer == "not known"


def test_more_ranks_than_a_plan_is_made_for_are_refused() -> None:
    with pytest.raises(InputError, match="1,025 ranks"):
        make_plan("smollm2-135m", SPARK, 1025)


def test_no_expected_figure_stands_in_the_code() -> None:
    source = Path(plan_cluster.__code__.co_filename).parents[1]
    figures = [
        "103.971",
        "78.531",
        "111.304",
        "86.232",
        "66.67",
        "306.42",
        "7.934",
        "1.2205",
        "0.8802",
        "89.121",
        "27.425",
    ]
    for path in source.rglob("*"):
        if path.suffix in {".py", ".toml"}:
            text = path.read_text(encoding="utf-8")
            assert not [f for f in figures if f in text], path.name


def test_two_hundred_thousand_tensors_are_planned_in_a_second() -> None:
    k3 = subject("kimi-k3").inventory
    tensors = [t for t in k3.tensors if t.role not in (Role.ROUTED_GATE, Role.ROUTED_UP, Role.ROUTED_DOWN)]
    names = {"gate_proj": Role.ROUTED_GATE, "up_proj": Role.ROUTED_UP, "down_proj": Role.ROUTED_DOWN}
    for layer in range(1, 93):
        for expert in range(730):
            for name, role in names.items():
                shape = (3584, 3072) if name == "down_proj" else (3072, 3584)
                tensors.append(
                    Tensor(
                        name=f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{name}.weight",
                        role=role,
                        type="MXFP4",
                        shape=shape,
                        bytes=shape[0] * shape[1] // 32 * 17,
                        shard=0,
                        layer=layer,
                    )
                )
    large: Inventory = replace(
        k3, tensors=tuple(tensors), architecture=replace(k3.architecture, num_routed_experts=730)
    )
    assert len(tensors) > 200_000
    begun = time.perf_counter()
    plan = plan_cluster(
        Subject.of_inventory(large), SPARK, layout_rules("vllm"), Demand(context_tokens=8192, sequences=1), nodes=16
    )
    assert time.perf_counter() - begun < 2, "one second on an idle machine"
    assert plan.layouts


def test_experts_in_single_tensors_are_planned_as_stacked_ones_are() -> None:
    stacked = subject("kimi-k2-int4").inventory
    rules = layout_rules("vllm")
    tensors = []
    for t in stacked.tensors:
        if t.role in (Role.ROUTED_GATE, Role.ROUTED_UP, Role.ROUTED_DOWN):
            part = t.name.removesuffix(".weight").rsplit(".", 1)
            tensors += [
                replace(t, name=f"{part[0]}.{e}.{part[1]}.weight", shape=t.shape[1:], bytes=t.bytes // 384)
                for e in range(384)
            ]
        else:
            tensors.append(t)
    single = replace(stacked, tensors=tuple(tensors))
    for layout in (Layout(tp_size=8), Layout(tp_size=4, ep_size=4), Layout(tp_size=2, pp_size=2)):
        both = [group_tensors(x, rules) for x in (stacked, single)]
        judged = [judge_layout(layout, g, stacked.architecture, rules).reasons for g in both]
        assert judged[0] == judged[1]
        sizes = [[r.weights_bytes for r in estimate_residency(layout, g, stacked.architecture)] for g in both]
        assert sizes[0] == sizes[1]
