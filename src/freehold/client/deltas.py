"""What does one chunk of an OpenAI-compatible stream say? Read :func:`read_delta`.

``/completions`` (``choices[].text``) and ``/chat/completions`` (``choices[].delta``) are read, with the fields that
vLLM, SGLang and llama.cpp add: ``reasoning`` and ``reasoning_content``, ``token_ids``, ``logprobs``, ``timings``, a
running ``usage``. Servers are many and careless: a field of the wrong type counts as absent, never as an error.

Does not do: cutting bytes into events (``client/sse.py``).

Source: OpenAI API reference, "Streaming"; vLLM 0.32 ``entrypoints/openai``; llama.cpp ``tools/server``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from freehold.client.api import StreamEvent, Usage

__all__ = ["Delta", "error_message", "read_delta", "read_usage"]

_decode: Final = json.JSONDecoder().decode  # what `json.loads` calls in the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One chunk, read.

    Args:
        event: What it delivers.
        usage: The usage it carries, None without.
        timings: The engine's timing fields, empty without.
        error: The server's complaint, if the chunk is one.
    """

    event: StreamEvent
    usage: Usage | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


def read_delta(data: str, at_s: float) -> Delta:
    """Read the JSON of one event.

    Args:
        data: The event's data; not ``[DONE]``.
        at_s: Its arrival.

    Raises:
        ValueError: It is no JSON object.
    """
    try:
        chunk = _decode(data)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if type(chunk) is not dict:
        raise ValueError(f"a JSON object was expected, not {type(chunk).__name__}")
    if "error" in chunk and chunk["error"] is not None:
        return Delta(event=StreamEvent(at_s=at_s), error=error_message(chunk) or "an error without a message")

    text, reasoning, tool_call = "", "", ""
    token_ids: tuple[int, ...] = ()
    num_logprobs = 0
    finish_reason: str | None = None
    choices = chunk.get("choices")
    for choice in choices if type(choices) is list else ():
        if type(choice) is not dict:
            continue
        delta = choice.get("delta")
        if type(delta) is dict:
            text += _text(delta.get("content"))
            # Servers that send both names send the same words twice.
            reasoning += _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
            if "tool_calls" in delta or "function_call" in delta:
                tool_call += _tool_call(delta)
        else:
            text += _text(choice.get("text"))
        ids = choice.get("token_ids")
        if type(ids) is list and all(type(i) is int for i in ids):
            token_ids += tuple(ids)
        logprobs = choice.get("logprobs")
        if type(logprobs) is dict:
            entries = logprobs.get("content") or logprobs.get("tokens")
            num_logprobs += len(entries) if type(entries) is list else 0
        if type(choice.get("finish_reason")) is str:
            finish_reason = choice["finish_reason"]

    timings = _timings(chunk["timings"]) if "timings" in chunk else {}
    usage = read_usage(chunk["usage"]) if "usage" in chunk else None
    stated = timings.get("predicted_n")
    stated_tokens = int(stated) if stated is not None and stated >= 0 else None
    if stated_tokens is None and usage is not None and choices:
        # A usage beside a delta is a running count; one on a chunk of its own is the final bill.
        stated_tokens = usage.completion_tokens
    return Delta(
        event=StreamEvent(
            at_s=at_s,
            text=text,
            reasoning=reasoning,
            token_ids=token_ids,
            finish_reason=finish_reason,
            has_usage=usage is not None,
            tool_call=tool_call,
            num_logprobs=num_logprobs,
            stated_tokens=stated_tokens,
        ),
        usage=usage,
        timings=timings,
    )


def read_usage(value: object) -> Usage | None:
    """The API's counts, None where the field holds none."""
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    usage = Usage(
        prompt_tokens=_count(value.get("prompt_tokens")),
        completion_tokens=_count(value.get("completion_tokens")),
        cached_tokens=_count(cached),
    )
    return None if usage == Usage() else usage


def error_message(body: object, limit: int = 300) -> str | None:
    """The words of an error body in one of the shapes servers use, one line of at most ``limit`` characters."""
    message: object = None
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            message = next((inner[k] for k in ("message", "detail", "error", "msg") if inner.get(k)), None)
        else:
            message = inner
    elif isinstance(body, str):
        message = body
    if message is None:
        return None
    words = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    line = " ".join(words.split())
    if not line:
        return None
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _text(value: object) -> str:
    if type(value) is str:
        return value
    if type(value) is list:  # content parts
        return "".join(_text(part.get("text")) for part in value if type(part) is dict)
    return ""


def _tool_call(delta: Mapping[str, object]) -> str:
    words = ""
    calls = delta.get("tool_calls")
    functions = [c.get("function") for c in calls if type(c) is dict] if type(calls) is list else []
    for function in (*functions, delta.get("function_call")):
        if isinstance(function, dict):
            words += _text(function.get("name")) + _text(function.get("arguments"))
    return words


def _timings(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {k: v for k, v in value.items() if type(v) is int or (type(v) is float and abs(v) < float("inf"))}


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
