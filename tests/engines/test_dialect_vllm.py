"""What a real vLLM server answers, read by its dialect."""

from __future__ import annotations

import pytest
from replayed import ReplayedServer

from freehold.client.api import Endpoint
from freehold.engines.llama_cpp.dialect import LlamaCppDialect
from freehold.engines.vllm.dialect import VllmDialect
from freehold.errors import EngineError
from freehold.world import LocalWorld

PARIS = [504, 3575, 282, 4649, 314, 7042, 30]  # "The capital of France is Paris."
WORLD = LocalWorld()
DIALECT = VllmDialect()


def endpoint(server: ReplayedServer) -> Endpoint:
    return Endpoint(base_url=server.base_url, model="smollm2-135m")


def test_the_server_is_recognised_with_its_version(vllm_server: ReplayedServer) -> None:
    assert DIALECT.recognise(WORLD, endpoint(vllm_server)) == "0.32.0"
    assert LlamaCppDialect().recognise(WORLD, endpoint(vllm_server)) is None


def test_text_becomes_tokens_and_a_conversation_becomes_text(vllm_server: ReplayedServer) -> None:
    assert DIALECT.tokenize(WORLD, endpoint(vllm_server), "The capital of France is Paris.") == PARIS
    prompt = DIALECT.render_chat(WORLD, endpoint(vllm_server), [{"role": "user", "content": "Hi"}])
    assert prompt is not None
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_a_whole_prompt_is_scored_in_one_request(vllm_server: ReplayedServer) -> None:
    scores = DIALECT.score(WORLD, endpoint(vllm_server), PARIS)
    assert scores is not None
    assert [round(s.logprob or 0, 4) for s in scores] == [-11.5393, -0.3376, -2.4387, -0.4509, -0.2581, -0.3801]
    assert [s.top_token_id for s in scores] == [29, 282, 260, 314, 7042, 30]
    assert scores[0].runner_up_logprob == pytest.approx(-2.65324068)
    assert len([path for _, path, _ in vllm_server.asked if path == "/v1/completions"]) == 1


def test_generation_names_tokens_by_id(vllm_server: ReplayedServer) -> None:
    made = DIALECT.generate(
        WORLD, endpoint(vllm_server), "The capital of France is", output_tokens=4, is_fixed_length=True
    )
    assert made.token_ids == (7042, 30, 198, 198)
    assert made.scores is not None
    assert [s.top_token_id for s in made.scores] == [7042, 30, 198, 198]
    assert all(s.top_logprob == s.logprob for s in made.scores)
    assert all(s.runner_up_logprob is not None and s.runner_up_logprob < (s.logprob or 0) for s in made.scores)


def test_counters_and_configuration(vllm_server: ReplayedServer) -> None:
    counters = DIALECT.counters(WORLD, endpoint(vllm_server))
    assert counters is not None
    assert set(counters) == {"prompt_tokens", "output_tokens", "requests"}
    assert all(value > 0 for value in counters.values())
    found = DIALECT.effective(WORLD, endpoint(vllm_server))
    assert found["context_tokens"] == "2048"
    assert found["kv_cache_dtype"] == "auto"
    assert found["prefix_cache"] == "True"


def test_a_refusal_is_an_error_in_the_servers_own_words(vllm_server: ReplayedServer) -> None:
    with pytest.raises(EngineError) as caught:
        DIALECT.score(WORLD, endpoint(vllm_server), [504, 999999, 282])
    assert "out of vocabulary" in caught.value.why


def test_no_two_requests_share_a_cached_prefix() -> None:
    first, second = (DIALECT.generation_fields(output_tokens=8, is_fixed_length=True) for _ in range(2))
    assert first["cache_salt"] != second["cache_salt"]
    assert (first["min_tokens"], first["ignore_eos"]) == (8, True)
