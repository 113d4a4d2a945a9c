"""The whole gate against a replayed real server: as it was, and damaged in one place after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from replayed import Edit, Exchange, ReplayedServer

from freehold.client.api import Endpoint
from freehold.engines.openai.dialect import OpenAIDialect
from freehold.engines.vllm.dialect import VllmDialect
from freehold.errors import PrerequisiteError
from freehold.progress import Progress
from freehold.records.base import decode, encode
from freehold.records.inventory import Architecture
from freehold.records.verdict import Outcome
from freehold.records.verification import Verification
from freehold.verify.reference import Reference
from freehold.verify.run import verify
from freehold.world import LocalWorld

CAPTURE = Path(__file__).resolve().parents[1] / "data" / "verify" / "vllm_bfloat16.json"
SHA = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def other_engine(reference: Reference) -> Reference:
    """The stored reference as if another engine had made it, so that the one on the tape is judged as any other."""
    return replace(reference, engine="another engine")


def run(reference: Reference | None, edit: Edit | None = None, **arguments: Any) -> Verification:
    with ReplayedServer(CAPTURE, edit) as server:
        there = Endpoint(base_url=server.base_url, model="smollm2-135m")
        given = {"checkpoint_sha256": SHA, "reference": reference, **arguments}
        return verify(there, VllmDialect(), LocalWorld(), **given)


def outcomes(record: Verification) -> dict[str, Outcome]:
    return {verdict.check: verdict.outcome for verdict in record.verdicts}


def test_a_healthy_server_passes_every_check(smollm2_reference: Reference) -> None:
    record = run(other_engine(smollm2_reference))
    assert set(outcomes(record).values()) == {Outcome.PASS}, record.verdicts
    assert (record.passed, record.scope, record.outcome) == (True, "reference", Outcome.PASS)
    assert list(outcomes(record)) == [
        "checkpoint_binding",
        "tokenizer",
        "fingerprint",
        "chat_template",
        "determinism",
        "rescoring",
        "context_sensitivity",
        "stopping",
        "text_quality",
    ]
    assert record.reference is not None
    assert record.reference.checkpoint_sha256 == SHA
    assert decode(Verification, encode(record)) == record


def test_a_reference_by_the_engine_under_test_warns_and_says_so(smollm2_reference: Reference) -> None:
    record = run(smollm2_reference)
    assert outcomes(record)["checkpoint_binding"] is Outcome.WARN
    assert (record.passed, record.outcome) == (True, Outcome.WARN)


def test_without_a_reference_it_is_self_consistency_only(smollm2_reference: Reference) -> None:
    record = run(None)
    assert record.scope == "self-consistency only"
    assert record.reference is None
    assert record.passed
    assert "fingerprint" not in outcomes(record)


def test_a_reference_of_another_checkpoint_fails_without_comparing(smollm2_reference: Reference) -> None:
    record = run(other_engine(smollm2_reference), checkpoint_sha256="0" * 64)
    assert outcomes(record)["checkpoint_binding"] is Outcome.FAIL
    assert "fingerprint" not in outcomes(record)
    assert (record.passed, record.scope, record.reference) == (False, "self-consistency only", None)


def test_a_changed_template_in_the_header_fails(smollm2_reference: Reference) -> None:
    record = run(other_engine(smollm2_reference), architecture=Architecture(chat_template_sha256="0" * 64))
    assert not record.passed


def change_answer(route: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Edit:
    """Change the JSON of every good answer of a route, given request and answer."""

    def edit(exchange: Exchange) -> Exchange:
        if exchange["path"] != route or exchange["status"] != 200:
            return exchange
        body = json.loads(exchange["body"])
        change(exchange["request"], body)
        return {**exchange, "body": json.dumps(body)}

    return edit


def worse_scores(request: dict[str, Any], body: dict[str, Any]) -> None:
    for position in body["choices"][0].get("prompt_logprobs") or []:
        for i, entry in enumerate((position or {}).values()):
            entry["logprob"] -= 0.4 if i == 0 else 0.0


def no_scores(request: dict[str, Any], body: dict[str, Any]) -> None:
    for position in body["choices"][0].get("prompt_logprobs") or []:
        for entry in (position or {}).values():
            entry["logprob"] = None


def other_prompt(request: dict[str, Any], body: dict[str, Any]) -> None:
    body["prompt"] = body["prompt"].replace("<|im_start|>assistant\n", "assistant: ")


def other_tokens(request: dict[str, Any], body: dict[str, Any]) -> None:
    if "prompt" in request:
        body["tokens"][-1] += 1


def leaking_end(request: dict[str, Any], body: dict[str, Any]) -> None:
    body["choices"][0]["message"]["content"] += "<|im_end|>"


def broken_letters(request: dict[str, Any], body: dict[str, Any]) -> None:
    message = body["choices"][0]["message"]
    message["content"] = message["content"].replace("e", "\ufffd").replace("o", "\ufffd")


def one_token_more(request: dict[str, Any], body: dict[str, Any]) -> None:
    body["usage"]["prompt_tokens"] += 1


def early_stop(request: dict[str, Any], body: dict[str, Any]) -> None:
    if request.get("max_tokens") == 33:
        body["usage"]["completion_tokens"] = 9


@pytest.mark.parametrize(
    ("route", "change", "check"),
    [
        ("/v1/completions", worse_scores, "fingerprint"),
        ("/detokenize", other_prompt, "chat_template"),
        ("/v1/chat/completions", one_token_more, "chat_template"),
        ("/tokenize", other_tokens, "tokenizer"),
        ("/v1/chat/completions", leaking_end, "stopping"),
        ("/v1/completions", early_stop, "stopping"),
        ("/v1/chat/completions", broken_letters, "text_quality"),
    ],
)
def test_each_damage_fails_its_check_and_the_gate(
    smollm2_reference: Reference, route: str, change: Callable[..., None], check: str
) -> None:
    reference = other_engine(smollm2_reference)
    with ReplayedServer(CAPTURE, change_answer(route, change)) as server:
        there = Endpoint(base_url=server.base_url, model="smollm2-135m")
        record = verify(there, VllmDialect(), LocalWorld(), checkpoint_sha256=SHA, reference=reference)
        server.unknown.clear()  # a damaged tokenizer makes requests that were never recorded
    assert outcomes(record)[check] is Outcome.FAIL, record.verdicts
    assert not record.passed


def test_a_server_without_numbers_blocks_a_checkpoint_that_has_a_reference(smollm2_reference: Reference) -> None:
    edit = change_answer("/v1/completions", no_scores)
    record = run(other_engine(smollm2_reference), edit)
    assert outcomes(record)["fingerprint"] is Outcome.INCONCLUSIVE
    assert (record.passed, record.scope, record.reference) == (False, "self-consistency only", None)
    attached = run(other_engine(smollm2_reference), edit, checkpoint_sha256=None)
    assert (attached.passed, attached.scope) == (True, "self-consistency only")


def test_a_refusal_leaves_a_check_open_and_a_failure_fails_it(smollm2_reference: Reference) -> None:
    def answer_with(status: int) -> Edit:
        def edit(exchange: Exchange) -> Exchange:
            if "prompt_logprobs" not in (exchange["request"] or {}):
                return exchange
            words = json.dumps({"error": {"message": "log-probabilities are off"}})
            return {**exchange, "status": status, "body": words}

        return edit

    reference = other_engine(smollm2_reference)
    refused, failed = run(reference, answer_with(400)), run(reference, answer_with(500))
    assert outcomes(refused)["fingerprint"] is Outcome.INCONCLUSIVE
    assert outcomes(failed)["fingerprint"] is Outcome.FAIL
    assert "log-probabilities are off" in next(v.why for v in failed.verdicts if v.check == "fingerprint")
    assert not refused.passed
    assert not failed.passed


def test_another_answer_in_one_run_fails_determinism(smollm2_reference: Reference) -> None:
    seen = []

    def third_run_differs(request: dict[str, Any], body: dict[str, Any]) -> None:
        if request["prompt"] == "The capital of France is" and request["max_tokens"] == 24:
            seen.append(request)
            if len(seen) == 3:
                body["choices"][0]["token_ids"][0] += 1

    record = run(other_engine(smollm2_reference), change_answer("/v1/completions", third_run_differs))
    assert outcomes(record)["determinism"] is Outcome.FAIL
    assert not record.passed


def test_an_unknown_server_is_verified_as_far_as_the_standard_goes() -> None:
    with ReplayedServer(CAPTURE) as server:
        there = Endpoint(base_url=server.base_url, model="smollm2-135m")
        record = verify(there, OpenAIDialect(), LocalWorld(), checkpoint_sha256=None, reference=None)
    assert (record.scope, record.passed, record.outcome) == ("self-consistency only", True, Outcome.WARN)
    assert outcomes(record)["determinism"] is Outcome.PASS


def test_a_server_that_refuses_everything_does_not_pass() -> None:
    def refuse(exchange: Exchange) -> Exchange:
        return {**exchange, "status": 404, "body": "{}"} if exchange["method"] == "POST" else exchange

    with ReplayedServer(CAPTURE, refuse) as server:
        there = Endpoint(base_url=server.base_url, model="smollm2-135m")
        record = verify(there, OpenAIDialect(), LocalWorld(), checkpoint_sha256=None, reference=None)
        server.unknown.clear()
    assert outcomes(record)["determinism"] is Outcome.INCONCLUSIVE
    assert not record.passed


def test_a_server_that_is_gone_is_an_error_not_a_verdict(smollm2_reference: Reference) -> None:
    there = Endpoint(base_url="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(PrerequisiteError):
        verify(there, VllmDialect(), LocalWorld(), checkpoint_sha256=SHA, reference=smollm2_reference)


def test_progress_counts_checks_and_ends_once(smollm2_reference: Reference) -> None:
    events: list[Progress] = []
    run(other_engine(smollm2_reference), listener=events.append)
    assert [event.is_final for event in events].count(True) == 1
    assert events[-1].is_final
    assert events[-1].message == "9 checks, passed, reference"
    done = [event.done for event in events if event.done is not None]
    assert done == sorted(done)
    assert all(event.total == 9 for event in events)
