"""Bytes per rank, against published figures and with their sums spelled out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.engines.layout_rules import layout_rules
from freehold.models.catalogue import CatalogueModel, find_model, instantiate, model_catalogue
from freehold.models.context_items import items_of_inventory
from freehold.plan.layouts import Layout, group_tensors
from freehold.plan.residency import RankWeights, context_bytes, estimate_residency, rank_kv_bytes_per_token

GIB = 2**30


@cache
def model(name: str) -> CatalogueModel:
    return instantiate(*find_model(name, model_catalogue()))


NEURON = model("kimi-k3-neuron-iq1s")
TOTAL = 330_160_710_016
# Router and its bias, norms, residual scores, all F32: what a first estimate already keeps whole.
ROUTER = 92 * (896 * 7168 + 896) * 4
NORMS = 6_912_512
SCORES = (1 + 2 * 93) * 7168 * 4
# Latent projections: 92 pairs of 7,168 × 3,584.
LATENT_Q8 = 92 * 2 * 7168 * 3584 // 32 * 34
LATENT_BF16 = 92 * 2 * 7168 * 3584 * 2
# kv_b in 24 layers: k_b and v_b of 96 × 512 × 128 each.
KV_B_Q8 = 24 * 2 * 96 * 512 * 128 // 32 * 34
KV_B_BF16 = 24 * 2 * 96 * 512 * 128 * 2
# q_a (1,536 × 7,168) and kv_a (576 × 7,168) in 24 layers.
DOWN_Q8 = 24 * (1536 + 576) * 7168 // 32 * 34


def ranks(layout: Layout, name: str = "kimi-k3-neuron-iq1s", engine: str = "vllm") -> tuple[RankWeights, ...]:
    inventory = model(name).inventory
    return estimate_residency(layout, group_tensors(inventory, layout_rules(engine)), inventory.architecture)


@pytest.mark.parametrize(("tp_size", "naive", "real"), [(3, 103.971, 111.304), (4, 78.531, 86.232)])
def test_the_published_estimate_and_what_the_engine_adds(tp_size: int, naive: float, real: float) -> None:
    terms = ranks(Layout(tp_size=tp_size, ep_size=1 if tp_size == 3 else 4))[0].terms
    whole = ROUTER + NORMS + SCORES
    first = terms["even_share"] + terms["router_and_norms"]
    assert first == pytest.approx((TOTAL - whole) / tp_size + whole, abs=4)
    assert round(first / GIB, 3) == naive
    latent = LATENT_BF16 - LATENT_Q8 / tp_size
    assert terms["latent_projections"] == pytest.approx(latent, abs=2)
    assert f"{LATENT_BF16 / GIB:.3f}" == "8.805"  # 8.8047: published cut off as 8.804
    assert terms["mla_kv_b"] == pytest.approx((KV_B_BF16 - KV_B_Q8) / tp_size, abs=2)
    assert round((first + terms["latent_projections"] + terms["mla_kv_b"]) / GIB, 3) == real


@pytest.mark.parametrize(("tp_size", "more"), [(3, 0.24), (4, 0.27)])
def test_replicated_low_rank_projections_are_a_term_of_their_own(tp_size: int, more: float) -> None:
    term = ranks(Layout(tp_size=tp_size))[0].terms["mla_down_projections"]
    assert term == pytest.approx(DOWN_Q8 * (1 - 1 / tp_size), abs=2)
    assert round(term / GIB, 2) == more


def test_the_vocabulary_is_padded_to_the_lcm_of_64_and_the_ranks() -> None:
    # 163,840 rows become 163,968 for 3 ranks: 128 more rows of 7,168 F16 in two tensors, a third of it each.
    assert ranks(Layout(tp_size=3))[0].terms["vocabulary_padding"] == pytest.approx(2 * 128 * 7168 * 2 / 3, abs=2)
    assert "vocabulary_padding" not in ranks(Layout(tp_size=4))[0].terms


@pytest.mark.parametrize("width", [512, 768, 1024, 2048])
def test_the_figures_move_with_the_width_as_the_routed_bytes_do(width: int) -> None:
    terms = ranks(Layout(tp_size=4, ep_size=4), f"kimi-k3-neuron-iq1s:expert_width={width}")[0].terms
    routed = 92 * 896 * 3 * 3584 // 256 * 50
    at_1536 = ranks(Layout(tp_size=4, ep_size=4))[0].terms
    assert at_1536["even_share"] - terms["even_share"] == pytest.approx(routed * (1536 - width) / 4, abs=2)
    assert {k: v for k, v in terms.items() if k != "even_share"} == {
        k: v for k, v in at_1536.items() if k != "even_share"
    }


@pytest.mark.parametrize(("width", "tp3", "tp4"), [(1024, 76.45, 57.89), (1536, 103.97, 78.53), (2048, 131.48, 99.16)])
def test_the_published_scaling_with_the_width(width: int, tp3: float, tp4: float) -> None:
    for tp_size, published in ((3, tp3), (4, tp4)):
        terms = ranks(Layout(tp_size=tp_size), f"kimi-k3-neuron-iq1s:expert_width={width}")[0].terms
        first = terms["even_share"] + terms["router_and_norms"]
        assert first / GIB == pytest.approx(published, abs=0.01)  # some were cut off, not rounded


def test_the_ways_out_have_their_price() -> None:
    routed = 92 * 896 * 3 * 3584 * 1536 // 256 * 50
    even = ranks(Layout(tp_size=4, ep_size=4))
    assert [r.weights_bytes for r in ranks(Layout(tp_size=4, ep_size=2))] == [r.weights_bytes for r in even]
    uneven = ranks(Layout(tp_size=4, width_cut="uneven"))
    # 6 blocks as 2, 2, 1, 1: a third or a sixth of the routed bytes instead of a quarter.
    assert [u.weights_bytes - even[0].weights_bytes for u in uneven] == [
        routed // 12, routed // 12, -routed // 12, -routed // 12,
    ]  # fmt: skip
    padded = ranks(Layout(tp_size=4, width_cut="padded"))
    assert {p.weights_bytes - even[0].weights_bytes for p in padded} == {routed // 12}
    dequantised = ranks(Layout(tp_size=4, width_cut="dequantised"))
    down = 92 * 896 * 3584 * 1536
    assert dequantised[0].weights_bytes - even[0].weights_bytes == (down * 2 - down // 256 * 50) // 4


def test_one_rank_keeps_the_file_and_what_is_dequantised() -> None:
    only = ranks(Layout(tp_size=1))[0]
    assert only.weights_bytes == TOTAL + LATENT_BF16 - LATENT_Q8 + KV_B_BF16 - KV_B_Q8
    assert only.replicated_bytes == 0
    assert ranks(Layout(tp_size=1), engine="sparkinfer")[0].weights_bytes == TOTAL


@given(st.sampled_from(list(model_catalogue())), st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2), (4, 1), (8, 2)]))
def test_terms_add_up_and_no_byte_is_lost(name: str, sizes: tuple[int, int]) -> None:
    found = model(name)
    layout = Layout(tp_size=sizes[0], pp_size=sizes[1])
    groups = group_tensors(found.inventory, layout_rules("vllm"))
    all_ranks = estimate_residency(layout, groups, found.inventory.architecture)
    assert len(all_ranks) == layout.num_ranks
    for rank in all_ranks:
        assert rank.weights_bytes == sum(rank.kept)
        assert 0 <= rank.replicated_bytes <= rank.weights_bytes
    for i, group in enumerate(groups):
        assert sum(rank.kept[i] for rank in all_ranks) >= group.bytes, "every stored byte is on some rank"


def test_pipeline_stages_hold_the_file_once_between_them() -> None:
    stages = ranks(Layout(tp_size=1, pp_size=3), engine="llama.cpp")
    assert sum(r.weights_bytes for r in stages) == TOTAL


# --- context -------------------------------------------------------------------------------------------------------


def test_the_latent_is_whole_on_every_rank_and_the_state_is_divided() -> None:
    items = NEURON.context_items
    for tp_size in (1, 3, 4):
        layout = Layout(tp_size=tp_size)
        # 24 layers × (512 + 64) × 2 B.
        assert rank_kv_bytes_per_token(items, layout) == 27_648
        state = 69 * 96 // tp_size * 128 * 128 * 4
        conv = 69 * 3 * 96 // tp_size * 128 * 3 * 4
        assert context_bytes(items, layout, context_tokens=1000, sequences=2) == 2 * (27_648_000 + state + conv)


def test_the_state_of_one_sequence_is_the_published_one() -> None:
    items = [i for i in NEURON.context_items if i.per == "sequence"]
    sizes = [context_bytes([i], Layout(tp_size=1), context_tokens=1, sequences=1) for i in items]
    assert sizes == [434_110_464, 30_523_392]


def test_a_kv_type_changes_the_cache_and_not_the_state() -> None:
    items, layout = NEURON.context_items, Layout(tp_size=1)
    whole = context_bytes(items, layout, context_tokens=1024, sequences=1)
    halved = context_bytes(items, layout, context_tokens=1024, sequences=1, kv_type_name="fp8")
    assert whole - halved == 1024 * 27_648 // 2


def test_heads_are_repeated_where_there_are_fewer_than_ranks() -> None:
    items = model("ornith-1.5-35b-a3b-nvfp4").context_items
    # 10 layers × 2 heads × (256 + 256) × 2 B.
    assert [rank_kv_bytes_per_token(items, Layout(tp_size=n)) for n in (1, 2, 4)] == [20_480, 10_240, 10_240]


def test_a_window_stops_growing_and_compressed_layers_share_entries() -> None:
    items, layout = model("deepseek-v4-flash-0731").context_items, Layout(tp_size=1)
    # 21 layers with (512 + 128) / 4 elements, 20 with 512 / 128, 2 B each.
    assert rank_kv_bytes_per_token(items, layout) == 21 * 640 / 4 * 2 + 20 * 512 / 128 * 2
    window = [i for i in items if i.name == "window"]
    short, long = (context_bytes(window, layout, context_tokens=n, sequences=1) for n in (128, 100_000))
    assert short == long == 43 * 128 * 512 * 2


@pytest.mark.parametrize(
    ("context", "published"), [(32_768, 475e6), (65_536, 926e6), (131_072, 1.83e9), (262_144, 3.63e9)]
)
def test_a_published_cache_is_the_sum_with_four_bytes_per_element(context: int, published: float) -> None:
    items, layout = model("deepseek-v4-flash-q2").context_items, Layout(tp_size=1)
    found = context_bytes(items, layout, context_tokens=context, sequences=1, kv_type_name="f32")
    assert found == pytest.approx(published, rel=0.03)


@given(st.sampled_from(list(model_catalogue())), st.integers(1, 10**6), st.integers(1, 4096))
def test_more_context_never_takes_less(name: str, context: int, more: int) -> None:
    items, layout = model(name).context_items, Layout(tp_size=1)
    low = context_bytes(items, layout, context_tokens=context, sequences=1)
    assert context_bytes(items, layout, context_tokens=context + more, sequences=1) >= low
    assert context_bytes(items, layout, context_tokens=context, sequences=3) == 3 * low


@pytest.mark.parametrize("name", ["kimi-k3-neuron-iq1s", "kimi-k3"])
def test_the_state_of_delta_attention_follows_from_its_tensors(name: str) -> None:
    known = items_of_inventory(model(name).inventory)
    assert known.missing == ""
    for tp_size in (1, 3, 4):
        sizes = [
            context_bytes(items, Layout(tp_size=tp_size), context_tokens=5000, sequences=2)
            for items in (known.items, model(name).context_items)
        ]
        assert sizes[0] == sizes[1], "the headers say what the catalogue says"


def test_a_header_gives_the_items_it_states_and_names_the_rest() -> None:
    smol = model("smollm2-135m")
    known = items_of_inventory(smol.inventory)
    assert rank_kv_bytes_per_token(known.items, Layout(tp_size=1)) == 23_040
    assert known.missing == ""
    known = items_of_inventory(model("ornith-1.5-35b-a3b-nvfp4").inventory)
    assert rank_kv_bytes_per_token(known.items, Layout(tp_size=1)) == 20_480
    assert "30 layers keep a recurrent state" in known.missing
    windowed = replace(smol.inventory, architecture=replace(smol.inventory.architecture, sliding_window=512))
    assert "upper bound" in items_of_inventory(windowed).notes[0]
    nothing = replace(smol.inventory, architecture=replace(smol.inventory.architecture, head_dim=None))
    assert items_of_inventory(nothing).items == ()
