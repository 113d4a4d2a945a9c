"""Each check's rule on answers made for it: what passes, what fails, and what stays open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freehold.client.api import Completion, Usage
from freehold.engines.interface import Generation, TokenScore
from freehold.evidence import Evidence
from freehold.records.inventory import Architecture
from freehold.records.verdict import Outcome, Verdict
from freehold.verify.binding import judge_binding
from freehold.verify.chat_template import judge_rendered, judge_template_hash
from freehold.verify.determinism import judge_determinism
from freehold.verify.interview import Rescored
from freehold.verify.limits import load_limits
from freehold.verify.recall import judge_recall
from freehold.verify.reference import Reference
from freehold.verify.rescoring import judge_rescoring
from freehold.verify.stopping import judge_stopping
from freehold.verify.tokens import judge_tokens

SHA = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def score(logprob: float, margin: float = 1.0) -> TokenScore:
    return TokenScore(
        logprob=logprob, upper_bound=None, top_token_id=1, top_logprob=logprob, runner_up_logprob=logprob - margin
    )


def run(text: str, ids: tuple[int, ...] | None = None, margins: tuple[float, ...] = ()) -> Generation:
    return Generation(
        text=text,
        token_ids=ids,
        scores=tuple(score(-0.5, margin) for margin in margins) or None,
        finish_reason="length",
        prompt_tokens=5,
        output_tokens=len(ids or ()),
    )


def answer(text: str, finish: str = "stop", tokens: int = 9, prompt_tokens: int | None = 38) -> Completion:
    usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=tokens)
    return Completion(text=text, reasoning="", finish_reason=finish, usage=usage, raw={})


# ── binding ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_right_checkpoint_and_another_engine_pass(smollm2_reference: Reference) -> None:
    verdict = judge_binding(smollm2_reference, SHA, Architecture(), "some engine")
    assert verdict.outcome is Outcome.PASS
    assert "vllm 0.32.0 in float32" in verdict.observation


def test_another_checkpoint_fails_before_anything_is_compared(smollm2_reference: Reference) -> None:
    verdict = judge_binding(smollm2_reference, "0" * 64, None, "some engine")
    assert verdict.outcome is Outcome.FAIL
    assert "000000000000…" in verdict.observation
    assert "b179c9523d0e…" in verdict.observation


def test_a_changed_template_in_the_checkpoint_fails(smollm2_reference: Reference) -> None:
    changed = Architecture(chat_template_sha256="1" * 64)
    assert judge_binding(smollm2_reference, SHA, changed, "some engine").outcome is Outcome.FAIL


def test_a_reference_of_the_engine_under_test_is_a_warning(smollm2_reference: Reference) -> None:
    verdict = judge_binding(smollm2_reference, SHA, None, smollm2_reference.engine)
    assert verdict.outcome is Outcome.WARN
    assert "same engine" in verdict.observation


def test_unseen_weights_and_no_reference_are_warnings(smollm2_reference: Reference) -> None:
    assert judge_binding(smollm2_reference, None, None, "some engine").outcome is Outcome.WARN
    assert judge_binding(None, SHA, None, "some engine").outcome is Outcome.WARN


# ── tokenizer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tokens_are_compared_one_by_one() -> None:
    expected = {"a": (1, 2, 3), "b": (4, 5)}
    assert judge_tokens(expected, {"a": [1, 2, 3], "b": [4, 5]}).outcome is Outcome.PASS
    differing = judge_tokens(expected, {"a": [1, 9, 3], "b": [4, 5]})
    assert differing.outcome is Outcome.FAIL
    assert "a from token 1: found [9, 3], expected [2, 3]" in differing.observation
    longer = judge_tokens(expected, {"a": [1, 2, 3], "b": [4, 5, 6]})
    assert longer.outcome is Outcome.FAIL
    assert "b from token 2: found [6], expected []" in longer.observation
    assert judge_tokens(expected, {"a": None, "b": [4, 5]}).outcome is Outcome.INCONCLUSIVE


# ── determinism ──────────────────────────────────────────────────────────────────────────────────────────────────────

NEAR = 0.1


def test_equal_runs_pass_by_ids_or_by_text() -> None:
    assert judge_determinism({"p": [run("ab", (1, 2))] * 3}, NEAR).observation.endswith("token ids equal in every run")
    assert judge_determinism({"p": [run("ab")] * 3}, NEAR).observation.endswith("texts equal in every run")


def test_ids_count_even_where_the_text_is_the_same() -> None:
    runs = [run("ab", (1, 2), (1.0, 1.0)), run("ab", (3,), (1.0,))]
    assert judge_determinism({"p": runs}, NEAR).outcome is Outcome.FAIL


def test_runs_that_part_at_a_near_tie_are_a_warning() -> None:
    runs = [run("ab", (1, 2), (1.0, 0.02)), run("ac", (1, 3), (1.0, 0.01))]
    verdict = judge_determinism({"p": runs}, NEAR)
    assert verdict.outcome is Outcome.WARN
    assert "p, run 2, from token 2, margin 0.010 nats" in verdict.observation


def test_runs_that_part_where_the_model_was_sure_fail() -> None:
    runs = [run("ab", (1, 2), (1.0, 2.0)), run("ac", (1, 3), (1.0, 0.5))]
    assert judge_determinism({"p": runs}, NEAR).outcome is Outcome.FAIL


def test_texts_that_part_without_scores_fail() -> None:
    verdict = judge_determinism({"p": [run("abc"), run("abd")]}, NEAR)
    assert verdict.outcome is Outcome.FAIL
    assert "from character 3" in verdict.observation


def test_one_explained_and_one_unexplained_difference_fail() -> None:
    tie = [run("ab", (1, 2), (1.0, 0.02)), run("ac", (1, 3), (1.0, 0.01))]
    sure = [run("ab", (1, 2), (1.0, 3.0)), run("ac", (1, 3), (1.0, 3.0))]
    assert judge_determinism({"p": tie, "q": sure}, NEAR).outcome is Outcome.FAIL


# ── rescoring ────────────────────────────────────────────────────────────────────────────────────────────────────────

RESCORE_LIMIT = load_limits().rescore_mean_abs


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, Outcome.PASS), (0.07, Outcome.PASS), (0.08, Outcome.FAIL)])
def test_prefill_and_decode_agree_within_the_limit(difference: float, outcome: Outcome) -> None:
    pair = Rescored(generated=(score(-1.0), score(-2.0)), given=(score(-1.0 - difference), score(-2.0 + difference)))
    assert judge_rescoring({"p": pair}, RESCORE_LIMIT, "d").outcome is outcome


def test_without_both_scores_it_is_a_warning() -> None:
    assert judge_rescoring({}, Evidence.assumed(0.1, "nats", source="x"), "d").outcome is Outcome.WARN


# ── recall ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def recalled(*texts: str) -> Verdict:
    return judge_recall({fact: run(text) for fact, text in zip((" apple", " river", " seven"), texts, strict=True)})


def test_facts_that_come_back_pass() -> None:
    assert recalled(" apple.\n", " river.", " seven, and").outcome is Outcome.PASS


def test_answers_that_ignore_the_prompt_fail() -> None:
    assert recalled(" a word", " a word", " a word").outcome is Outcome.FAIL
    assert recalled(" apple", " apple", " apple").outcome is Outcome.FAIL
    assert recalled(" the same for", " that", " it was").outcome is Outcome.FAIL


def test_some_facts_lost_is_a_warning() -> None:
    verdict = recalled(" apple", " a very simple", " seven")
    assert verdict.outcome is Outcome.WARN
    assert "2 of 3" in verdict.observation


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def stopping(
    *answers: Completion,
    forced: int | None = 33,
    should_stop: bool = True,
    stop_texts: tuple[str, ...] = ("<|im_end|>",),
) -> Verdict:
    made = None if forced is None else replace(run("x"), output_tokens=forced)
    return judge_stopping(
        {f"q{i}": a for i, a in enumerate(answers)},
        made,
        forced_tokens=33,
        answer_tokens=128,
        stop_texts=stop_texts,
        should_stop=should_stop,
    )


def test_answers_that_end_and_go_on_when_told_pass() -> None:
    verdict = stopping(answer("Seven."), answer("No.", tokens=3))
    assert verdict.outcome is Outcome.PASS
    assert "q0 after 9 tokens, q1 after 3 tokens" in verdict.observation
    assert "goes on to 33 tokens" in verdict.observation


def test_one_rambling_answer_is_left_to_small_models() -> None:
    assert stopping(answer("Seven."), answer("and and", finish="length")).outcome is Outcome.PASS


def test_no_answer_that_ends_fails_only_where_another_engine_saw_one_end() -> None:
    rambling = answer("and so on", finish="length", tokens=128)
    assert stopping(rambling, rambling).outcome is Outcome.FAIL
    assert stopping(rambling, rambling, should_stop=False).outcome is Outcome.WARN


def test_a_leaked_end_token_fails() -> None:
    verdict = stopping(answer("Seven.<|im_end|>\n<|im_start|>user"))
    assert verdict.outcome is Outcome.FAIL
    assert "<|im_end|>" in verdict.observation
    assert stopping(answer("Seven."), stop_texts=("",)).outcome is Outcome.PASS


def test_an_ignored_length_fails_and_one_that_cannot_be_asked_does_not() -> None:
    assert stopping(answer("Seven."), forced=9).outcome is Outcome.FAIL
    verdict = stopping(answer("Seven."), forced=None)
    assert verdict.outcome is Outcome.PASS
    assert verdict.evidence["forced_tokens"].is_missing


# ── chat template ────────────────────────────────────────────────────────────────────────────────────────────────────


def rendered(reference: Reference, **changes: str | None) -> dict[str, str | None]:
    return {chat.name: changes.get(chat.name, chat.rendered) for chat in reference.chats}


def test_prompts_to_the_letter_pass(smollm2_reference: Reference) -> None:
    chats = {chat.name: chat for chat in smollm2_reference.chats}
    verdict = judge_rendered(chats, rendered(smollm2_reference), {"week": 38, "sky": 31})
    assert verdict.outcome is Outcome.PASS
    assert "3 of 3" in verdict.observation


def test_one_blank_too_many_fails_and_is_shown(smollm2_reference: Reference) -> None:
    chats = {chat.name: chat for chat in smollm2_reference.chats}
    wrong = chats["turns"].rendered.replace("<|im_end|>\n", "<|im_end|> \n")
    verdict = judge_rendered(chats, rendered(smollm2_reference, turns=wrong), {})
    assert verdict.outcome is Outcome.FAIL
    assert "found ' \\n" in verdict.observation


def test_a_second_begin_token_shows_in_the_count(smollm2_reference: Reference) -> None:
    chats = {chat.name: chat for chat in smollm2_reference.chats}
    verdict = judge_rendered(chats, rendered(smollm2_reference), {"week": 39, "sky": 31})
    assert verdict.outcome is Outcome.FAIL
    assert "counts 39 prompt tokens for week, the template's prompt has 38" in verdict.observation


def test_a_server_that_shows_nothing_is_known_by_its_counts_alone(smollm2_reference: Reference) -> None:
    chats = {chat.name: chat for chat in smollm2_reference.chats}
    hidden = rendered(smollm2_reference, week=None, sky=None, turns=None)
    assert judge_rendered(chats, hidden, {"week": 38, "sky": 31}).outcome is Outcome.WARN
    assert judge_rendered(chats, hidden, {"week": 40, "sky": 31}).outcome is Outcome.FAIL
    assert judge_rendered(chats, hidden, {"week": None}).outcome is Outcome.INCONCLUSIVE


def test_todays_date_in_a_template_is_no_difference(smollm2_reference: Reference) -> None:
    chat = replace(smollm2_reference.chats[0], rendered="Today is 30 November 2026. Hi")
    text = {"week": "Today is 1 December 2026. Hi"}
    assert judge_rendered({"week": chat}, text, {"week": 99}).outcome is Outcome.PASS
    assert judge_rendered({"week": chat}, {"week": "Today is 1 December. Hi"}, {}).outcome is Outcome.FAIL


def test_without_a_reference_the_hashes_are_compared() -> None:
    assert judge_template_hash("a" * 64, "a" * 64).outcome is Outcome.PASS
    assert judge_template_hash("a" * 64, "b" * 64).outcome is Outcome.FAIL
    assert judge_template_hash(None, "b" * 64).outcome is Outcome.WARN
    assert judge_template_hash("a" * 64, None).outcome is Outcome.WARN
