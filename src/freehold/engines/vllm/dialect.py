"""How to ask a vLLM server what the OpenAI API does not standardise.

vLLM scores a whole prompt in one request (``prompt_logprobs``). Read :meth:`VllmDialect.score` first.

Does not do: starting vLLM.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from freehold.client.api import Endpoint
from freehold.engines.api_facts import load_api_facts, read_counters, read_labels
from freehold.engines.asking import as_float, as_list, as_map, ask, refused
from freehold.engines.interface import Generation, TokenScore
from freehold.errors import FreeholdError
from freehold.world import World

__all__ = ["VllmDialect"]

_TOKEN_PREFIX = "token_id:"  # what `return_tokens_as_token_ids` puts before an id


class VllmDialect:
    """vLLM's additions to the OpenAI API."""

    @property
    def name(self) -> str:
        """``vllm``."""
        return "vllm"

    def recognise(self, world: World, endpoint: Endpoint) -> str | None:
        """vLLM's version, None for another kind of server."""
        facts = load_api_facts("vllm")
        try:
            version = ask(world, endpoint, facts.routes["version"], timeout_s=10.0).body.get("version")
            if not isinstance(version, str):
                return None
            models = ask(world, endpoint, facts.routes["models"], timeout_s=10.0)
        except FreeholdError:
            return None
        first = as_map(next(iter(as_list(models.body.get("data"))), None))
        return version if first.get("owned_by") == facts.recognise["owned_by"] else None

    def generation_fields(self, *, output_tokens: int, is_fixed_length: bool) -> dict[str, object]:
        """``max_tokens``, a salt that no cached prefix has, ``ignore_eos`` and ``min_tokens`` for a fixed length."""
        fields: dict[str, object] = {"max_tokens": output_tokens, "cache_salt": secrets.token_hex(16)}
        if is_fixed_length:
            fields |= {"ignore_eos": True, "min_tokens": output_tokens}
        return fields

    def tokenize(self, world: World, endpoint: Endpoint, text: str) -> list[int] | None:
        """Token ids of a text; special tokens in it become special tokens."""
        route = load_api_facts("vllm").routes["tokenize"]
        payload = {"model": endpoint.model, "prompt": text, "add_special_tokens": False}
        answer = ask(world, endpoint, route, payload)
        tokens = answer.body.get("tokens")
        if not answer.is_ok or not isinstance(tokens, list) or not all(isinstance(t, int) for t in tokens):
            return None
        return list(tokens)

    def score(self, world: World, endpoint: Endpoint, token_ids: Sequence[int]) -> list[TokenScore] | None:
        """Log-probability of every token but the first, all in one request; the prefix cache is not read for it.

        Raises:
            EngineError: The server refused or failed.
        """
        facts = load_api_facts("vllm")
        payload = {
            "model": endpoint.model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": facts.listed[0],
        }
        answer = ask(world, endpoint, facts.routes["completions"], payload)
        choices = as_list(answer.body.get("choices"))
        positions = as_list(as_map(choices[0] if choices else None).get("prompt_logprobs"))
        if not answer.is_ok or len(positions) != len(token_ids):
            raise refused("to score a prompt", answer)
        return [_read_position(as_map(p), t) for p, t in zip(positions[1:], token_ids[1:], strict=True)]

    def generate(
        self,
        world: World,
        endpoint: Endpoint,
        prompt: str | Sequence[int],
        *,
        output_tokens: int,
        is_fixed_length: bool = False,
    ) -> Generation:
        """Continue a raw prompt greedily, with token ids and log-probabilities.

        Raises:
            EngineError: The server refused or failed.
        """
        payload: dict[str, object] = {
            "model": endpoint.model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "temperature": 0,
            "logprobs": 2,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **self.generation_fields(output_tokens=output_tokens, is_fixed_length=is_fixed_length),
        }
        answer = ask(world, endpoint, load_api_facts("vllm").routes["completions"], payload)
        choices = as_list(answer.body.get("choices"))
        choice = as_map(choices[0] if choices else None)
        if not answer.is_ok or not isinstance(choice.get("text"), str):
            raise refused("to continue a prompt", answer)
        tokens = tuple(as_list(choice.get("token_ids")))
        logprobs = as_map(choice.get("logprobs"))
        pairs = zip(as_list(logprobs.get("token_logprobs")), as_list(logprobs.get("top_logprobs")), strict=False)
        scores = tuple(_read_generated(value, as_map(top)) for value, top in pairs)
        usage = as_map(answer.body.get("usage"))
        finish = choice.get("finish_reason")
        return Generation(
            text=choice["text"],
            token_ids=tokens or None,
            scores=scores if scores and len(scores) == len(tokens) else None,
            finish_reason=finish if isinstance(finish, str) else None,
            prompt_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
        )

    def render_chat(self, world: World, endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The prompt the server makes of a conversation: its tokens, turned back into text by the server."""
        routes = load_api_facts("vllm").routes
        payload: dict[str, object] = {"model": endpoint.model, "messages": [dict(m) for m in messages]}
        tokens = ask(world, endpoint, routes["tokenize"], payload).body.get("tokens")
        if not isinstance(tokens, list):
            return None
        answer = ask(world, endpoint, routes["detokenize"], {"model": endpoint.model, "tokens": tokens})
        prompt = answer.body.get("prompt")
        return prompt if answer.is_ok and isinstance(prompt, str) else None

    def counters(self, world: World, endpoint: Endpoint) -> dict[str, float] | None:
        """Tokens and finished requests since the server started."""
        facts = load_api_facts("vllm")
        answer = ask(world, endpoint, facts.routes["metrics"])
        found = read_counters(answer.text, facts) if answer.is_ok else {}
        return found or None

    def effective(self, world: World, endpoint: Endpoint) -> dict[str, str]:
        """Context, model and what the metrics page says about the KV cache."""
        facts = load_api_facts("vllm")
        found: dict[str, str] = {}
        for entry in map(as_map, as_list(ask(world, endpoint, facts.routes["models"]).body.get("data"))):
            if entry.get("id") == endpoint.model or not found:
                values = {
                    "model": entry.get("id"),
                    "context_tokens": entry.get("max_model_len"),
                    "model_file": PurePath(str(entry.get("root") or "")).name,
                }
                found = {name: str(value) for name, value in values.items() if value not in (None, "")}
        return found | read_labels(ask(world, endpoint, facts.routes["metrics"]).text, facts)


def _read_position(listed: Mapping[str, Any], forced_id: int) -> TokenScore:
    """One position of ``prompt_logprobs``: token id → log-probability and rank (1 is the most likely)."""
    by_rank = {}
    for token, entry in listed.items():
        value = as_map(entry)
        by_rank[value.get("rank")] = (int(token), as_float(value.get("logprob")))
    top = by_rank.get(1, (None, None))
    return TokenScore(
        logprob=as_float(as_map(listed.get(str(forced_id))).get("logprob")),
        upper_bound=None,
        top_token_id=top[0],
        top_logprob=top[1],
        runner_up_logprob=by_rank.get(2, (None, None))[1],
    )


def _read_generated(logprob: object, top: Mapping[str, Any]) -> TokenScore:
    """One generated token: its log-probability, and those of the most likely tokens by ``token_id:N``."""
    ranked = sorted(((as_float(v) or 0.0, k) for k, v in top.items() if as_float(v) is not None), reverse=True)
    name = ranked[0][1].removeprefix(_TOKEN_PREFIX) if ranked else ""
    return TokenScore(
        logprob=as_float(logprob),
        upper_bound=None,
        top_token_id=int(name) if name.isdecimal() else None,
        top_logprob=ranked[0][0] if ranked else None,
        runner_up_logprob=ranked[1][0] if len(ranked) > 1 else None,
    )
