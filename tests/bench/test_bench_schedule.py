from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.bench.schedule import plan_blocks
from freehold.errors import InputError
from freehold.records.recipe import BenchRequest


def counted(request: BenchRequest) -> list[tuple[str, int, int]]:
    return [(b.prompt_class, b.concurrency, b.count) for b in plan_blocks(request) if not b.is_warmup]


def test_two_classes_take_turns_forward_and_backward() -> None:
    assert counted(BenchRequest(requests=15)) == [
        ("code", 1, 4), ("prose", 1, 4),
        ("prose", 1, 4), ("code", 1, 4),
        ("code", 1, 4), ("prose", 1, 4),
        ("prose", 1, 3), ("code", 1, 3),
    ]  # fmt: skip


def test_the_warm_up_of_every_class_comes_first() -> None:
    blocks = plan_blocks(BenchRequest(requests=4, warmup=2))
    assert [(b.prompt_class, b.count, b.is_warmup) for b in blocks[:3]] == [
        ("code", 2, True), ("prose", 2, True), ("code", 1, False),
    ]  # fmt: skip


def test_several_streams_run_in_whole_waves_after_the_single_stream() -> None:
    blocks = counted(BenchRequest(requests=15, warmup=0, prompt_classes=("prose",), concurrency=(1, 4, 32)))
    assert blocks == [
        ("prose", 1, 4), ("prose", 1, 4), ("prose", 1, 4), ("prose", 1, 3),
        ("prose", 4, 4), ("prose", 4, 4), ("prose", 4, 4), ("prose", 4, 4),
        ("prose", 32, 32),
    ]  # fmt: skip


def test_no_warm_up_when_none_is_asked_for() -> None:
    assert not any(b.is_warmup for b in plan_blocks(BenchRequest(warmup=0, concurrency=(1, 8))))


@given(
    requests=st.integers(min_value=1, max_value=60),
    warmup=st.integers(min_value=0, max_value=5),
    concurrency=st.lists(st.integers(min_value=1, max_value=64), min_size=1, max_size=3, unique=True),
    classes=st.sampled_from([("code",), ("prose",), ("code", "prose"), ("prose", "code")]),
)
def test_every_arm_gets_its_requests_in_order(
    requests: int, warmup: int, concurrency: list[int], classes: tuple[str, ...]
) -> None:
    blocks = plan_blocks(
        BenchRequest(requests=requests, warmup=warmup, concurrency=tuple(concurrency), prompt_classes=classes)
    )
    totals: Counter[tuple[str, int]] = Counter()
    numbers: dict[tuple[str, int], list[int]] = {}
    for block in blocks:
        assert block.count > 0
        if not block.is_warmup:
            totals[block.prompt_class, block.concurrency] += block.count
            numbers.setdefault((block.prompt_class, block.concurrency), []).append(block.number)
    assert set(totals) == {(name, c) for name in classes for c in concurrency}
    for (_, c), total in totals.items():
        assert requests <= total < requests + c
        assert total % c == 0
    for arm in numbers.values():
        assert arm == list(range(len(arm)))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("requests", 0, "`bench: requests` is 0"),
        ("warmup", -1, "`bench: warmup` is -1"),
        ("output_tokens", 0, "`bench: output_tokens` is 0"),
        ("concurrency", (), "`bench: concurrency` is"),
        ("concurrency", (0,), "`bench: concurrency` holds 0"),
        ("concurrency", (2, 2), "`bench: concurrency` is"),
        ("prompt_classes", (), "`bench: prompt_classes` is"),
        ("prompt_classes", ("code", "code"), "`bench: prompt_classes` is"),
        ("prompt_classes", ("poetry",), "unknown class of prompts"),
    ],
)
def test_what_cannot_be_measured_is_refused(field: str, value: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan_blocks(BenchRequest(**{field: value}))  # type: ignore[arg-type]
