"""Damaged and lying headers: an answer or a clear error, little memory, and never anything else.

The long run over many more mutants is ``benchmarks/fuzz_readers.py``; these are its parts on a short leash.
"""

from __future__ import annotations

import importlib.util
import json
import random
import struct
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from freehold.errors import CheckpointError
from freehold.models.architecture import read_config_facts, read_gguf_facts
from freehold.models.gguf import Skipped, read_gguf
from freehold.models.safetensors import read_safetensors
from freehold.models.shards import parse_index
from freehold.records.base import decode, encode
from freehold.records.inventory import Architecture, Inventory

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
ROWS = [json.loads(line) for line in (FOLDER / "results" / "fuzz_readers.jsonl").read_text().splitlines()]


def load() -> ModuleType:
    key = "freehold_benchmarks_fuzz_readers"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, FOLDER / "fuzz_readers.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    return sys.modules[key]


fuzz = load()
bounded = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.mark.parametrize("name", ["gguf", "safetensors"])
def test_three_hundred_mutants_of_another_seed_than_the_recorded_run(name: str) -> None:
    read, corpus = fuzz.READERS[name]
    figures, problems = fuzz.run(name, read, corpus(), 300, 4711)
    assert problems == []
    assert len(figures["outcomes"]) > 3  # they fail in different ways, so the mutants reach into the header


@pytest.mark.parametrize("name", ["gguf", "safetensors"])
def test_the_recorded_run_was_long_and_clean(name: str) -> None:
    rows = [row for row in ROWS if row["reader"] == name]
    assert rows[-1]["mutants"] >= 20_000
    assert rows[-1]["num_problems"] == 0


def test_the_fuzzer_notices_what_it_is_there_for() -> None:
    def crash(source: object) -> None:
        raise IndexError("out of range")

    def hoard(source: Any) -> None:
        bytes(40 * len(source.data) + 2**21)

    def blank(source: object) -> None:
        raise CheckpointError("x", why="", fix="")

    data = fuzz.gguf_corpus()[0]
    import tracemalloc

    tracemalloc.start()
    for read, says in ((crash, "IndexError"), (hoard, "bytes of memory"), (blank, "three parts")):
        assert says in fuzz.attempt(read, data).problem
    tracemalloc.stop()
    _, problems = fuzz.run("safetensors", lambda source: None, fuzz.safetensors_corpus(), 20, 1)
    assert any("read although the package refuses it" in problem for problem in problems)


@bounded
@given(st.binary(max_size=400))
@example(b"GGUF")
@example(b"GGUF\x03\0\0\0" + b"\xff" * 16)
def test_any_bytes_after_the_magic(data: bytes) -> None:
    for content in (data, b"GGUF\x03\0\0\0" + data, b"GGUF\0\0\0\x03" + data):
        with suppress(CheckpointError):
            read_gguf(fuzz.MemorySource(content))


@bounded
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 2, 3]))
def test_a_reader_gives_the_same_answer_in_small_pieces(seed: int, which: int) -> None:
    data = fuzz.mutate(fuzz.gguf_corpus()[which], random.Random(seed))
    answers: list[object] = []
    for chunk_bytes in (1, 64, 10**6):
        try:
            answers.append(read_gguf(fuzz.MemorySource(data, chunk_bytes=chunk_bytes)))
        except CheckpointError as error:
            answers.append((error.what, error.why))
    # NaN in a float key is not equal to itself, so answers are compared as text
    assert len({repr(answer) for answer in answers}) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "U8", "F4", "BF16", "X"]) | json_values,
        "shape": st.lists(st.integers(0, 9), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(0, 64), min_size=2, max_size=2) | json_values,
    },
)


@bounded
@given(
    st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), entries | json_values, max_size=3),
    st.integers(0, 64),
)
def test_any_json_as_a_safetensors_header_is_judged_as_the_package_does(header: dict[str, Any], data: int) -> None:
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(data)
    with suppress(CheckpointError):
        read_safetensors(fuzz.MemorySource(content))
        assert fuzz.package_accepts(content)


@bounded
@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps({"weight_map": value}).encode()))
def test_any_bytes_as_an_index(data: bytes) -> None:
    with suppress(CheckpointError):
        assert all("/" not in shard for shard in parse_index("i", data).shards)


CONFIG_KEYS = st.sampled_from(
    [
        *("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim", "kv_lora_rank", "qk_nope_head_dim"),
        *("qk_rope_head_dim", "tie_word_embeddings", "architectures", "text_config", "eos_token_id", "model_type"),
        "chat_template",
    ]
)


@bounded
@given(st.dictionaries(CONFIG_KEYS, json_values | st.integers(0, 300), max_size=8))
def test_any_config_gives_facts_that_can_be_saved(config: dict[str, Any]) -> None:
    text = json.dumps(config).encode()
    facts = read_config_facts({"config.json": text, "tokenizer_config.json": text, "generation_config.json": text}, [])
    check_saved(facts.fields)


@bounded
@given(
    st.dictionaries(
        st.sampled_from(
            ["block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "vocab_size"]
        ),
        st.integers(-5, 2**64 - 1)
        | st.floats()
        | st.booleans()
        | st.text(max_size=5)
        | st.lists(st.integers(-1, 99) | st.floats(), max_size=4).map(tuple)
        | st.builds(Skipped, count=st.integers(0, 99)),
        max_size=5,
    ),
    st.sampled_from(["llama", "", 3, None]),
)
def test_any_metadata_gives_facts_that_can_be_saved(values: dict[str, Any], arch: Any) -> None:
    metadata = {f"llama.{key}": value for key, value in values.items()} | {"general.architecture": arch}
    check_saved(read_gguf_facts(metadata, []).fields)


def check_saved(fields: Any) -> None:
    inventory = Inventory(
        source="x",
        format="gguf",
        tensor_bytes=0,
        file_bytes=0,
        num_tensors=0,
        by_role={},
        by_type={},
        architecture=Architecture(**fields),
        files=(),
        header_sha256="",
    )
    assert decode(Inventory, encode(inventory)) == inventory
