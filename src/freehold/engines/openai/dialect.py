"""How to ask an OpenAI-compatible server of unknown kind as much as the standard gives.

The standard has one way to score a prompt, the legacy ``echo`` with ``logprobs``; servers that only look compatible
ignore it or answer something else, and then there is no score. Read :meth:`OpenAIDialect.score` first.

Does not do: anything a particular engine adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from freehold.client.api import Endpoint
from freehold.engines.api_facts import load_api_facts
from freehold.engines.asking import as_float, as_list, as_map, ask, refused
from freehold.engines.interface import Generation, TokenScore
from freehold.errors import FreeholdError
from freehold.world import World

__all__ = ["OpenAIDialect"]


class OpenAIDialect:
    """The standard and nothing else."""

    @property
    def name(self) -> str:
        """``openai``."""
        return "openai"

    def recognise(self, world: World, endpoint: Endpoint) -> str | None:
        """``unknown version`` for any server that lists models the standard way, else None."""
        try:
            answer = ask(world, endpoint, load_api_facts("openai").routes["models"], timeout_s=10.0)
        except FreeholdError:
            return None
        return "unknown version" if answer.is_ok and isinstance(answer.body.get("data"), list) else None

    def generation_fields(self, *, output_tokens: int, is_fixed_length: bool) -> dict[str, object]:
        """``max_tokens`` only: the standard cannot ask for an exact length or an empty cache."""
        return {"max_tokens": output_tokens}

    def tokenize(self, world: World, endpoint: Endpoint, text: str) -> list[int] | None:
        """None: the standard has no tokenizer."""
        return None

    def score(self, world: World, endpoint: Endpoint, token_ids: Sequence[int]) -> list[TokenScore] | None:
        """Log-probabilities through ``echo``; None unless the answer echoes exactly these tokens.

        Only a forced token that is also the most likely one can be named by id, because the standard names the
        others by text.
        """
        facts = load_api_facts("openai")
        payload = {
            "model": endpoint.model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0,
            "echo": True,
            "logprobs": facts.listed[0],
        }
        try:
            answer = ask(world, endpoint, facts.routes["completions"], payload)
        except FreeholdError:
            return None
        choices = as_list(answer.body.get("choices"))
        logprobs = as_map(as_map(choices[0] if choices else None).get("logprobs"))
        names = as_list(logprobs.get("tokens"))
        values = as_list(logprobs.get("token_logprobs"))
        tops = as_list(logprobs.get("top_logprobs"))
        # One more than the prompt where the server could not leave the new token out.
        if not answer.is_ok or len(values) - len(token_ids) not in (0, 1) or len(names) != len(values):
            return None
        if values[0] is not None or any(as_float(v) is None for v in values[1 : len(token_ids)]):
            return None
        tops += [None] * (len(values) - len(tops))
        return [_read_position(names[i], values[i], as_map(tops[i]), token_ids[i]) for i in range(1, len(token_ids))]

    def generate(
        self,
        world: World,
        endpoint: Endpoint,
        prompt: str | Sequence[int],
        *,
        output_tokens: int,
        is_fixed_length: bool = False,
    ) -> Generation:
        """Continue a prompt greedily; text and usage are all the standard promises.

        A server without the legacy completions route is given the prompt as a user's message instead.

        Raises:
            EngineError: The server refused or failed.
        """
        routes = load_api_facts("openai").routes
        settings: dict[str, object] = {
            "model": endpoint.model,
            "temperature": 0,
            **self.generation_fields(output_tokens=output_tokens, is_fixed_length=is_fixed_length),
        }
        raw = prompt if isinstance(prompt, str) else list(prompt)
        answer = ask(world, endpoint, routes["completions"], {"prompt": raw, **settings})
        if answer.status in (404, 405) and isinstance(prompt, str):
            messages = [{"role": "user", "content": prompt}]
            answer = ask(world, endpoint, routes["chat"], {"messages": messages, **settings})
        choices = as_list(answer.body.get("choices"))
        choice = as_map(choices[0] if choices else None)
        text = choice.get("text", as_map(choice.get("message")).get("content"))
        if not answer.is_ok or not isinstance(text, str):
            raise refused("to continue a prompt", answer)
        usage = as_map(answer.body.get("usage"))
        finish = choice.get("finish_reason")
        return Generation(
            text=text,
            token_ids=None,
            scores=None,
            finish_reason=finish if isinstance(finish, str) else None,
            prompt_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
        )

    def render_chat(self, world: World, endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> str | None:
        """None: the standard does not show the prompt."""
        return None

    def counters(self, world: World, endpoint: Endpoint) -> dict[str, float] | None:
        """None: the standard has no counters."""
        return None

    def effective(self, world: World, endpoint: Endpoint) -> dict[str, str]:
        """The model's name, if the server lists it."""
        answer = ask(world, endpoint, load_api_facts("openai").routes["models"])
        names = [str(as_map(entry).get("id")) for entry in as_list(answer.body.get("data"))]
        return {"model": endpoint.model} if endpoint.model in names else {}


def _read_position(name: object, value: object, top: Mapping[str, Any], forced_id: int) -> TokenScore:
    """One echoed token: its own log-probability, and those of the most likely ones by their text."""
    ranked = sorted(((as_float(v) or 0.0, k) for k, v in top.items() if as_float(v) is not None), reverse=True)
    is_top = bool(ranked) and ranked[0][1] == name
    return TokenScore(
        logprob=as_float(value),
        upper_bound=None,
        top_token_id=forced_id if is_top else None,
        top_logprob=ranked[0][0] if ranked else None,
        runner_up_logprob=ranked[1][0] if len(ranked) > 1 else None,
    )
