from __future__ import annotations

import random
from collections import Counter

import pytest

from freehold.bench.prompts import load_prompts, make_prompts, prompt_classes
from freehold.errors import InputError


@pytest.mark.parametrize("name", ["code", "prose"])
def test_each_class_has_twenty_texts_or_more_and_no_two_alike(name: str) -> None:
    texts = load_prompts(name).texts
    assert len(texts) >= 20
    assert len({t.strip()[:40] for t in texts}) == len(texts)
    for text in texts:
        assert 200 < len(text) < 900
        assert text.isascii()


def test_the_classes_share_no_text() -> None:
    assert prompt_classes() == ("code", "prose")
    assert not set(load_prompts("code").texts) & set(load_prompts("prose").texts)
    assert load_prompts("code").sha256 != load_prompts("prose").sha256


def test_no_two_prompts_begin_alike() -> None:
    prompts = make_prompts("code", 300, random.Random(1))
    assert len({p.text[:8] for p in prompts}) == 300
    # Not even the first character is shared by more than chance: 300 over 36 letters.
    assert max(Counter(p.text[0] for p in prompts).values()) < 30
    for prompt in prompts:
        assert prompt.text.startswith(prompt.nonce + "\n")


def test_every_text_is_used_as_often_as_any_other() -> None:
    size = len(load_prompts("prose").texts)
    counts = Counter(p.label for p in make_prompts("prose", 2 * size + 3, random.Random(2)))
    assert len(counts) == size
    assert set(counts.values()) == {2, 3}


def test_a_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    assert make_prompts("code", 30, random.Random(3)) == make_prompts("code", 30, random.Random(3))
    assert make_prompts("code", 30, random.Random(3)) != make_prompts("code", 30, random.Random(4))


def test_an_unknown_class_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown class of prompts: 'poetry'") as caught:
        make_prompts("poetry", 1, random.Random(0))
    assert "code, prose" in caught.value.why
