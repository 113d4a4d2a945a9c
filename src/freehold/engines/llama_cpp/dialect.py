"""How to ask a llama.cpp server (embedded or binary) what the OpenAI API does not standardise.

The server has no log-probabilities of a prompt. :meth:`LlamaCppDialect.score` asks for one token after every prefix
and makes it choose the forced token. Read that method first.

Does not do: starting the server (``engines/llama_cpp/engine.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePath, PureWindowsPath
from typing import Any

from freehold.client.api import Endpoint
from freehold.engines.api_facts import load_api_facts, read_counters
from freehold.engines.asking import Answer, as_float, as_list, as_map, ask, refused
from freehold.engines.interface import Generation, TokenScore
from freehold.errors import EngineError, FreeholdError
from freehold.world import World

__all__ = ["LlamaCppDialect"]

_BIAS = 1e9  # added to a logit: more than any model's own
_PLAIN_TOKEN = "a"  # a whole character in every vocabulary


class LlamaCppDialect:
    """Native routes of a llama.cpp server."""

    @property
    def name(self) -> str:
        """``llama.cpp``."""
        return "llama.cpp"

    def recognise(self, world: World, endpoint: Endpoint) -> str | None:
        """The build the server states (``b0-unknown`` for embedded builds), None for another kind of server."""
        facts = load_api_facts("llama_cpp")
        try:
            props = ask(world, endpoint, facts.routes["props"], timeout_s=10.0)
            if props.is_ok and isinstance(props.body.get("build_info"), str) and "total_slots" in props.body:
                return str(props.body["build_info"])
            models = ask(world, endpoint, facts.routes["models"], timeout_s=10.0)
        except FreeholdError:
            return None
        first = as_map(next(iter(as_list(models.body.get("data"))), None))
        if first.get("owned_by") == facts.recognise["owned_by"]:
            return "unknown build"
        return None

    def generation_fields(self, *, output_tokens: int, is_fixed_length: bool) -> dict[str, object]:
        """``max_tokens``, no prompt cache, and ``ignore_eos`` for a fixed length."""
        fields: dict[str, object] = {"max_tokens": output_tokens, "cache_prompt": False}
        if is_fixed_length:
            fields["ignore_eos"] = True
        return fields

    def tokenize(self, world: World, endpoint: Endpoint, text: str) -> list[int] | None:
        """Token ids of a text; special tokens in it stay text."""
        route = load_api_facts("llama_cpp").routes["tokenize"]
        answer = ask(world, endpoint, route, {"content": text, "add_special": False, "parse_special": False})
        tokens = answer.body.get("tokens")
        if not answer.is_ok or not isinstance(tokens, list) or not all(isinstance(t, int) for t in tokens):
            return None
        return list(tokens)

    def score(self, world: World, endpoint: Endpoint, token_ids: Sequence[int]) -> list[TokenScore] | None:
        """Log-probability of every token but the first, one request per position.

        The longest prefix comes first and is computed from nothing, in one batch. Each shorter one then reuses the
        keys and values of that batch and computes its last token alone. So both the prefill and the decode path of
        the engine leave their mark on every number, at the cost of one token per position. Reuse does not change the
        numbers: on xllamacpp 2026.10.11549 all 45 positions of a text were equal to the last bit with and without.

        Raises:
            EngineError: The server refused or failed.
        """
        scores = [
            self._score_position(world, endpoint, token_ids, position, is_cached=position < len(token_ids) - 1)
            for position in range(len(token_ids) - 1, 0, -1)
        ]
        return scores[::-1]

    def _score_position(
        self, world: World, endpoint: Endpoint, token_ids: Sequence[int], position: int, *, is_cached: bool
    ) -> TokenScore:
        """Score one token.

        A bias makes the server choose the forced token. Log-probabilities are stated as they were before the bias,
        and that of the chosen token is always stated, however unlikely it was. One case is left: for a token that
        ends inside a UTF-8 character newer builds answer without an entry and older ones with HTTP 500. Then another
        token is chosen and the forced one is looked up among the most likely ones.
        """
        facts = load_api_facts("llama_cpp")
        forced_id = token_ids[position]
        attempts: list[tuple[int | str, int]] = [(forced_id, 2), *((_PLAIN_TOKEN, n) for n in facts.listed)]
        score: TokenScore | None = None
        for chosen, listed in attempts:
            payload = {
                "prompt": list(token_ids[:position]),
                "n_predict": 1,
                "temperature": 0,
                "n_probs": listed,
                "logit_bias": [[chosen, _BIAS]],
                "cache_prompt": is_cached,
                "post_sampling_probs": False,
            }
            try:
                answer = ask(world, endpoint, facts.routes["completion"], payload)
            except EngineError:
                if chosen != forced_id:
                    raise
                continue
            if not answer.is_ok:
                raise refused("to score a prompt", answer)
            entries = as_list(answer.body.get("completion_probabilities"))
            entry = as_map(entries[0] if entries else None)
            candidates = as_list(entry.get("top_logprobs"))
            if not candidates:
                continue
            known = entry.get("logprob") if entry.get("id") == forced_id else None
            score = _read_score(candidates, forced_id, known)
            if score.logprob is not None:
                return score
        if score is None:
            raise refused("to score a prompt", answer)
        return score

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
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": output_tokens,
            "temperature": 0,
            "n_probs": 2,
            "cache_prompt": False,
            "return_tokens": True,
            "ignore_eos": is_fixed_length,
        }
        answer = ask(world, endpoint, load_api_facts("llama_cpp").routes["completion"], payload)
        body = answer.body
        if not answer.is_ok or not isinstance(body.get("content"), str):
            raise refused("to continue a prompt", answer)
        entries = [as_map(entry) for entry in as_list(body.get("completion_probabilities"))]
        scores = tuple(_read_score(as_list(e.get("top_logprobs")), e.get("id"), e.get("logprob")) for e in entries)
        tokens = as_list(body.get("tokens"))
        return Generation(
            text=body["content"],
            token_ids=tuple(tokens) or None,
            scores=scores if len(scores) == len(tokens) and scores else None,
            finish_reason="length" if body.get("stop_type") == "limit" else "stop",
            prompt_tokens=_count(body.get("tokens_evaluated")),
            output_tokens=_count(body.get("tokens_predicted")),
        )

    def render_chat(self, world: World, endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The prompt the server's own template engine makes of a conversation."""
        route = load_api_facts("llama_cpp").routes["apply_template"]
        answer = ask(world, endpoint, route, {"messages": [dict(m) for m in messages]})
        prompt = answer.body.get("prompt")
        return prompt if answer.is_ok and isinstance(prompt, str) else None

    def counters(self, world: World, endpoint: Endpoint) -> dict[str, float] | None:
        """Tokens since the server started; None when it was started without metrics."""
        facts = load_api_facts("llama_cpp")
        answer = ask(world, endpoint, facts.routes["metrics"])
        found = read_counters(answer.text, facts) if answer.is_ok else {}
        return found or None

    def effective(self, world: World, endpoint: Endpoint) -> dict[str, str]:
        """Context per sequence, sequences, model, weight type, end token and the hash of the chat template."""
        answer = ask(world, endpoint, load_api_facts("llama_cpp").routes["props"])
        return _read_props(answer) if answer.is_ok else {}


def _read_props(answer: Answer) -> dict[str, str]:
    props = answer.body
    found: dict[str, object] = {
        "context_tokens": as_map(props.get("default_generation_settings")).get("n_ctx"),
        "sequences": props.get("total_slots"),
        "model": _base_name(props.get("model_alias")),
        "model_file": _base_name(props.get("model_path")),
        "weight_type": props.get("model_ftype"),
        "build": props.get("build_info"),
        "eos_token": props.get("eos_token"),
    }
    template = props.get("chat_template")
    if isinstance(template, str) and template:
        found["chat_template_sha256"] = hashlib.sha256(template.encode()).hexdigest()
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _base_name(path: object) -> str | None:
    """The last part of a path or an alias that may be one; records hold no path of the machine that made them."""
    if not isinstance(path, str):
        return None
    return PureWindowsPath(path).name if "\\" in path else PurePath(path).name


def _read_score(candidates: Sequence[Any], forced_id: object, known: object = None) -> TokenScore:
    """The forced token's score from a list of candidates, the most likely first."""
    listed = [(entry.get("id"), as_float(entry.get("logprob"))) for entry in map(as_map, candidates)]
    logprob = next((value for token, value in listed if token == forced_id), None)
    if logprob is None:
        logprob = as_float(known)
    top_id, top = listed[0] if listed else (None, None)
    return TokenScore(
        logprob=logprob,
        upper_bound=listed[-1][1] if logprob is None and listed else None,
        top_token_id=top_id if isinstance(top_id, int) else None,
        top_logprob=top,
        runner_up_logprob=listed[1][1] if len(listed) > 1 else None,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
