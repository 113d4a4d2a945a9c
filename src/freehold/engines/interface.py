"""What every engine gives: how to start it, how to read it, how to talk to it.

An engine is a folder beside this file with an object that follows :class:`Engine`. A *dialect* is the part that only
needs a URL; it also serves servers we did not start. Everything above ``engines/`` uses these two and never
compares a name.

Does not do: starting processes (``launch/``) or judging answers (``verify/``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from freehold.client.api import Endpoint
from freehold.records.recipe import Recipe
from freehold.world import World

__all__ = ["Dialect", "Engine", "Generation", "LaunchCommand", "LogEvent", "LogKind", "TokenScore"]

LogKind = str
"""``loading memory settings backend listening warning out_of_memory fatal``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """One process to start.

    Args:
        argv: Argument vector; holds no secret.
        env: Environment on top of the inherited one.
        node: Which machine.
        order: Processes with a lower number start first.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    node: str = "local"
    order: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One thing a log line says.

    Args:
        kind: What it is about.
        message: The line's meaning in words.
        line: The line itself.
        done_bytes: Bytes loaded so far, for ``loading``.
        total_bytes: Bytes to load.
        facts: What the line states of the effective configuration, by name: ``threads``, ``kv_cache_bytes.CPU`` …
    """

    kind: LogKind
    message: str
    line: str
    done_bytes: int | None = None
    total_bytes: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScore:
    """Log-probability of one forced token.

    Args:
        logprob: Natural logarithm, or None when the server did not list the token.
        upper_bound: If it was not listed, what it cannot exceed: the least likely listed token's log-probability.
        top_token_id: The token the server found most likely.
        top_logprob: Its log-probability.
        runner_up_logprob: That of the second most likely token; how decided the server was.
    """

    logprob: float | None
    upper_bound: float | None
    top_token_id: int | None
    top_logprob: float | None
    runner_up_logprob: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a server generated greedily from a raw prompt.

    Args:
        text: The generated text.
        token_ids: Its tokens; None where the server does not say.
        scores: One per token, as the server judged it while it generated; None where it does not say.
        finish_reason: ``stop`` or ``length``.
        prompt_tokens: The server's count of the prompt.
        output_tokens: The server's count of what it generated.
    """

    text: str
    token_ids: tuple[int, ...] | None
    scores: tuple[TokenScore, ...] | None
    finish_reason: str | None
    prompt_tokens: int | None
    output_tokens: int | None


class Dialect(Protocol):
    """How to ask one kind of server for what the OpenAI API does not standardise."""

    @property
    def name(self) -> str:
        """Engine name: ``llama.cpp``, ``vllm``, ``openai``."""
        ...

    def recognise(self, world: World, endpoint: Endpoint) -> str | None:
        """The engine's version if the server is of this kind, else None; never raises for a wrong kind."""
        ...

    def generation_fields(self, *, output_tokens: int, is_fixed_length: bool) -> dict[str, object]:
        """Extra request fields for exactly that many tokens, no reuse of cached prompts where it can be asked."""
        ...

    def tokenize(self, world: World, endpoint: Endpoint, text: str) -> list[int] | None:
        """Token ids of a text without special tokens added; None where the server cannot say."""
        ...

    def score(self, world: World, endpoint: Endpoint, token_ids: Sequence[int]) -> list[TokenScore] | None:
        """Teacher-forced log-probability of ``token_ids[i]`` given those before it, i >= 1; None where impossible."""
        ...

    def generate(
        self,
        world: World,
        endpoint: Endpoint,
        prompt: str | Sequence[int],
        *,
        output_tokens: int,
        is_fixed_length: bool = False,
    ) -> Generation:
        """Continue a raw prompt (text or token ids) greedily, no chat template, no cached prefix.

        Raises:
            EngineError: The server refused or failed.
        """
        ...

    def render_chat(self, world: World, endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The prompt the server makes of a conversation; None where it cannot be asked."""
        ...

    def counters(self, world: World, endpoint: Endpoint) -> dict[str, float] | None:
        """Cumulative counters by our names: ``prompt_tokens output_tokens requests``; None without metrics."""
        ...

    def effective(self, world: World, endpoint: Endpoint) -> dict[str, str]:
        """The configuration the server says it runs with, by our names: ``context_tokens sequences model …``."""
        ...


class Engine(Protocol):
    """One engine that freehold can launch."""

    @property
    def name(self) -> str:
        """Name in a recipe."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How to talk to it."""
        ...

    def installed_version(self, recipe: Recipe, world: World) -> str | None:
        """Version that the recipe's runtime would start; None when it is not installed."""
        ...

    def check_options(self, recipe: Recipe) -> None:
        """Refuse an option of the recipe that this engine does not have, suggesting the nearest.

        Raises:
            InputError: Unknown option or wrong type.
        """
        ...

    def memory_terms(self) -> Mapping[str, object]:
        """Constants the planner needs: KV element bytes, workspace rule, with sources (from ``data/``)."""
        ...

    def commands(
        self, recipe: Recipe, *, model_files: Sequence[Path], port: int, alias: str
    ) -> tuple[LaunchCommand, ...]:
        """The processes to start for a recipe."""
        ...

    def read_line(self, line: str) -> LogEvent | None:
        """What a log line says, None when nothing of interest."""
        ...

    def last_words(self, log: str) -> tuple[str, ...]:
        """The decisive lines of a log of an engine that died, at most five."""
        ...
