"""The model catalogue: generated inventories against published totals, parameters, the user's files, mistakes."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.errors import InputError
from freehold.models.blueprint import REMAINDER, block_of, tensor_bytes
from freehold.models.catalogue import CatalogueModel, find_model, instantiate, model_catalogue
from freehold.models.dimensions import evaluate, layer_sets
from freehold.records.inventory import Role


def model(name: str) -> CatalogueModel:
    return instantiate(*find_model(name, model_catalogue()))


def test_k3_neuron_has_the_published_bytes_and_tensors() -> None:
    inventory = model("kimi-k3-neuron-iq1s").inventory
    assert inventory.tensor_bytes == 330_160_710_016
    assert inventory.num_tensors == 2_573
    # 92 layers × 896 experts × three matrices of 3,584 × 1,536, 50 B for 256 weights.
    assert sum(inventory.by_role[r].bytes for r in ("routed_gate", "routed_up", "routed_down")) == (
        92 * 896 * 3 * 3584 * 1536 // 256 * 50
    )


@pytest.mark.parametrize("width", [512, 768, 1024, 1536, 2048])
def test_a_width_changes_the_routed_experts_and_nothing_else(width: int) -> None:
    published = model("kimi-k3-neuron-iq1s").inventory
    changed = model(f"kimi-k3-neuron-iq1s:expert_width={width}").inventory
    routed = 92 * 896 * 3 * 3584 * width // 256 * 50
    assert changed.tensor_bytes == 330_160_710_016 - 92 * 896 * 3 * 3584 * 1536 // 256 * 50 + routed
    assert changed.by_role["shared_expert"] == published.by_role["shared_expert"]
    assert changed.architecture.num_shared_experts == 6144 // width


@pytest.mark.parametrize(
    ("width", "reason"),
    [(1280, "6,144 / 1,280 = 4.8"), (384, "outside 512"), (3072, "outside 512"), (1100, "6,144 / 1,100")],
)
def test_an_impossible_width_is_refused_with_the_reason(width: int, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        model(f"kimi-k3-neuron-iq1s:expert_width={width}")
    assert reason in refused.value.why
    assert refused.value.fix == "possible are 512, 768, 1,024, 1,536, 2,048"


def test_smollm2_is_what_its_header_says() -> None:
    inventory = model("smollm2-135m").inventory
    assert (inventory.tensor_bytes, inventory.num_tensors) == (96_576_768, 272)
    assert inventory.file_bytes == 98_362_432


@pytest.mark.parametrize(
    ("name", "payload", "on_disk"),
    [
        ("deepseek-v4-flash-0731", 166_878_536_440, 166_886_535_336),
        ("kimi-k3", 1_560_860_000_000, 1_560_936_091_448),
    ],
)
def test_published_totals_hold_and_what_is_missing_is_named(name: str, payload: int, on_disk: int) -> None:
    inventory = model(name).inventory
    assert (inventory.tensor_bytes, inventory.file_bytes) == (payload, on_disk)
    missing = inventory.tensors[-1]
    assert (missing.name, missing.role) == (REMAINDER, Role.OTHER)
    assert missing.bytes < payload * 0.003
    assert any(f"{missing.bytes:,} B of the published total" in note for note in inventory.notes)


@pytest.mark.parametrize("name", ["deepseek-v4-flash-q2", "ornith-1.5-35b-a3b-nvfp4"])
def test_blueprints_without_an_exact_total_come_near_the_published_size(name: str) -> None:
    found = model(name)
    published = found.fact("published_bytes").number
    assert published is not None
    assert found.inventory.tensor_bytes == pytest.approx(published, rel=0.01)


def test_k3_has_the_routed_weights_that_were_published() -> None:
    inventory = model("kimi-k3").inventory
    routed = [t for t in inventory.tensors if t.role in (Role.ROUTED_GATE, Role.ROUTED_UP, Role.ROUTED_DOWN)]
    assert sum(t.shape[0] * t.shape[1] * t.shape[2] for t in routed) == 2_722_740_830_208


@pytest.mark.parametrize("name", list(model_catalogue()))
def test_every_model_is_whole(name: str) -> None:
    found = model(name)
    inventory = found.inventory
    known = [t for t in inventory.tensors if t.name != REMAINDER]
    assert not [t.name for t in known if t.role is Role.OTHER], "the role table knows every name"
    assert sum(t.bytes for t in inventory.tensors) == inventory.tensor_bytes
    assert sum(total.bytes for total in inventory.by_role.values()) == inventory.tensor_bytes
    assert len({t.name for t in inventory.tensors}) == inventory.num_tensors
    assert found.context_items
    layers = {t.layer for t in known if t.layer is not None and t.role is not Role.DRAFT}
    assert layers == set(range(inventory.architecture.num_layers or 0))


def test_parameters_that_are_chosen_take_the_published_facts_away() -> None:
    other = model("kimi-k3-neuron-iq1s:expert_width=1024")
    assert not other.is_published
    assert other.fact("tensor_bytes").is_missing
    assert other.inventory.source == "catalogue:kimi-k3-neuron-iq1s:expert_width=1024"


@given(
    st.sampled_from(["F32", "F16", "Q8_0", "IQ1_S", "MXFP4", "NVFP4", "Q2_K"]), st.integers(1, 40), st.integers(1, 40)
)
def test_bytes_agree_with_the_gguf_package(type_name: str, rows: int, blocks: int) -> None:
    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    assert block_of(type_name) == (weights, size)
    assert tensor_bytes((rows, blocks * weights), type_name, "t") == rows * blocks * size


def test_a_row_that_is_no_whole_number_of_blocks_is_refused() -> None:
    with pytest.raises(InputError, match=r"384 is 1\.5 blocks of 256 \(IQ1_S\)"):
        tensor_bytes((7168, 384), "IQ1_S", "ffn_down")


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_expressions_are_arithmetic(a: int, b: int) -> None:
    assert evaluate("a * b + a", {"a": a, "b": b}) == a * b + a
    assert evaluate("(a * b) / b", {"a": a, "b": b}) == a


@pytest.mark.parametrize(
    "text", ["7 / 2", "a", "1 -", "1 - 1", "__import__('os')", "2 ** 9", "a.b", "1 < 2", "9" * 300, "", "True"]
)
def test_what_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        evaluate(text, {})


def test_layer_sets_read_as_written() -> None:
    sets = layer_sets({"all": ["0..9"], "some": ["1..7/3", "9"], "rest": ["all - some"]})
    assert sets == {"all": tuple(range(10)), "some": (1, 4, 7, 9), "rest": (0, 2, 3, 5, 6, 8)}


@pytest.mark.parametrize("item", ["3..1", "x", "1..2/0", "all - none", "-1", "1..99999999"])
def test_what_is_no_layer_set_is_refused(item: str) -> None:
    with pytest.raises(InputError):
        layer_sets({"all": ["0..9"], "bad": [item]})


MINE = """
name = "mine"
title = "A model of my own"
source = "me"
checked = 2026-11-30
format = "gguf"
tensors = [ { name = "token_embd.weight", shape = [64, "width"], type = "F16" } ]
[dimensions]
width = 32
[architecture]
num_layers = 1
"""


def test_the_users_models_join_and_lie_over_ours(tmp_path: Path) -> None:
    mine, over = tmp_path / "mine.toml", tmp_path / "over.toml"
    mine.write_text(MINE)
    over.write_text('name = "smollm2-135m-instruct-q4_1"\ntitle = "Renamed"\n')
    catalogue = model_catalogue((mine, over))
    assert instantiate(catalogue["mine"]).inventory.tensor_bytes == 64 * 32 * 2
    assert catalogue["smollm2-135m-instruct-q4_1"].title == "Renamed"
    assert instantiate(catalogue["smollm2-135m-instruct-q4_1"]).inventory.tensor_bytes == 96_576_768


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("checked = 2026-11-30\n", ""), "missing: checked"),
        (('"gguf"', '"pickle"'), "pickle"),
        (('"F16"', '"F17"'), "F17"),
        (('"width"]', '"widht"]'), "widht"),
        (("num_layers", "num_layer"), "num_layer"),
        (('name = "mine"', 'nam = "mine"'), "begins with `name`"),
        (('"A model', "A model"), "no TOML"),
        (('title = "A', 'published = [{ hardware = "h200", nodes = 1 }]\ntitle = "A'), "config"),
        (("width = 32", "width = [32]"), "not a dimension"),
        (('title = "A', 'notes = 5\ntitle = "A'), "wrong kind"),
    ],
)
def test_mistakes_in_a_users_file_are_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace(*change))
    with pytest.raises(InputError) as refused:
        instantiate(model_catalogue((path,))["mine"])
    assert said in f"{refused.value.what} {refused.value.why}"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("kimi-k3-neuron", None),
        ("Kimi-K3", None),
        ("kimi-k33", "kimi-k3"),
        ("smolm2", "smollm2"),
        ("zzz", "catalog list"),
    ],
)
def test_names_are_found_or_the_nearest_is_suggested(asked: str, said: str | None) -> None:
    if said is None:
        assert find_model(asked, model_catalogue())
        return
    with pytest.raises(InputError) as refused:
        find_model(asked, model_catalogue())
    assert said in refused.value.fix


@pytest.mark.parametrize("asked", ["kimi-k3:width=3", "k3-neuron:expert_width", "k3-neuron:expert_width=-3", "k3:"])
def test_parameters_that_make_no_sense_are_refused(asked: str) -> None:
    with pytest.raises(InputError):
        find_model(asked, model_catalogue())
