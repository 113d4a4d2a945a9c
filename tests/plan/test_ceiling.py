"""The ceiling is a bound: what is surely read, over the best rate that was measured."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.evidence import Evidence
from freehold.plan.ceiling import (
    decode_ceiling,
    decode_ceiling_tok_per_s,
    step_bytes,
    weights_read_per_step,
    working_set_bytes,
)
from freehold.records.inventory import Architecture, Role

KV = Evidence.assumed(23_040, "B", source="test")


def test_a_tied_model_reads_all_of_its_weights_once(make: SimpleNamespace) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors())
    assert weights_read_per_step(inventory).value == inventory.tensor_bytes == 36_000_000 + 30 * 3_002_304
    assert "also the output head" in weights_read_per_step(inventory).source


def test_with_a_head_of_its_own_one_row_of_the_embedding_is_read(make: SimpleNamespace) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors(is_tied=False))
    # 36,000,000 B in 49,152 rows: 732 B
    assert weights_read_per_step(inventory).value == 30 * 3_002_304 + 36_000_000 + 732


def test_of_the_experts_only_the_chosen_share_is_read(make: SimpleNamespace) -> None:
    tensors = [
        make.tensor(Role.TOKEN_EMBD, 129_280),
        make.tensor(Role.OUTPUT_HEAD, 1_000),
        make.tensor(Role.ROUTED_GATE, 256_000, layer=1),
        make.tensor(Role.ROUTED_UP, 256_000, layer=1),
        make.tensor(Role.ROUTED_DOWN, 512_000, layer=1),
        make.tensor(Role.SHARED_EXPERT, 7_000, layer=1),
        make.tensor(Role.ROUTER, 500, layer=1),
        make.tensor(Role.DRAFT, 9_000),
        make.tensor(Role.VISION, 8_000),
    ]
    inventory = make.inventory(make.deepseek_v3, tensors)
    # 8 of 256 experts, one row of the embedding, nothing of draft and vision
    assert weights_read_per_step(inventory).value == 1_024_000 * 8 // 256 + 1 + 1_000 + 7_000 + 500
    assert working_set_bytes(inventory) == 40_501


def test_a_mixture_that_does_not_say_how_many_it_chooses_has_no_ceiling(make: SimpleNamespace) -> None:
    tensors = [make.tensor(Role.ROUTED_UP, 100, layer=0)]
    inventory = make.inventory(Architecture(num_routed_experts=8), tensors)
    assert "how many experts" in str(weights_read_per_step(inventory).reason)
    assert working_set_bytes(inventory) == 100
    assert step_bytes(inventory, kv_bytes_per_token=KV).is_missing


def test_the_cache_is_read_as_deep_as_it_is_filled(make: SimpleNamespace) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors())
    weights = inventory.tensor_bytes
    assert step_bytes(inventory, kv_bytes_per_token=KV).value == weights
    assert step_bytes(inventory, depth_tokens=4096, kv_bytes_per_token=KV).value == weights + 23_040 * 4096
    windowed = step_bytes(inventory, depth_tokens=4096, kv_bytes_per_token=KV, window_tokens=512)
    assert windowed.value == weights + 23_040 * 512, "no more than the window is sure to be read"


def test_an_unknown_cache_does_not_hide_the_ceiling_of_an_empty_one(make: SimpleNamespace) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors())
    unknown = Evidence.not_measured("no head count", "B")
    assert step_bytes(inventory, kv_bytes_per_token=unknown).value == inventory.tensor_bytes
    assert step_bytes(inventory, depth_tokens=1, kv_bytes_per_token=unknown).is_missing


def test_the_ceiling_by_hand_and_with_its_lineage() -> None:
    # 100 MB a step at 25 GB/s: 250 steps a second
    assert decode_ceiling_tok_per_s(100_000_000, 25e9, 1) == 250.0
    assert decode_ceiling_tok_per_s(100_000_000, 25e9, 4) == 1000.0
    step = Evidence.verified(100_000_000, "bytes_memory", source="headers")
    ceiling = decode_ceiling(step, Evidence.measured(25e9, "bytes/s", source="test", n=9))
    assert (ceiling.value, ceiling.unit, ceiling.trust) == (250.0, "tok/s", "calculated")
    assert set(ceiling.inputs) == {"bytes_per_step", "read_bandwidth"}
    missing = decode_ceiling(step, Evidence.not_measured("no buffer", "bytes/s"))
    assert missing.reason == "needs read bandwidth: no buffer"


@pytest.mark.parametrize("arguments", [(0, 1.0, 1), (1, 0.0, 1), (1, 1.0, 0), (-1, 1.0, 1)])
def test_what_is_not_positive_is_refused(arguments: tuple[int, float, int]) -> None:
    with pytest.raises(ValueError, match="all must be positive"):
        decode_ceiling_tok_per_s(*arguments)


@given(depth=st.integers(0, 10**6), more=st.integers(0, 10**6))
def test_a_deeper_step_never_reads_less(make: SimpleNamespace, depth: int, more: int) -> None:
    inventory = make.inventory(make.smollm2, make.dense_tensors(1))
    near = step_bytes(inventory, depth_tokens=depth, kv_bytes_per_token=KV).number
    far = step_bytes(inventory, depth_tokens=depth + more, kv_bytes_per_token=KV).number
    assert near is not None
    assert far is not None
    assert near <= far


def test_the_vocabulary_may_be_unknown(make: SimpleNamespace) -> None:
    inventory = make.inventory(replace(make.smollm2, vocab_size=None), make.dense_tensors(is_tied=False))
    assert weights_read_per_step(inventory).value == 30 * 3_002_304 + 36_000_000, "fewer bytes keep it a bound"
