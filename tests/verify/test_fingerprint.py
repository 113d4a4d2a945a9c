"""When do the log-probabilities speak against a server? The stored reference, changed in ways whose size is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from freehold.engines.interface import TokenScore
from freehold.evidence import Kind
from freehold.records.verdict import Outcome
from freehold.verify.fingerprint import judge_fingerprint
from freehold.verify.limits import load_limits
from freehold.verify.reference import Reference

LIMITS = load_limits().fingerprint
Scores = dict[str, list[TokenScore]]


def own(reference: Reference) -> Scores:
    return {text.name: text.scores() for text in reference.texts}


def shifted(scores: Scores, change: object, only: str | None = None) -> Scores:
    return {
        name: [
            replace(s, logprob=(s.logprob or 0.0) + change(i)) if only in (None, name) else s  # type: ignore[operator]
            for i, s in enumerate(values)
        ]
        for name, values in scores.items()
    }


def test_the_reference_agrees_with_itself(smollm2_reference: Reference) -> None:
    verdict = judge_fingerprint(smollm2_reference, own(smollm2_reference), LIMITS, "2026-11-30")
    assert verdict.outcome is Outcome.PASS
    assert verdict.evidence["mean_abs_difference"].value == 0.0
    assert verdict.evidence["decisive_same_top_share"].value == 1.0
    assert verdict.evidence["mean_abs_difference"].n == 311
    assert verdict.evidence["mean_abs_difference_limit"].kind is Kind.CALCULATED


def test_noise_of_a_healthy_engines_size_passes(smollm2_reference: Reference) -> None:
    noise = random.Random(1)
    scores = shifted(own(smollm2_reference), lambda _: noise.gauss(0, 0.1))  # mean |Δ| 0.08
    assert judge_fingerprint(smollm2_reference, scores, LIMITS, "d").outcome is Outcome.PASS


def test_wide_noise_fails_on_the_mean_and_the_percentile(smollm2_reference: Reference) -> None:
    noise = random.Random(1)
    verdict = judge_fingerprint(
        smollm2_reference, shifted(own(smollm2_reference), lambda _: noise.gauss(0, 0.3)), LIMITS, "d"
    )
    assert verdict.outcome is Outcome.FAIL
    assert "mean |Δ| is" in verdict.observation
    assert "90th percentile" in verdict.observation


def test_a_small_shift_everywhere_fails_on_the_signed_mean_alone(smollm2_reference: Reference) -> None:
    verdict = judge_fingerprint(smollm2_reference, shifted(own(smollm2_reference), lambda _: -0.05), LIMITS, "d")
    assert verdict.outcome is Outcome.FAIL
    assert "|mean Δ| is 0.050" in verdict.observation
    assert "90th" not in verdict.observation


def test_one_wild_token_fails_on_the_largest(smollm2_reference: Reference) -> None:
    scores = shifted(own(smollm2_reference), lambda i: 4.0 if i == 20 else 0.0, only="json")
    verdict = judge_fingerprint(smollm2_reference, scores, LIMITS, "d")
    assert verdict.outcome is Outcome.FAIL
    assert "largest |Δ| is 4.000" in verdict.observation
    assert "token 21 of json" in verdict.why


def test_one_damaged_text_fails_by_itself(smollm2_reference: Reference) -> None:
    scores = shifted(own(smollm2_reference), lambda i: 0.25 * (-1) ** i, only="multilingual")
    verdict = judge_fingerprint(smollm2_reference, scores, LIMITS, "d")
    assert verdict.outcome is Outcome.FAIL
    assert "mean |Δ| of multilingual is 0.250" in verdict.observation


def test_other_top_tokens_at_decisive_places_fail(smollm2_reference: Reference) -> None:
    scores = own(smollm2_reference)
    changed = 0
    for values in scores.values():
        for i, s in enumerate(values):
            if changed < 6 and s.top_logprob is not None and s.top_logprob - (s.runner_up_logprob or 0) > 1.0:
                values[i] = replace(s, top_token_id=(s.top_token_id or 0) + 1)
                changed += 1
    verdict = judge_fingerprint(smollm2_reference, scores, LIMITS, "d")
    assert verdict.outcome is Outcome.FAIL  # 226 of 232 is 97.4 %
    assert "97.4% of the decisive tokens agree" in verdict.observation


def test_a_server_that_cannot_score_leaves_it_open(smollm2_reference: Reference) -> None:
    assert judge_fingerprint(smollm2_reference, None, LIMITS, "d").outcome is Outcome.INCONCLUSIVE


def test_other_numbers_of_positions_leave_it_open(smollm2_reference: Reference) -> None:
    scores = own(smollm2_reference)
    scores["prose"].pop()
    verdict = judge_fingerprint(smollm2_reference, scores, LIMITS, "d")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "prose: 44 of 45" in verdict.observation


def test_numbers_that_are_none_leave_it_open_even_where_the_rest_agrees(smollm2_reference: Reference) -> None:
    scores = own(smollm2_reference)
    scores["code"] = [replace(s, logprob=None) for s in scores["code"]]
    verdict = judge_fingerprint(smollm2_reference, scores, LIMITS, "d")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "263 of 311 tokens have an exact" in verdict.observation


def test_bounds_that_contradict_the_reference_fail(smollm2_reference: Reference) -> None:
    scores = own(smollm2_reference)
    scores["code"] = [replace(s, logprob=None, upper_bound=(s.logprob or 0) - 3) for s in scores["code"]]
    assert judge_fingerprint(smollm2_reference, scores, LIMITS, "d").outcome is Outcome.FAIL


def test_too_few_positions_conclude_nothing(smollm2_reference: Reference) -> None:
    one = replace(smollm2_reference, texts=smollm2_reference.texts[:1])
    assert judge_fingerprint(one, own(one), LIMITS, "d").outcome is Outcome.INCONCLUSIVE


def test_limits_follow_from_the_measurements_beside_them() -> None:
    # Twice the largest mean of the healthy servers, which is that of llama.cpp b10605: 2 × 0.0640.
    assert LIMITS.mean_abs.value == pytest.approx(0.128)
    (largest,) = LIMITS.mean_abs.inputs.values()
    assert largest.kind is Kind.MEASURED
    assert largest.value == pytest.approx(0.064)
    assert largest.n == 311
    assert LIMITS.max_abs.value == pytest.approx(2 * 1.002)
    assert LIMITS.shift.value == pytest.approx(4 * 0.0070)
    assert load_limits().rescore_mean_abs.value == pytest.approx(3 * 0.0247)
