"""What a real llama.cpp server answers, read by its dialect."""

from __future__ import annotations

import pytest
from replayed import ReplayedServer

from freehold.client.api import Endpoint
from freehold.engines.llama_cpp.dialect import LlamaCppDialect
from freehold.engines.openai.dialect import OpenAIDialect
from freehold.engines.vllm.dialect import VllmDialect
from freehold.errors import EngineError
from freehold.world import LocalWorld

PARIS = [504, 3575, 282, 4649, 314, 7042, 30]  # "The capital of France is Paris."
WORLD = LocalWorld()
DIALECT = LlamaCppDialect()


def endpoint(server: ReplayedServer) -> Endpoint:
    return Endpoint(base_url=server.base_url, model="smollm2")


def test_the_server_is_recognised_as_llama_cpp_and_as_nothing_more_special(llama_server: ReplayedServer) -> None:
    there = endpoint(llama_server)
    assert DIALECT.recognise(WORLD, there) == "b0-unknown"
    assert VllmDialect().recognise(WORLD, there) is None
    assert OpenAIDialect().recognise(WORLD, there) == "unknown version"


def test_text_becomes_the_models_tokens(llama_server: ReplayedServer) -> None:
    assert DIALECT.tokenize(WORLD, endpoint(llama_server), "The capital of France is Paris.") == PARIS


def test_every_token_but_the_first_is_scored_exactly(llama_server: ReplayedServer) -> None:
    scores = DIALECT.score(WORLD, endpoint(llama_server), PARIS)
    assert scores is not None
    assert [round(s.logprob or 0, 4) for s in scores] == [-11.4495, -0.3109, -2.5326, -0.4413, -0.2589, -0.3982]
    assert [s.top_token_id for s in scores] == [29, 282, 260, 314, 7042, 30]
    # " France" was the runner-up there: the server says so twice, by its place and by its own log-probability.
    assert scores[2].runner_up_logprob == scores[2].logprob


def test_scoring_starts_from_an_empty_cache_with_the_longest_prefix(llama_server: ReplayedServer) -> None:
    DIALECT.score(WORLD, endpoint(llama_server), PARIS)
    asked = [request for _, path, request in llama_server.asked if path == "/completion"]
    assert [len(request["prompt"]) for request in asked] == [6, 5, 4, 3, 2, 1]
    assert [request["cache_prompt"] for request in asked] == [False, True, True, True, True, True]
    assert all(request["logit_bias"][0][0] == PARIS[len(request["prompt"])] for request in asked)


def test_a_token_that_ends_inside_a_character_is_looked_up_instead(llama_server: ReplayedServer) -> None:
    scores = DIALECT.score(WORLD, endpoint(llama_server), [18645, 250, 48392, 138])
    assert scores is not None
    assert [round(s.logprob or 0, 3) for s in scores] == [-16.656, -6.826, -1.287]
    widths = [request["n_probs"] for _, path, request in llama_server.asked if path == "/completion"]
    assert max(widths) > 2, "the recorded server left the entry of such a token out"


def test_generation_comes_with_tokens_and_scores(llama_server: ReplayedServer) -> None:
    made = DIALECT.generate(
        WORLD, endpoint(llama_server), "The capital of France is", output_tokens=4, is_fixed_length=True
    )
    assert made.text == " Paris.\n\n"
    assert made.token_ids == (7042, 30, 198, 198)
    assert made.scores is not None
    assert [round(s.logprob or 0, 4) for s in made.scores] == [-0.2589, -0.3982, -0.9539, -0.742]
    assert (made.finish_reason, made.prompt_tokens, made.output_tokens) == ("length", 5, 4)


def test_a_generation_cut_inside_a_character_has_tokens_but_no_scores(llama_server: ReplayedServer) -> None:
    made = DIALECT.generate(WORLD, endpoint(llama_server), "你好", output_tokens=3)
    assert made.text.endswith("\ufffd")
    assert made.token_ids is not None
    assert len(made.token_ids) == 3
    assert made.scores is None


def test_the_chat_prompt_is_shown(llama_server: ReplayedServer) -> None:
    prompt = DIALECT.render_chat(WORLD, endpoint(llama_server), [{"role": "user", "content": "Hi"}])
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_counters_add_cached_tokens_to_computed_ones(llama_server: ReplayedServer) -> None:
    page = llama_server.body("GET", "/metrics")
    values = {
        line.split()[0]: float(line.split()[1]) for line in page.splitlines() if line and not line.startswith("#")
    }
    expected = values["llamacpp:prompt_tokens_total"] + values["llamacpp:prompt_tokens_cached_total"]
    counters = DIALECT.counters(WORLD, endpoint(llama_server))
    assert counters == {"prompt_tokens": expected, "output_tokens": values["llamacpp:tokens_predicted_total"]}
    assert values["llamacpp:prompt_tokens_cached_total"] > 0


def test_the_effective_configuration_has_no_paths(llama_server: ReplayedServer) -> None:
    found = DIALECT.effective(WORLD, endpoint(llama_server))
    assert found["context_tokens"] == "2048"
    assert found["sequences"] == "1"
    assert found["model"] == "smollm2"
    assert found["weight_type"] == "Q4_1"
    assert found["eos_token"] == "<|im_end|>"
    assert found["chat_template_sha256"] == "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788"
    assert not any("/" in value for value in found.values())


def test_a_refusal_is_an_error_in_the_servers_own_words(llama_server: ReplayedServer) -> None:
    with pytest.raises(EngineError) as caught:
        DIALECT.score(WORLD, endpoint(llama_server), [504, 999999, 282])
    assert "Prompt contains invalid tokens" in caught.value.why
    assert caught.value.facts["status"] == 400


def test_fixed_length_and_cache_are_asked_by_the_servers_own_fields() -> None:
    fields = DIALECT.generation_fields(output_tokens=64, is_fixed_length=True)
    assert fields == {"max_tokens": 64, "cache_prompt": False, "ignore_eos": True}
    assert "ignore_eos" not in DIALECT.generation_fields(output_tokens=64, is_fixed_length=False)
