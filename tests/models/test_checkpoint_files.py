"""Which files form a checkpoint, told from names."""

from __future__ import annotations

import pytest

from freehold.errors import CheckpointError, FreeholdError, InputError
from freehold.models.checkpoint import CheckpointFiles, find_checkpoint, split_of

NINE = [f"k3-{n:05d}-of-00009.gguf" for n in range(1, 10)]
INDEX = "model.safetensors.index.json"


def fails(names: list[str], pick: str | None, kind: type[FreeholdError], *parts: str) -> None:
    with pytest.raises(kind) as caught:
        find_checkpoint(names, "/models/x", pick)
    text = f"{caught.value.what} | {caught.value.why} | {caught.value.fix}"
    for part in parts:
        assert part in text


def test_a_split_name_says_stem_number_and_count() -> None:
    split = split_of("UD-IQ1_S-00002-of-00009.gguf")
    assert split is not None
    assert (split.stem, split.number, split.count, split.suffix) == ("UD-IQ1_S", 2, 9, ".gguf")
    assert split.name(9) == "UD-IQ1_S-00009-of-00009.gguf"
    assert split_of("model.gguf") is None
    assert split_of("model-1-of-2.gguf") is None


@pytest.mark.parametrize("name", ["a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-00001-of-99999.gguf"])
def test_split_names_that_make_no_sense(name: str) -> None:
    with pytest.raises(CheckpointError, match="makes no sense"):
        split_of(name)


@pytest.mark.parametrize("pick", [None, NINE[0], NINE[4], NINE[8]])
def test_any_shard_stands_for_its_set_in_order(pick: str | None) -> None:
    found = find_checkpoint([*reversed(NINE), "README.md"], "/x", pick)
    assert found == CheckpointFiles(format="gguf", shards=tuple(NINE))


@pytest.mark.parametrize("pick", [None, NINE[0]])
def test_a_missing_middle_shard_is_named(pick: str | None) -> None:
    names = [n for n in NINE if n != NINE[4]]
    fails(names, pick, CheckpointError, "1 of 9 shards is missing: k3-00005-of-00009.gguf", "8 are in /models/x")


def test_missing_shards_are_counted_and_the_first_named() -> None:
    fails(NINE[:2], None, CheckpointError, "7 of 9 shards are missing: k3-00003", "k3-00006-of-00009.gguf …")


def test_an_index_speaks_for_its_shards() -> None:
    names = [INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "config.json"]
    expected = CheckpointFiles(format="safetensors", index=INDEX)
    for pick in (None, INDEX, names[1]):
        assert find_checkpoint(names, "/x", pick) == expected


def test_shards_without_an_index_are_found_by_name() -> None:
    names = ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"]
    assert find_checkpoint(names, "/x") == CheckpointFiles(format="safetensors", shards=tuple(names))
    fails(names[:1], None, CheckpointError, "m-00002-of-00002.safetensors")


def test_one_file_of_several_is_taken_when_it_is_named() -> None:
    assert find_checkpoint(["a.gguf", "b.gguf"], "/x", "b.gguf").shards == ("b.gguf",)


def test_two_unrelated_checkpoints_are_a_question() -> None:
    fails(["m-Q4_K_M.gguf", "m-Q8_0.gguf"], None, InputError, "holds 2 checkpoints", "m-Q4_K_M.gguf, m-Q8_0.gguf")
    fails(["a.gguf", "model.safetensors"], None, InputError, "holds 2 checkpoints")
    fails([*NINE, "other.gguf"], None, InputError, "k3-*.gguf")


def test_the_usual_name_wins_and_the_other_is_mentioned() -> None:
    found = find_checkpoint(["model.safetensors", "consolidated.safetensors"], "/x")
    assert found.shards == ("model.safetensors",)
    assert found.notes == ("consolidated.safetensors beside it is not counted",)


def test_a_vision_part_beside_a_model_is_not_the_model() -> None:
    found = find_checkpoint(["m-Q4_K_M.gguf", "mmproj-F16.gguf"], "/x")
    assert found.shards == ("m-Q4_K_M.gguf",)
    assert found.notes == ("mmproj-F16.gguf beside it is not counted",)
    assert find_checkpoint(["mmproj-F16.gguf"], "/x").shards == ("mmproj-F16.gguf",)


def test_a_folder_without_a_checkpoint_says_what_it_holds() -> None:
    fails([], None, InputError, "no checkpoint in /models/x", "found nothing")
    fails(["a.txt", "b.txt"], None, InputError, "found a.txt, b.txt")
    fails(["pytorch_model.bin"], None, InputError, "pytorch_model.bin is not read", "pickles run code")
    fails(["model.pt"], "model.pt", InputError, "pickles")
