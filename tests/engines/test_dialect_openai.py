"""How much the plain standard gives, on servers that follow it and on one that only looks like it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from replayed import ReplayedServer

from freehold.client.api import Endpoint
from freehold.engines.openai.dialect import OpenAIDialect
from freehold.errors import EngineError
from freehold.world import HttpReply, LocalWorld

PARIS = [504, 3575, 282, 4649, 314, 7042, 30]
WORLD = LocalWorld()
DIALECT = OpenAIDialect()


def test_echo_gives_scores_where_the_server_honours_it(vllm_server: ReplayedServer) -> None:
    scores = DIALECT.score(WORLD, Endpoint(base_url=vllm_server.base_url, model="smollm2-135m"), PARIS)
    assert scores is not None
    assert [round(s.logprob or 0, 4) for s in scores] == [-11.5393, -0.3376, -2.4387, -0.4509, -0.2581, -0.3801]
    # Tokens are named by text there, so only a forced token that is the most likely one has an id.
    assert [s.top_token_id for s in scores] == [None, 282, None, 314, 7042, 30]


def test_a_server_that_ignores_echo_gives_no_scores(llama_server: ReplayedServer) -> None:
    assert DIALECT.score(WORLD, Endpoint(base_url=llama_server.base_url, model="smollm2"), PARIS) is None


def test_generation_has_text_and_counts_only(llama_server: ReplayedServer) -> None:
    there = Endpoint(base_url=llama_server.base_url, model="smollm2")
    made = DIALECT.generate(WORLD, there, "The capital of France is", output_tokens=4, is_fixed_length=True)
    assert (made.text, made.token_ids, made.scores) == (" Paris.\n\n", None, None)
    assert (made.prompt_tokens, made.output_tokens) == (5, 4)


def test_what_the_standard_lacks_is_none(llama_server: ReplayedServer) -> None:
    there = Endpoint(base_url=llama_server.base_url, model="smollm2")
    assert DIALECT.tokenize(WORLD, there, "x") is None
    assert DIALECT.render_chat(WORLD, there, [{"role": "user", "content": "Hi"}]) is None
    assert DIALECT.counters(WORLD, there) is None
    assert DIALECT.effective(WORLD, there) == {"model": "smollm2"}


class ChatOnlyWorld(LocalWorld):
    """A server with a chat route and without the legacy completions route."""

    def http(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        timeout_s: float = 30.0,
    ) -> HttpReply:
        if not url.endswith("/chat/completions"):
            return HttpReply(status=404, body=b'{"error": {"message": "no such route"}}')
        assert isinstance(json, dict)
        return HttpReply(status=200, body=answer_chat(json))


def answer_chat(request: dict[str, object]) -> bytes:
    messages = request["messages"]
    assert isinstance(messages, list)
    choice = {"message": {"content": f"about {messages[0]['content']}"}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}).encode()


def test_a_server_with_chat_only_is_given_the_prompt_as_a_message() -> None:
    there = Endpoint(base_url="http://h/v1", model="m")
    made = DIALECT.generate(ChatOnlyWorld(), there, "Paris", output_tokens=4)
    assert (made.text, made.finish_reason, made.prompt_tokens, made.output_tokens) == ("about Paris", "stop", 7, 2)
    with pytest.raises(EngineError):
        DIALECT.generate(ChatOnlyWorld(), there, [1, 2, 3], output_tokens=4)
