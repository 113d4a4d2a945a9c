from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.client.api import StreamEvent, Usage
from freehold.client.deltas import error_message, read_delta, read_usage


def event(**chunk: object) -> StreamEvent:
    return read_delta(json.dumps(chunk), 1.5).event


def chat(**delta: object) -> StreamEvent:
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])


def test_a_completion_chunk_has_its_text() -> None:
    got = event(choices=[{"index": 0, "text": " w", "finish_reason": "length"}])
    assert got == StreamEvent(at_s=1.5, text=" w", finish_reason="length")
    assert got.has_output


def test_a_chat_chunk_has_its_text() -> None:
    assert chat(content="hi").text == "hi"
    assert chat(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]).text == "ab"


@pytest.mark.parametrize("delta", [{"role": "assistant"}, {"role": "assistant", "content": ""}, {"content": None}, {}])
def test_a_role_alone_is_no_output(delta: dict[str, object]) -> None:
    assert not chat(**delta).has_output


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_output_under_either_name(name: str) -> None:
    got = chat(**{name: "hm", "content": None})
    assert (got.reasoning, got.text, got.has_output) == ("hm", "", True)


def test_reasoning_that_is_sent_under_both_names_counts_once() -> None:
    assert chat(reasoning="hm", reasoning_content="hm").reasoning == "hm"


def test_a_tool_call_is_output() -> None:
    got = chat(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": '{"a"'}}, {"index": 1}])
    assert (got.tool_call, got.has_output) == ('f{"a"', True)
    assert chat(function_call={"arguments": "1"}).tool_call == "1"


def test_ids_and_logprobs_are_counted() -> None:
    assert event(choices=[{"text": "ab", "token_ids": [5, 6]}]).token_ids == (5, 6)
    assert event(choices=[{"text": "ab", "logprobs": {"tokens": ["a", "b"]}}]).num_logprobs == 2
    content = {"content": [{"token": "a"}, {"token": "b"}, {"token": "c"}]}
    assert event(choices=[{"delta": {"content": "abc"}, "logprobs": content}]).num_logprobs == 3
    assert event(choices=[{"text": "a", "logprobs": None}]).num_logprobs == 0


def test_a_usage_alone_is_the_bill_and_no_output() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}
    delta = read_delta(json.dumps({"choices": [], "usage": usage}), 0.0)
    assert delta.usage == Usage(prompt_tokens=7, completion_tokens=9, cached_tokens=3)
    assert (delta.event.has_output, delta.event.has_usage, delta.event.stated_tokens) == (False, True, None)


def test_a_usage_beside_a_text_is_a_running_count() -> None:
    got = event(choices=[{"text": "a"}], usage={"prompt_tokens": 1, "completion_tokens": 4})
    assert got.stated_tokens == 4


def test_llama_cpp_timings_are_kept_and_give_a_running_count() -> None:
    delta = read_delta(
        json.dumps({"choices": [{"text": "a"}], "timings": {"predicted_n": 12, "predicted_ms": 3.5, "x": "y"}}), 0.0
    )
    assert delta.timings == {"predicted_n": 12, "predicted_ms": 3.5}
    assert delta.event.stated_tokens == 12


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "too  long\nby far", "code": 400}}, "too long by far"),
        ({"error": "busy"}, "busy"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"message": {"a": 1}}, '{"a": 1}'),
        ({"object": "list"}, None),
        ("plain", "plain"),
        ("  ", None),
        (None, None),
        ({"error": {"message": "x" * 500}}, "x" * 299 + "…"),
    ],
)
def test_the_servers_words_are_found_in_every_shape(body: object, message: str | None) -> None:
    assert error_message(body) == message


def test_an_error_in_the_stream_is_an_error() -> None:
    assert read_delta('{"error": {"message": "out of memory"}}', 0.0).error == "out of memory"
    assert read_delta('{"error": {}}', 0.0).error == "an error without a message"
    assert read_delta('{"error": null, "choices": [{"text": "a"}]}', 0.0).error is None


@pytest.mark.parametrize("data", ["", "x", "[1]", '"a"', "{", "[" * 100_000, "1" * 5000, "null"])
def test_what_is_no_object_is_refused(data: str) -> None:
    with pytest.raises(ValueError):
        read_delta(data, 0.0)


@pytest.mark.parametrize(
    "usage", [None, 3, [], {}, {"prompt_tokens": "7"}, {"completion_tokens": -1}, {"completion_tokens": True}]
)
def test_a_usage_that_counts_nothing_is_none(usage: object) -> None:
    assert read_usage(usage) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["choices", "usage", "timings", "delta", "text", "content", "token_ids", "logprobs", "tool_calls", "reasoning"]
)


@given(
    chunk=st.dictionaries(names, json_values, max_size=4),
    choice=st.dictionaries(names, json_values | st.dictionaries(names, json_values, max_size=3), max_size=5),
)
def test_fields_of_any_type_never_stop_the_reader(chunk: dict[str, object], choice: dict[str, object]) -> None:
    delta = read_delta(json.dumps({**chunk, "choices": [choice]}), 2.0)
    assert delta.event.at_s == 2.0
    assert isinstance(delta.event.text + delta.event.reasoning + delta.event.tool_call, str)
    assert delta.event.num_logprobs >= 0
    assert delta.event.stated_tokens is None or delta.event.stated_tokens >= 0
