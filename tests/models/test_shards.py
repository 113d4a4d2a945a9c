"""Whether shards and index agree."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from freehold.errors import CheckpointError
from freehold.models.inventory import read_inventory
from freehold.models.shards import parse_index


def fails(path: Path, *parts: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_inventory(path)
    text = f"{caught.value.what} | {caught.value.why} | {caught.value.fix}"
    for part in parts:
        assert part in text


# --- split GGUF -----------------------------------------------------------------------------------------------------

META = {"general.architecture": "llama", "llama.block_count": 3}


def norms(made: ModuleType, *names: str) -> list[Any]:
    return [made.Made(name, (64,), "F32") for name in names]


def split(number: Any = None, count: Any = None, tensors: Any = None) -> dict[str, Any]:
    values = {"split.no": ("u16", number), "split.count": ("u16", count), "split.tensors.count": ("i32", tensors)}
    return {key: value for key, value in values.items() if value[1] is not None}


def three(made: ModuleType, folder: Path, **changed: Any) -> Path:
    """Three shards with one tensor each; ``changed`` replaces the metadata of shard 2."""
    for i in range(3):
        numbers = {"number": i, "count": 3, "tensors": 3} | (changed if i == 1 else {})
        made.write_gguf(
            folder / f"m-0000{i + 1}-of-00003.gguf", norms(made, f"blk.{i}.attn_norm.weight"), META | split(**numbers)
        )
    return folder


def test_three_shards_are_one_checkpoint(made: ModuleType, tmp_path: Path) -> None:
    inventory = read_inventory(three(made, tmp_path))
    assert [(t.name, t.shard) for t in inventory.tensors] == [(f"blk.{i}.attn_norm.weight", i) for i in range(3)]
    assert [f.name for f in inventory.files] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert inventory.notes == ()


def test_the_files_own_numbers_have_to_agree_with_their_names(made: ModuleType, tmp_path: Path) -> None:
    fails(three(made, tmp_path, count=4), "m-00002-of-00003.gguf", "its split.count is 4", "the names say 3")
    fails(three(made, tmp_path, number=2), "m-00002-of-00003.gguf", "its split.no is 2", "the name says 1")
    fails(three(made, tmp_path, tensors=9), "the shards hold 3 tensors, expected 9", "m-00002-of-00003.gguf")


def test_a_renamed_shard_does_not_pass_for_a_whole_model(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "model.gguf", norms(made, "a"), META | split(0, 9, 100))
    fails(path, "one of 9 shards under a name that does not say so")


def test_one_tensor_in_two_shards_names_both(made: ModuleType, tmp_path: Path) -> None:
    for i in range(2):
        made.write_gguf(tmp_path / f"m-0000{i + 1}-of-00002.gguf", norms(made, "output.weight"), META | split(i, 2, 2))
    fails(tmp_path, "two shards hold tensor output.weight", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf")


def test_shards_without_split_metadata_are_noted(made: ModuleType, tmp_path: Path) -> None:
    for i in range(2):
        made.write_gguf(tmp_path / f"m-0000{i + 1}-of-00002.gguf", norms(made, f"t{i}"), META)
    assert any("m-00001-of-00002.gguf has no split.count" in n for n in read_inventory(tmp_path).notes)


def test_a_first_shard_of_metadata_alone_is_fine(made: ModuleType, tmp_path: Path) -> None:
    made.write_gguf(tmp_path / "m-00001-of-00002.gguf", [], META | split(0, 2, 1))
    made.write_gguf(tmp_path / "m-00002-of-00002.gguf", norms(made, "output.weight"), split(1, 2, 1))
    inventory = read_inventory(tmp_path)
    assert inventory.num_tensors == 1
    assert inventory.architecture.num_layers == 3


def test_bytes_of_nothing_and_big_endian_are_noted(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", norms(made, "a"), META, order=">")
    with path.open("ab") as file:
        file.write(bytes(77))
    notes = read_inventory(path).notes
    assert any("77 bytes of the files belong to no tensor" in n for n in notes)
    assert any("big-endian" in n for n in notes)


# --- safetensors with an index --------------------------------------------------------------------------------------


def pair(made: ModuleType, folder: Path, **changes: Any) -> Path:
    """Two shards with two tensors each and their index, which ``changes`` then alter."""
    made.write_safetensors_shards(folder, [made.Made(f"t{i}", (4,), "F32") for i in range(4)], 2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"].update(changes.get("weight_map", {}))
    for name in changes.get("removed", ()):
        del index["weight_map"][name]
    if "total_size" in changes:
        index["metadata"]["total_size"] = changes["total_size"]
    path.write_text(json.dumps(index))
    return folder


def test_two_shards_and_their_index(made: ModuleType, tmp_path: Path) -> None:
    inventory = read_inventory(pair(made, tmp_path))
    assert [(t.name, t.shard, t.bytes) for t in inventory.tensors] == [
        ("t0", 0, 16),
        ("t1", 0, 16),
        ("t2", 1, 16),
        ("t3", 1, 16),
    ]
    assert [n for n in inventory.notes if "index" in n] == []


def test_a_tensor_that_only_the_index_knows(made: ModuleType, tmp_path: Path) -> None:
    folder = pair(made, tmp_path, weight_map={"ghost": "model-00002-of-00002.safetensors"})
    fails(folder, "1 of 5 tensors", "are missing", "header of model-00002-of-00002.safetensors has no ghost")


def test_a_tensor_that_is_in_another_file_than_the_index_says(made: ModuleType, tmp_path: Path) -> None:
    folder = pair(made, tmp_path, weight_map={"t0": "model-00002-of-00002.safetensors"})
    fails(folder, "t0 is in model-00001-of-00002.safetensors, the index says model-00002-of-00002.safetensors")


def test_a_tensor_the_index_leaves_out_is_counted_and_noted(made: ModuleType, tmp_path: Path) -> None:
    inventory = read_inventory(pair(made, tmp_path, removed=["t3"]))
    assert inventory.num_tensors == 4
    assert inventory.tensor_bytes == 4 * 16
    assert any("1 tensors are in the files but not in" in n and "t3" in n for n in inventory.notes)


@pytest.mark.parametrize("total", [63, 65.0, 2**70])
def test_a_wrong_total_is_noted_and_the_headers_count(made: ModuleType, tmp_path: Path, total: float) -> None:
    inventory = read_inventory(pair(made, tmp_path, total_size=total))
    assert inventory.tensor_bytes == 64
    assert any(f"says {int(total):,} bytes, the headers add up to 64" in n for n in inventory.notes)


@pytest.mark.parametrize("total", [64, 64.0, None, "64", True])
def test_a_right_total_or_none_is_no_news(made: ModuleType, tmp_path: Path, total: object) -> None:
    assert [n for n in read_inventory(pair(made, tmp_path, total_size=total)).notes if "add up" in n] == []


def test_a_missing_shard_is_named(made: ModuleType, tmp_path: Path) -> None:
    (pair(made, tmp_path) / "model-00002-of-00002.safetensors").unlink()
    fails(tmp_path, "1 of 2 shards is missing: model-00002-of-00002.safetensors", "download the missing files")


def test_one_tensor_in_two_safetensors_shards(made: ModuleType, tmp_path: Path) -> None:
    folder = pair(made, tmp_path)
    made.write_safetensors(
        folder / "model-00002-of-00002.safetensors", [made.Made(n, (4,), "F32") for n in ("t1", "t2", "t3")]
    )
    fails(folder, "two shards hold tensor t1", "model-00001-of-00002", "model-00002-of-00002")


def test_shards_without_an_index_are_noted(made: ModuleType, tmp_path: Path) -> None:
    (pair(made, tmp_path) / "model.safetensors.index.json").unlink()
    assert any("have no index" in n for n in read_inventory(tmp_path).notes)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"[]", "no weight_map"),
        (b'{"weight_map": {}}', "no weight_map"),
        (b'{"weight_map": {"t": "../../etc/passwd"}}', "outside its folder"),
        (b'{"weight_map": {"t": "/etc/passwd"}}', "outside its folder"),
        (b'{"weight_map": {"t": "..\\\\x"}}', "outside its folder"),
        (b'{"weight_map": {"t": 3}}', "outside its folder"),
        (b'{"weight_map": {"t": ""}}', "outside its folder"),
        (b'{"weight_map":' + b"[" * 5000, "no JSON"),
    ],
)
def test_what_is_no_index(content: bytes, says: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_index("model.safetensors.index.json", content)
    assert says in f"{caught.value.what} | {caught.value.why}"
