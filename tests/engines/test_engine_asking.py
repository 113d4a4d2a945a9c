"""Servers that answer badly, and metrics pages that are odd."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.client.api import Endpoint
from freehold.engines.api_facts import load_api_facts, read_counters, read_labels
from freehold.engines.asking import ask
from freehold.engines.interface import Dialect
from freehold.engines.registry import dialects
from freehold.errors import EngineError, FreeholdError, PrerequisiteError
from freehold.secret import Secret
from freehold.world import HttpReply, LocalWorld

HERE = Endpoint(base_url="http://127.0.0.1:9/v1", model="m")


class AnsweringWorld(LocalWorld):
    """A world in which every request gets one and the same reply."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__()
        self.reply = HttpReply(status=status, headers={}, body=body)
        self.urls: list[str] = []
        self.sent_headers: list[Mapping[str, str]] = []

    def http(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        timeout_s: float = 30.0,
    ) -> HttpReply:
        self.urls.append(url)
        self.sent_headers.append(headers or {})
        return self.reply


BODIES = [
    b"<!doctype html><html>login</html>",
    b"",
    b"[]",
    b"null",
    b'{"tokens": "no list", "choices": [], "data": {}, "content": 5}',
    b'{"tokens": [1, "two"], "choices": [null], "models": [null], "prompt": 3}',
    b'{"choices": [{"text": null, "logprobs": {"token_logprobs": "x", "tokens": 4}}], "completion_probabilities": [3]}',
    b'{"completion_probabilities": [{"top_logprobs": [{"id": null, "logprob": "NaN"}]}], "tokens": [null]}',
    b'{"build_info": 4, "version": 7, "total_slots": null}',
    b'\xff\xfe{"broken": ',
    b"[" * 100_000,
]


@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize("dialect", dialects(), ids=lambda d: d.name)
def test_no_answer_makes_a_dialect_raise_anything_but_our_errors(dialect: Dialect, status: int) -> None:
    for body in BODIES:
        world = AnsweringWorld(status, body)
        assert dialect.recognise(world, HERE) is None
        for call in (
            lambda w=world: dialect.tokenize(w, HERE, "text"),
            lambda w=world: dialect.score(w, HERE, [1, 2, 3]),
            lambda w=world: dialect.generate(w, HERE, "text", output_tokens=4),
            lambda w=world: dialect.render_chat(w, HERE, [{"role": "user", "content": "Hi"}]),
            lambda w=world: dialect.counters(w, HERE),
            lambda w=world: dialect.effective(w, HERE),
        ):
            with suppress(FreeholdError):
                call()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "text",
                    "logprobs",
                    "prompt_logprobs",
                    "tokens",
                    "data",
                    "id",
                    "owned_by",
                    "version",
                    "usage",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_survived(value: object) -> None:
    world = AnsweringWorld(200, json.dumps(value).encode())
    for dialect in dialects():
        dialect.recognise(world, HERE)
        for call in (
            lambda d=dialect: d.score(world, HERE, [1, 2]),
            lambda d=dialect: d.generate(world, HERE, "x", output_tokens=1),
            lambda d=dialect: d.effective(world, HERE),
            lambda d=dialect: d.tokenize(world, HERE, "x"),
        ):
            with suppress(FreeholdError):
                call()


def test_a_missing_key_is_a_prerequisite_and_a_given_one_is_sent() -> None:
    world = AnsweringWorld(401, b'{"error": {"message": "Invalid API Key"}}')
    with pytest.raises(PrerequisiteError) as caught:
        ask(world, HERE, "/props")
    assert caught.value.why == "Invalid API Key"
    ask(AnsweringWorld(200, b"{}"), HERE, "/props")
    with_key = AnsweringWorld(200, b"{}")
    ask(with_key, Endpoint(base_url="http://h/v1", model="m", api_key=Secret("s3")), "/props")
    assert with_key.sent_headers == [{"Authorization": "Bearer s3"}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "out of memory"}}', "out of memory"),
        (b'{"error": "out of memory"}', "out of memory"),
        (b'{"message": "out of memory"}', "out of memory"),
        (b'{"detail": "out of memory"}', "out of memory"),
        (b"out\n of  memory", "out of memory"),
        (b"", "the server gave no reason"),
    ],
)
def test_a_failure_is_told_in_the_servers_words(body: bytes, words: str) -> None:
    with pytest.raises(EngineError) as caught:
        ask(AnsweringWorld(500, body), HERE, "/completion", {})
    assert caught.value.why == words


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    answer = ask(AnsweringWorld(200, rb'{"content": "a\ud83d b \ud83d\ude00 c"}'), HERE, "/completion", {})
    assert "\ufffd" in answer.body["content"]
    assert answer.body["content"].endswith(" b 😀 c")
    answer.body["content"].encode()


def test_standard_routes_go_below_the_given_base_and_own_routes_below_the_root() -> None:
    world = AnsweringWorld(200, b"{}")
    there = Endpoint(base_url="http://host/proxy/v1", model="m")
    ask(world, there, "/v1/models")
    ask(world, there, "/metrics")
    assert world.urls == ["http://host/proxy/v1/models", "http://host/proxy/metrics"]


def test_counters_are_summed_over_labels_and_never_invented() -> None:
    facts = load_api_facts("vllm")
    page = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+03
vllm:prompt_tokens_total{engine="1",model_name="m"} 500.0 1796079568000
vllm:generation_tokens_total{engine="0",model_name="a } b"} NaN
vllm:request_success_total{engine="0",finished_reason="stop"} 2
vllm:request_success_total{engine="0",finished_reason="length"} 3
vllm:prompt_tokens_total_created{engine="0"} 1.7e+09
not a sample
"""
    assert read_counters(page, facts) == {"prompt_tokens": 2000.0, "requests": 5.0}
    assert read_counters("<html>", facts) == {}


def test_labels_become_configuration_values() -> None:
    facts = load_api_facts("vllm")
    page = 'vllm:cache_config_info{block_size="16",cache_dtype="fp8",enable_prefix_caching="False",x="a\\"b"} 1.0'
    assert read_labels(page, facts) == {"kv_cache_dtype": "fp8", "kv_block_tokens": "16", "prefix_cache": "False"}
