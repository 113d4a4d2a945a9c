"""Fits or not, how long the context may be, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.errors import PlanError
from freehold.plan.estimate import plan, refuse
from freehold.records.base import decode, encode
from freehold.records.inventory import Role
from freehold.records.node import Accelerator
from freehold.records.plan import Plan

MIB, GIB = 2**20, 2**30


@pytest.fixture(scope="session")
def planned(make: SimpleNamespace, constants: dict[str, Any]) -> Any:
    """Plan for a recipe, an inventory (SmolLM2 in size by default) and a machine."""

    def run(recipe: Any = None, inventory: Any = None, machine: Any = None, *, terms: Any = None) -> Plan:
        chosen = machine or make.machine()
        return plan(
            recipe or make.recipe(),
            inventory or make.inventory(make.smollm2, make.dense_tensors()),
            chosen.facts(),
            chosen.state(),
            memory_constants=constants if terms is None else terms,
            made_from={"inventory.json": "0" * 64},
        )

    return run


WEIGHTS = 36_000_000 + 30 * 3_002_304
RUNTIME = 48_758_784 + 420 * 49_152


def peak(context: int, sequences: int = 1) -> int:
    """All terms of the test model by hand."""
    kv = 23_040 * context * sequences
    workspace = 512 * (7488 * 4 + context * 2) + 32768 + sequences * 49152 * 4
    return WEIGHTS + kv + workspace + RUNTIME


def contract(context: int, sequences: int = 1) -> int:
    return peak(context, sequences) + max(round(peak(context, sequences) * 0.05), 128 * MIB)


def test_a_plan_that_fits_by_hand(planned: Any) -> None:
    record = planned()
    assert record.contract.peak_bytes.value == record.contract.steady_bytes.value == peak(2048)
    assert record.contract.contract_free_bytes.value == contract(2048)
    assert record.free_memory_bytes.value == 16 * GIB
    assert record.fits is True
    assert record.step_bytes.value == WEIGHTS
    assert record.decode_ceiling_tok_per_s.value == 20e9 / WEIGHTS
    assert record.notes == ()
    assert record.made_from == {"inventory.json": "0" * 64}
    refuse(record)


def test_a_plan_goes_to_disk_and_back(planned: Any, make: SimpleNamespace) -> None:
    for machine in (make.machine(), make.machine(free_bytes=None, bandwidth_bytes_per_s=None)):
        record = planned(machine=machine)
        assert decode(Plan, encode(record)) == record


def test_the_contract_is_met_to_the_byte(planned: Any, make: SimpleNamespace) -> None:
    assert planned(machine=make.machine(free_bytes=contract(2048))).fits is True
    assert planned(machine=make.machine(free_bytes=contract(2048) - 1)).fits is False


def test_a_refusal_says_what_takes_it_and_what_frees_how_much(planned: Any, make: SimpleNamespace) -> None:
    record = planned(make.recipe(8192, 4), machine=make.machine(free_bytes=800 * MIB))
    assert record.fits is False
    with pytest.raises(PlanError) as caught:
        refuse(record)
    error = caught.value
    assert error.exit_code == 1
    assert contract(8192, 4) == 1_109_207_424
    assert error.what == "the plan does not fit: 1.0 GiB must be free, 800.0 MiB is"
    assert error.why == (
        "kv cache 720.0 MiB + weights 120.2 MiB + runtime 66.2 MiB + workspace 23.4 MiB + 128.0 MiB kept free "
        "(8,192 tokens × 4 sequences)"
    )
    # (838,860,800 - 134,217,728 kept free - 211,626,368 that no context changes) / 93,184 B a token = 5,290: 20 × 256
    assert record.max_context_tokens.value == 5120
    # 3,072 tokens × 4 sequences × 23,040 B; 8,192 tokens × 3 sequences × 23,040 B; 1,109,207,424 - 838,860,800 B
    assert error.fix == (
        "`--context 5120` frees 270.0 MiB, or `--sequences 1` frees 540.0 MiB, "
        "or end other programs that hold 257.8 MiB"
    )
    assert error.facts["max_context_tokens"] == 5120


def test_weights_alone_that_do_not_fit_ask_for_a_smaller_model(planned: Any, make: SimpleNamespace) -> None:
    record = planned(machine=make.machine(free_bytes=100 * MIB))
    assert record.max_context_tokens.value == 0
    assert "not even the shortest fits" in record.max_context_tokens.source
    with pytest.raises(PlanError) as caught:
        refuse(record)
    assert "choose a smaller model" in caught.value.fix
    assert "--context" not in caught.value.fix


def test_the_longest_context_is_capped_by_training_and_says_so(planned: Any) -> None:
    assert planned().max_context_tokens.value == 8192
    assert "what the model was trained for" in planned().max_context_tokens.source


def test_the_longest_context_of_a_model_that_does_not_say(planned: Any, make: SimpleNamespace) -> None:
    inventory = make.inventory(replace(make.smollm2, context_tokens=None), make.dense_tensors())
    record = planned(inventory=inventory, machine=make.machine(free_bytes=contract(100_352)))
    assert record.max_context_tokens.value == 100_352
    huge = planned(inventory=inventory, machine=make.machine(free_bytes=10**15))
    assert huge.max_context_tokens.value == 2**24
    assert "limited by the search" in huge.max_context_tokens.source


@settings(max_examples=60, deadline=None)
@given(free=st.integers(50 * MIB, 6 * GIB), sequences=st.integers(1, 8))
def test_the_longest_context_fits_and_the_next_one_does_not(
    planned: Any, make: SimpleNamespace, free: int, sequences: int
) -> None:
    inventory = make.inventory(replace(make.smollm2, context_tokens=None), make.dense_tensors(2))
    machine = make.machine(free_bytes=free)
    longest = planned(make.recipe(1, sequences), inventory, machine).max_context_tokens.value
    if longest:
        assert planned(make.recipe(longest, sequences), inventory, machine).fits is True
    assert planned(make.recipe(longest + 1, sequences), inventory, machine).fits is False


def test_what_is_not_known_is_neither_yes_nor_no(planned: Any, make: SimpleNamespace) -> None:
    record = planned(terms={})
    assert record.fits is None
    assert record.contract.contract_free_bytes.is_missing
    assert record.max_context_tokens.is_missing
    assert not record.decode_ceiling_tok_per_s.is_missing, "the ceiling needs no engine"
    assert [t.name for t in record.terms if t.bytes.is_missing] == ["kv_cache", "workspace", "runtime"]
    assert "Nobody measured what llama.cpp takes" in " ".join(record.notes)
    refuse(record)
    blind = planned(machine=make.machine(free_bytes=None))
    assert blind.fits is None
    assert blind.max_context_tokens.reason == "the system does not say"


def test_known_terms_that_do_not_fit_settle_it(planned: Any, make: SimpleNamespace) -> None:
    record = planned(machine=make.machine(free_bytes=WEIGHTS - 1), terms={})
    assert record.fits is False
    with pytest.raises(PlanError, match=r"more than 120\.2 MiB must be free"):
        refuse(record)


def test_a_machine_that_was_not_measured_has_no_ceiling(planned: Any, make: SimpleNamespace) -> None:
    record = planned(machine=make.machine(bandwidth_bytes_per_s=None))
    assert record.decode_ceiling_tok_per_s.reason == "needs read bandwidth: no buffer"
    assert record.fits is True


def test_notes_say_what_is_uncertain(planned: Any, make: SimpleNamespace) -> None:
    def notes(**change: Any) -> str:
        return " ".join(planned(**change).notes)

    assert "longer than the 8,192 the model was trained for" in notes(recipe=make.recipe(9000))
    assert "4 streams and the server takes 1 sequence at once" in notes(recipe=make.recipe(concurrency=(1, 4)))
    gpu = make.machine(accelerators=(Accelerator(name="NVIDIA H200"), Accelerator(name="NVIDIA H200")))
    assert "Only main memory is planned; NVIDIA H200 is there" in notes(machine=gpu)
    window = make.inventory(replace(make.smollm2, sliding_window=1024), make.dense_tensors())
    assert "some layers look back only 1,024 tokens" in notes(inventory=window)
    strange = make.inventory(make.smollm2, [*make.dense_tensors(), make.tensor(Role.OTHER, 10_000_000)])
    assert "9.5 MiB of weights have no known role" in notes(inventory=strange)


def test_a_recurrent_state_is_a_term_of_unknown_size(planned: Any, make: SimpleNamespace) -> None:
    tensors = [*make.dense_tensors(2), make.tensor(Role.SSM_STATE, 5, layer=9)]
    record = planned(inventory=make.inventory(make.smollm2, tensors))
    assert record.fits is None
    assert [t.name for t in record.terms if t.bytes.is_missing] == ["state"]
    assert sum("recurrent state" in note for note in record.notes) == 1
