"""Broken text is seen, and whole text is left alone: real outputs of healthy and damaged engines, and made ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.records.verdict import Outcome
from freehold.verify.broken_text import find_faults, find_loop
from freehold.verify.limits import load_limits
from freehold.verify.quality import Written, judge_quality
from freehold.verify.texts import load_texts

LIMITS = load_limits().quality
SAMPLES = json.loads((Path(__file__).resolve().parents[1] / "data" / "verify" / "engine_texts.json").read_text())


def kinds(text: str, *, is_cut: bool = False) -> set[str]:
    return {fault.kind for fault in find_faults(text, LIMITS, is_cut=is_cut)}


def test_outputs_of_healthy_engines_are_clean() -> None:
    found = {s["text"]: kinds(s["text"], is_cut=s["is_cut"]) for s in SAMPLES["healthy"]}
    assert len(found) >= 10
    assert not any(found.values()), {text: k for text, k in found.items() if k}


def test_outputs_of_damaged_engines_are_not() -> None:
    found = {s["text"]: kinds(s["text"], is_cut=s["is_cut"]) for s in SAMPLES["broken"]}
    assert len(found) >= 12
    assert all(found.values()), [text for text, k in found.items() if not k]


def test_some_damage_reads_like_text() -> None:
    """What no detector can see; the log-probabilities do (``docs/concepts/verification.md``)."""
    assert SAMPLES["undetected"]
    assert not any(kinds(s["text"], is_cut=s["is_cut"]) for s in SAMPLES["undetected"])


HEALTHY = [
    "The quick brown fox doesn't care about 3.14159, or does it?",
    "Rhythm and myths: catchphrase, latchstring, HTTPS, JSON, nvidia-smi, iPhone, GitHub, YouTube.",
    "def f(x):\n    return {k: v[0] for k, v in x.items() if v}  # -> dict[str, int]\n",
    '{"a": [1, 2, 3], "b": {"c": null, "d": "e"}, "f": -1.5e-3}',
    "| name | size |\n|------|------|\n| north | 12 |\n| south | 34 |\n",
    "Ça va? Über Straßen, señor, où est l'hôtel? Naïve façade.",
    "Привет, мир. 你好,世界。こんにちは、世界。 안녕하세요.",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "ha ha ha, that was funny",
    "∑ x² ≤ √2 · π ± ε → ∞ for all α, β",
    "Yes.",
    "Er sagte: „Das war ein Spaß“ und „IRMÔ.",
    "a face younger than the table: \U0001fae8 \U0001faff",
    "👍 great, see you 👨‍👩‍👧 tomorrow",
    "She said: “It’s fine” — and left…",
]


@pytest.mark.parametrize("text", HEALTHY)
def test_ordinary_text_of_many_kinds_is_clean(text: str) -> None:
    assert kinds(text) <= ({"scripts"} if "Привет" in text else set()), kinds(text)


BROKEN = [
    ("The capital is Pa\ufffdis", {"characters"}),
    ("The capital\x00 is \x1bParis", {"characters"}),
    ("The capital \ud83d is", {"characters"}),
    ("The capital \ufdd0 \U0001ffff is", {"characters"}),
    ("The capital \ue000\ue001 is", {"characters"}),
    ("Il a mangÃ© du pÃ¢tÃ©", {"codec"}),
    ("It isnâ€™t mine", {"codec"}),
    ("Ð¿ÑÐ¸Ð²ÐµÑ", {"codec"}),
    ("TheĠcapitalĠofĠFranceĊĊis", {"raw_tokens"}),
    ("▁The▁capital▁of▁France", {"raw_tokens"}),
    ("Paris.<0x0A><0x0A>It is", {"raw_tokens"}),
    ("!" * 80, {"degenerate_loop", "symbols"}),
    ("The answer is the the the the the the the the the the the", {"degenerate_loop"}),
    ("Well, the answer to this is not easy. " * 6, {"loop"}),
    ("}},\n[[##;;--==>> {{(( ))}} ## @@ !! ;; ,, ..", {"symbols"}),
    ("xqzrt vbnmk plkjh wrtpsd qwrtpsdfg hjklz zxcvb mnbvc rtplkj", {"non_words"}),
    ("forbiddenорки酌uplicата visitedเนื้อ", {"scripts"}),
    ("aб cд eж", {"scripts"}),
    ("   \n ", {"empty"}),
    ("", {"empty"}),
]


@pytest.mark.parametrize(("text", "expected"), BROKEN)
def test_broken_text_is_named_for_what_it_is(text: str, expected: set[str]) -> None:
    assert kinds(text) & expected, kinds(text)


def test_a_text_cut_inside_a_character_is_not_broken_by_it() -> None:
    assert not kinds("The capital is \ufffd", is_cut=True)
    assert kinds("The capital is \ufffd", is_cut=False) == {"characters"}


def test_a_loop_is_measured_from_the_end() -> None:
    loop = find_loop("It begins well. abcabcabcabc", 4)
    assert loop is not None
    assert (loop.period, loop.covered_chars, loop.repeats) == ("abc", 12, 4.0)
    assert find_loop("abcabcabc", 4) is None
    assert find_loop("", 4) is None


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.text("abc", min_size=1, max_size=6), st.integers(4, 9))
def test_every_repetition_at_the_end_is_found(start: str, period: str, repeats: int) -> None:
    text = start + period * repeats
    loop = find_loop(text, 4)
    assert loop is not None
    assert loop.covered_chars >= len(period) * repeats
    covered, size = text[len(text) - loop.covered_chars :], len(loop.period)
    assert all(covered[i] == covered[i + size] for i in range(len(covered) - size))


@given(st.text(max_size=200))
def test_no_text_breaks_the_detectors(text: str) -> None:
    find_faults(text, LIMITS, is_cut=False)
    find_faults(text, LIMITS, is_cut=True)


def judged(*texts: str) -> Outcome:
    written = {f"text {i}": Written(text=text, is_cut=False) for i, text in enumerate(texts)}
    return judge_quality(written, LIMITS).outcome


def test_one_wrong_character_in_one_of_many_texts_fails() -> None:
    assert judged("Paris.", "London.", "Rome.", "Ber\ufffdin", "Oslo.") is Outcome.FAIL


def test_one_loop_of_many_texts_is_odd_and_half_of_them_is_broken() -> None:
    loop = "no no no no no no no no no no no no no no no"
    assert judged("Paris.", "London.", "Rome.", "Berlin.", loop) is Outcome.WARN
    assert judged("Paris.", loop, loop) is Outcome.FAIL
    assert judged("Paris.", "London.", "Rome.") is Outcome.PASS


def test_long_loops_alone_never_fail_a_small_model() -> None:
    loop = "The answer to this question is not known to me. " * 5
    assert judged(loop, loop, loop) is Outcome.WARN


def test_the_fixed_texts_themselves_are_clean() -> None:
    assert not any(kinds(text.text) for text in load_texts().scored)
