"""Whole checkpoints: the flagship to the byte, folders of every kind, and what the notes say."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from freehold.errors import CheckpointError, FreeholdError, InputError
from freehold.models.assembly import _tensor_maker
from freehold.models.inventory import inventory_document, inventory_json, read_inventory
from freehold.models.summary import bits_per_weight, count_weights, group_tensors
from freehold.records.base import decode, encode, to_plain
from freehold.records.inventory import Inventory, Role, Tensor


def fails(path: Path, kind: type[FreeholdError], *parts: str) -> None:
    with pytest.raises(kind) as caught:
        read_inventory(path)
    text = f"{caught.value.what} | {caught.value.why} | {caught.value.fix}"
    for part in parts:
        assert part in text


# --- the flagship ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def k3_neuron(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    folder = tmp_path_factory.mktemp("k3") / "k3-neuron"
    made.write_k3_neuron(folder)
    return read_inventory(folder)


def test_k3_neuron_is_exact_to_the_byte(k3_neuron: Inventory) -> None:
    assert k3_neuron.num_tensors == 2573
    assert k3_neuron.tensor_bytes == 330_160_710_016  # as published
    assert len(k3_neuron.files) == 9
    assert k3_neuron.notes == ()


def test_k3_neuron_by_role_is_the_arithmetic_of_its_dimensions(k3_neuron: Inventory) -> None:
    found = {role: total.bytes for role, total in k3_neuron.by_role.items()}
    iq1_s, q8_0 = 50 / 256, 34 / 32  # bytes per weight
    routed = int(92 * 896 * 1536 * 3584 * iq1_s)
    assert found["routed_gate"] == found["routed_up"] == found["routed_down"] == routed == 88_630_886_400
    assert found["routed_gate"] + found["routed_up"] + found["routed_down"] == 265_892_659_200
    assert found["latent_proj"] == int(92 * 2 * 3584 * 7168 * q8_0) == 5_022_416_896
    assert found["attn_qkv"] == int(69 * 3 * 12288 * 7168 * q8_0) == 19_372_179_456
    assert found["shared_expert"] == int(92 * 3 * 6144 * 7168 * q8_0) == 12_914_786_304
    assert found["attn_output"] == int(93 * 7168 * 12288 * q8_0) == 8_703_442_944
    assert found["router"] == 92 * 896 * (7168 + 1) * 4 == 2_363_820_032
    assert found["output_head"] == found["token_embd"] == 163_840 * 7168 * 2
    assert found["attn_gate"] == int(24 * 12288 * 7168 * q8_0)
    mla = 1536 * 7168 + 96 * 192 * 1536 + 576 * 7168 + 96 * 512 * 128 * 2
    assert found["attn_mla"] == int(24 * mla * q8_0)
    assert found["ssm_proj"] == int(69 * (12288 * 7168 + 128 * 7168 + 12288 * 128 + 96 * 7168) * q8_0)
    assert found["ssm_state"] == 69 * (3 * 12288 * 4 + 12288 + 96) * 4
    assert found["dense_ffn"] == int(3 * 33792 * 7168 * q8_0)
    assert found["residual_score"] == (93 * 2 + 1) * 7168 * 4
    assert found["norm"] == (7168 + 93 * 2 * 7168 + 24 * (1536 + 512) + 69 * 128 + 92 * 3584) * 4
    assert sum(found.values()) == k3_neuron.tensor_bytes
    assert "other" not in found


def test_k3_neuron_by_type(k3_neuron: Inventory) -> None:
    found = {kind: (total.bytes, total.num_tensors) for kind, total in k3_neuron.by_type.items()}
    assert list(found) == ["IQ1_S", "Q8_0", "F16", "F32"]  # most bytes first
    assert found["IQ1_S"] == (265_892_659_200, 276)
    assert found["F16"] == (2 * 163_840 * 7168 * 2, 2)
    assert sum(size for size, _ in found.values()) == k3_neuron.tensor_bytes


def test_k3_neuron_states_its_architecture(k3_neuron: Inventory) -> None:
    facts = k3_neuron.architecture
    assert (facts.name, facts.num_layers, facts.hidden_size, facts.num_heads) == ("kimi-k3", 93, 7168, 96)
    assert (facts.num_routed_experts, facts.num_experts_per_token) == (896, 16)
    assert (facts.vocab_size, facts.context_tokens) == (163_840, 1_048_576)
    assert facts.tied_embeddings is False
    assert facts.kv_lora_rank is None  # this header does not say


def test_k3_neuron_layers_and_shards(k3_neuron: Inventory) -> None:
    assert {t.layer for t in k3_neuron.tensors if t.layer is not None} == set(range(93))
    for shard, entry in enumerate(k3_neuron.files):
        payload = sum(t.bytes for t in k3_neuron.tensors if t.shard == shard)
        assert 0 < entry.bytes - payload < 30_000  # header and padding
    weights = count_weights(k3_neuron)
    assert weights is not None
    assert 92 * 896 * 3 * 1536 * 3584 < weights < 1.05 * 92 * 896 * 3 * 1536 * 3584
    assert bits_per_weight(k3_neuron) == pytest.approx(8 * 330_160_710_016 / weights)


def test_bytes_on_disk_and_payload_differ_by_the_headers(made: ModuleType, tmp_path: Path) -> None:
    """As K3's own files do: 1,560.936 GB on disk hold 1,560.860 GB of tensors."""
    paths = made.write_k3_native(tmp_path / "k3", num_shards=7, num_layers=5, num_experts=12)
    inventory = read_inventory(tmp_path / "k3")
    headers = 0
    for path in paths:
        with path.open("rb") as file:
            headers += 8 + int.from_bytes(file.read(8), "little")
    assert inventory.file_bytes - inventory.tensor_bytes == headers > 0
    assert inventory.file_bytes == sum(path.stat().st_size for path in paths)
    # one expert: three matrices of 3072 · 3584 weights at 4 bits, and a scale byte per 32 weights
    expert = 3 * 3072 * 3584 * (1 / 2 + 1 / 32)
    routed = sum(inventory.by_role[role].bytes for role in ("routed_gate", "routed_up", "routed_down"))
    assert routed == 4 * 12 * expert
    assert inventory.by_role["attn_gate"].bytes == 12288 * 7168 * 2  # layer 3 is MLA, its g_proj a gate
    assert inventory.by_role["latent_proj"].bytes == 4 * 2 * 7168 * 3584 * 2
    assert "other" not in inventory.by_role
    assert count_weights(inventory) is None  # packed into bytes
    facts = inventory.architecture
    assert (facts.head_dim, facts.value_head_dim, facts.kv_lora_rank, facts.rope_head_dim) == (192, 128, 512, 64)
    assert (facts.num_shared_experts, facts.expert_ffn_size, facts.eos_token_ids) == (2, 3072, (163585,))


def test_a_header_hash_stands_for_all_headers(made: ModuleType, tmp_path: Path) -> None:
    tensors = [made.Made(f"t{i}", (4,), "F32") for i in range(4)]
    one = made.write_safetensors(tmp_path / "one.safetensors", tensors)
    assert read_inventory(one).header_sha256 == hashlib.sha256(one.read_bytes()[:-64]).hexdigest()
    made.write_safetensors_shards(tmp_path / "two", tensors, 2)
    each = [hashlib.sha256(p.read_bytes()[:-32]).hexdigest() for p in sorted((tmp_path / "two").glob("*.safetensors"))]
    expected = hashlib.sha256("".join(f"{h}\n" for h in each).encode()).hexdigest()
    assert read_inventory(tmp_path / "two").header_sha256 == expected


# --- folders and names ----------------------------------------------------------------------------------------------

META = {"general.architecture": "llama", "llama.block_count": 1}


def small(made: ModuleType, *, head: bool = True) -> list[Any]:
    rows = [made.Made("token_embd.weight", (32, 64), "F16"), made.Made("blk.0.attn_q.weight", (64, 64), "Q8_0")]
    return [*rows, made.Made("output.weight", (32, 64), "F16")] if head else rows


def test_a_file_its_folder_and_a_link_are_one_checkpoint(made: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = made.write_gguf(folder / "m.gguf", small(made), META)
    blob = tmp_path / "sha256-abc"
    shutil.copyfile(path, blob)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "m.gguf").symlink_to(blob)
    by_file, by_folder, by_link = read_inventory(path), read_inventory(folder), read_inventory(tmp_path / "linked")
    assert by_file.tensors == by_folder.tensors == by_link.tensors == read_inventory(blob).tensors
    assert (by_file.source, by_folder.source, by_link.source) == ("m.gguf", "model", "linked")
    assert by_link.file_bytes == path.stat().st_size
    assert read_inventory(path, source="pypi:x==1").source == "pypi:x==1"


def test_paths_that_lead_nowhere(made: ModuleType, tmp_path: Path) -> None:
    fails(tmp_path / "missing", InputError, "does not exist")
    fails(tmp_path / "missing.gguf", InputError, "does not exist")
    fails(tmp_path, InputError, "no checkpoint in", "found nothing")
    (tmp_path / "notes.txt").write_text("hello")
    fails(tmp_path / "notes.txt", InputError, "no checkpoint that is known", "b'hell'")
    fails(tmp_path / "notes.txt" / "x", InputError, "does not exist")


def test_what_leads_nowhere_in_a_folder_is_passed_over(made: ModuleType, tmp_path: Path) -> None:
    made.write_gguf(tmp_path / "m.gguf", small(made), META)
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    (tmp_path / "gone.gguf").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.gguf")
    assert [file.name for file in read_inventory(tmp_path).files] == ["m.gguf"]


def test_a_file_name_that_is_no_text(made: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"m\xff.gguf")
    made.write_gguf(path, small(made), META)
    fails(path, InputError, r"the name of m\udcff.gguf is not UTF-8", "rename it")
    fails(tmp_path, InputError, "is not UTF-8")


def test_a_file_without_tensors_is_no_checkpoint(made: ModuleType, tmp_path: Path) -> None:
    fails(made.write_gguf(tmp_path / "vocab.gguf", [], META), CheckpointError, "holds no tensors", "vocabulary-only")
    fails(made.write_safetensors(tmp_path / "m.safetensors", []), CheckpointError, "holds no tensors")


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("m-Q2_K.gguf", "Q4_K", "says Q2_K, which holds 0% of the bytes; Q4_K holds 100%"),
        ("m-UD-Q2_K_XL.gguf", "Q4_K", "says Q2_K"),
        ("k3-iq1s-thing.gguf", "Q2_K", "says IQ1_S"),
        ("m.Q4_K_M.gguf", "Q4_K", None),
        ("m.q4_1.gguf", "Q4_1", None),
        ("m-bf16.gguf", "BF16", None),
        ("qwen2-7b-instruct-v0.2.gguf", "Q4_K", None),
        ("phi-Q4_K.gguf", "Q6_K", "says Q4_K"),
    ],
)
def test_a_name_that_promises_another_type(
    made: ModuleType, tmp_path: Path, name: str, kind: str, says: str | None
) -> None:
    path = made.write_gguf(tmp_path / name, [made.Made("output.weight", (4, 256), kind)], META)
    notes = [n for n in read_inventory(path).notes if "name says" in n]
    assert len(notes) == (says is not None)
    assert says is None or says in notes[0]


def test_tied_embeddings_are_noticed_in_gguf(made: ModuleType, tmp_path: Path) -> None:
    tied = read_inventory(made.write_gguf(tmp_path / "t.gguf", small(made, head=False), META))
    assert tied.architecture.tied_embeddings is True
    assert any("tied" in n for n in tied.notes)
    assert "output_head" not in tied.by_role
    own = read_inventory(made.write_gguf(tmp_path / "o.gguf", small(made), META))
    assert own.architecture.tied_embeddings is False
    assert own.notes == ()


@pytest.mark.parametrize(
    ("config", "has_head", "expected", "note"),
    [
        ({"tie_word_embeddings": True}, False, True, "the output head is tied"),
        ({"tie_word_embeddings": True}, True, True, "stored although"),
        ({"tie_word_embeddings": False}, True, False, None),
        ({"tie_word_embeddings": False}, False, None, "no output head is stored"),
        ({}, False, True, "the output head is tied"),
        ({"architectures": ["LlamaModel"]}, False, None, None),
        ({"text_config": {"tie_word_embeddings": True}}, False, True, "the output head is tied"),
    ],
)
def test_tied_embeddings_in_safetensors(
    made: ModuleType, tmp_path: Path, config: dict[str, Any], has_head: bool, expected: bool | None, note: str | None
) -> None:
    tensors = [made.Made("model.embed_tokens.weight", (32, 64), "BF16")]
    tensors += [made.Made("lm_head.weight", (32, 64), "BF16")] if has_head else []
    made.write_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **config}))
    inventory = read_inventory(tmp_path)
    assert inventory.architecture.tied_embeddings is expected
    assert inventory.architecture.vocab_size == 32  # from the embedding, config.json does not say
    assert [n for n in inventory.notes if "head" in n] == [n for n in inventory.notes if note and note in n]
    assert note is None or inventory.notes


def test_names_the_table_does_not_know_are_counted(made: ModuleType, tmp_path: Path) -> None:
    tensors = [*small(made), made.Made("blk.0.flux_capacitor.weight", (8,), "F32")]
    inventory = read_inventory(made.write_gguf(tmp_path / "m.gguf", tensors, META))
    assert inventory.by_role["other"].bytes == 32
    assert any("1 tensors with 32 bytes" in n and "blk.0.flux_capacitor.weight" in n for n in inventory.notes)


def test_draft_layers_are_apart_and_not_counted_as_layers(made: ModuleType, tmp_path: Path) -> None:
    metadata = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 3,
        "deepseek2.nextn_predict_layers": 1,
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.attention.key_length": 576,
        "deepseek2.attention.key_length_mla": 192,
        "deepseek2.attention.value_length_mla": 128,
        "deepseek2.rope.dimension_count": 64,
    }
    tensors = [made.Made(f"blk.{i}.attn_norm.weight", (8,), "F32") for i in range(3)]
    inventory = read_inventory(made.write_gguf(tmp_path / "m.gguf", tensors, metadata))
    assert [str(t.role) for t in inventory.tensors] == ["norm", "norm", "draft"]
    facts = inventory.architecture
    assert facts.num_layers == 2
    assert (facts.head_dim, facts.value_head_dim, facts.kv_lora_rank, facts.rope_head_dim) == (192, 128, 512, 64)
    assert any("1 more layer for drafting tokens beside the 2 counted, stored" in n for n in inventory.notes)


# --- facts ----------------------------------------------------------------------------------------------------------


def test_gguf_facts(made: ModuleType, tmp_path: Path) -> None:
    metadata = {
        "general.architecture": "gemma3",
        "gemma3.block_count": 6,
        "gemma3.embedding_length": 640,
        "gemma3.attention.head_count": 4,
        "gemma3.attention.head_count_kv": ("u32", [1, 1, 2, 1, 1, 2]),
        "gemma3.attention.key_length": 256,
        "gemma3.attention.sliding_window": 512,
        "gemma3.context_length": 32768,
        "gemma3.feed_forward_length": 2048,
        "tokenizer.ggml.tokens": ["a"] * 77,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 106,
        "tokenizer.ggml.eom_token_id": 1,
        "tokenizer.chat_template": "{{ x }}",
    }
    inventory = read_inventory(made.write_gguf(tmp_path / "m.gguf", small(made), metadata))
    facts = inventory.architecture
    assert (facts.num_layers, facts.hidden_size, facts.num_heads, facts.num_kv_heads) == (6, 640, 4, 2)
    assert (facts.head_dim, facts.value_head_dim, facts.sliding_window, facts.ffn_size) == (256, None, 512, 2048)
    assert (facts.vocab_size, facts.context_tokens, facts.bos_token_id) == (77, 32768, 2)
    assert facts.eos_token_ids == (1, 106)
    assert facts.chat_template_sha256 == hashlib.sha256(b"{{ x }}").hexdigest()
    assert facts.rope_head_dim is None
    assert any("head_count_kv differs between layers" in n for n in inventory.notes)


def config_of(made: ModuleType, folder: Path, **files: Any) -> Inventory:
    made.write_safetensors(folder / "model.safetensors", [made.Made("lm_head.weight", (32, 64), "BF16")])
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_inventory(folder)


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "eos_token_id": 2,
    "sliding_window": 4096,
    "use_sliding_window": False,
}


def test_config_facts_and_the_two_defaults_of_the_format(made: ModuleType, tmp_path: Path) -> None:
    facts = config_of(made, tmp_path, config__json=LLAMA).architecture
    assert (facts.name, facts.num_layers, facts.num_kv_heads, facts.head_dim) == ("LlamaForCausalLM", 30, 9, 64)
    assert facts.sliding_window is None
    assert facts.eos_token_ids == (2,)


def test_the_generation_config_knows_the_real_stop_tokens(made: ModuleType, tmp_path: Path) -> None:
    inventory = config_of(
        made, tmp_path, config__json=LLAMA | {"eos_token_id": 7}, generation_config__json={"eos_token_id": [5, 6]}
    )
    assert inventory.architecture.eos_token_ids == (5, 6)
    assert any("ends at 5 or 6, config.json at 7" in n for n in inventory.notes)


def test_facts_one_level_down_and_the_chat_template_places(made: ModuleType, tmp_path: Path) -> None:
    nested = {"architectures": ["XForConditionalGeneration"], "thinker_config": {"text_config": LLAMA | {"n_layer": 1}}}
    template = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    facts = config_of(
        made, tmp_path, config__json=nested, tokenizer_config__json={"chat_template": template}
    ).architecture
    assert (facts.num_layers, facts.hidden_size) == (30, 576)
    assert facts.chat_template_sha256 == hashlib.sha256(b"D").hexdigest()
    facts = config_of(made, tmp_path, chat_template__json={"chat_template": "J"}).architecture
    assert facts.chat_template_sha256 == hashlib.sha256(b"J").hexdigest()
    facts = config_of(made, tmp_path, chat_template__jinja="F").architecture
    assert facts.chat_template_sha256 == hashlib.sha256(b"F").hexdigest()


def test_safetensors_without_a_config_say_so(made: ModuleType, tmp_path: Path) -> None:
    inventory = config_of(made, tmp_path)
    assert inventory.architecture.name is None
    assert any("no config.json" in n for n in inventory.notes)


@pytest.mark.parametrize("content", ["", "<html>", "[" * 5000, "[]", "3", '"x"', "\udcff"])
def test_a_config_that_is_none(made: ModuleType, tmp_path: Path, content: str) -> None:
    made.write_safetensors(tmp_path / "model.safetensors", [made.Made("lm_head.weight", (32, 64), "BF16")])
    (tmp_path / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    fails(tmp_path, CheckpointError, "config.json")


@pytest.mark.parametrize("value", [None, True, -1, 3.5, "30", [], {}, 2**70])
def test_a_config_with_nonsense_for_a_number_states_nothing(made: ModuleType, tmp_path: Path, value: object) -> None:
    odd = {"architectures": value, "model_type": value, "text_config": value, "tie_word_embeddings": value}
    facts = config_of(
        made,
        tmp_path,
        config__json=odd | {"num_hidden_layers": value, "eos_token_id": value, "vocab_size": value},
        tokenizer_config__json={"chat_template": value},
    ).architecture
    assert facts.num_layers is None
    assert facts.eos_token_ids == ()
    assert facts.vocab_size is None


# --- the record -----------------------------------------------------------------------------------------------------


def test_the_document_is_the_record(made: ModuleType, tmp_path: Path) -> None:
    inventory = read_inventory(made.write_gguf(tmp_path / "m.gguf", small(made), META))
    assert inventory_document(inventory, with_tensors=True) == to_plain(inventory)
    short = inventory_document(inventory, with_tensors=False)
    assert short == {k: v for k, v in to_plain(inventory).items() if k != "tensors"}
    assert json.loads(inventory_json(inventory, with_tensors=True)) == to_plain(inventory)
    assert decode(Inventory, inventory_json(inventory, with_tensors=True)) == inventory
    assert decode(Inventory, encode(inventory)) == inventory
    again = decode(Inventory, inventory_json(inventory, with_tensors=False))
    assert (again.tensors, again.num_tensors) == ((), 3)


def test_the_short_way_to_make_a_tensor_makes_the_same_tensor() -> None:
    values: tuple[Any, ...] = ("a", Role.NORM, "F32", (2, 3), 24, 1, 5)
    fields = ("name", "role", "type", "shape", "bytes", "shard", "layer")
    assert tuple(Tensor.__dataclass_fields__) == fields
    assert _tensor_maker()(*values) == Tensor(**dict(zip(fields, values, strict=True)))


def test_groups_cover_each_tensor_once(k3_neuron: Inventory) -> None:
    for by in ("role", "type", "layer", "file"):
        groups = group_tensors(k3_neuron, by)  # type: ignore[arg-type]
        assert sum(g.bytes for g in groups) == k3_neuron.tensor_bytes
        assert sum(g.num_tensors for g in groups) == 2573
        assert sum(g.share for g in groups) == pytest.approx(1)
    layers = group_tensors(k3_neuron, "layer")
    assert [g.name for g in layers] == ["outside", *map(str, range(93))]
    roles = {g.name: g for g in group_tensors(k3_neuron, "role")}
    assert {name: g.bytes for name, g in roles.items()} == {n: t.bytes for n, t in k3_neuron.by_role.items()}
    assert roles["router"].types == ("F32",)


def test_no_file_is_left_open(made: ModuleType, tmp_path: Path) -> None:
    made.write_k3_native(tmp_path / "k3", num_shards=9, num_layers=3, num_experts=2)
    open_files = "/proc/self/fd"
    before = len(list(Path(open_files).iterdir())) if Path(open_files).is_dir() else 0
    read_inventory(tmp_path / "k3")
    (tmp_path / "k3" / "model-00003-of-00009.safetensors").write_bytes(b"\0" * 9)
    fails(tmp_path / "k3", CheckpointError, "model-00003-of-00009.safetensors")
    assert (len(list(Path(open_files).iterdir())) if Path(open_files).is_dir() else 0) == before


def test_sparse_shards_stay_sparse(made: ModuleType, tmp_path: Path) -> None:
    made.write_k3_neuron(tmp_path / "k3")
    read_inventory(tmp_path / "k3")
    used = subprocess.run(["du", "-sk", str(tmp_path / "k3")], capture_output=True, text=True, check=True)
    assert int(used.stdout.split()[0]) < 10_000  # kB, of 330 GB to look at
