"""What does the server answer? Asks each question once and remembers the answer for every check that wants it.

The checks are pure functions of these answers. Read :class:`Interview`.

Does not do: judging (one module per check).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from freehold.client.api import Completion, Endpoint
from freehold.client.openai import complete
from freehold.engines.interface import Dialect, Generation, TokenScore
from freehold.progress import Listener, Progress, ignore
from freehold.verify.limits import Limits
from freehold.verify.reference import Reference
from freehold.verify.texts import FixedTexts
from freehold.world import World

__all__ = ["Interview", "Rescored"]

_FORCED_EXTRA_TOKENS = 24
_RECALL_TOKENS = 8  # a word of a few tokens, and some before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """One generated continuation, scored twice: while it was generated, and given to the server as a prompt."""

    generated: tuple[TokenScore, ...]
    given: tuple[TokenScore, ...]


class Interview:
    """One server's answers.

    Args:
        endpoint: The server.
        dialect: How to ask it.
        world: Gives HTTP.
        texts: Fixed texts.
        limits: How many runs and tokens.
        reference: Gives the texts and conversations to compare; None uses the fixed ones.
        listener: Is told what is being asked.

    Attributes:
        checks_done: Checks decided so far; goes into what the listener is told.
        num_checks: Checks there are, None before that is known.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        world: World,
        texts: FixedTexts,
        limits: Limits,
        *,
        reference: Reference | None = None,
        listener: Listener = ignore,
    ) -> None:
        self.endpoint = endpoint
        self.dialect = dialect
        self.world = world
        self.texts = texts
        self.limits = limits
        self.reference = reference
        self.listener = listener
        self.checks_done = 0
        self.num_checks: int | None = None

    def _tell(self, message: str) -> None:
        self.listener(
            Progress(stage="verify", message=message, done=self.checks_done, total=self.num_checks, unit="checks")
        )

    @cached_property
    def effective(self) -> dict[str, str]:
        """The configuration the server states."""
        return self.dialect.effective(self.world, self.endpoint)

    @cached_property
    def token_ids(self) -> Mapping[str, list[int] | None]:
        """The server's tokens of every reference text without special tokens, by name."""
        texts = self.reference.texts if self.reference else ()
        return {
            text.name: self.dialect.tokenize(self.world, self.endpoint, text.text)
            for text in texts
            if not text.has_special
        }

    @cached_property
    def scores(self) -> Mapping[str, list[TokenScore]] | None:
        """Scores of the reference's tokens by text; None where the server cannot score."""
        found: dict[str, list[TokenScore]] = {}
        if self.reference is None:
            return None
        for text in self.reference.texts:
            self._tell(f"scoring {len(text.token_ids)} tokens of {text.name}")
            scores = self.dialect.score(self.world, self.endpoint, self.reference.scored_token_ids(text))
            if scores is None:
                return None
            found[text.name] = scores
        return found

    @cached_property
    def runs(self) -> Mapping[str, tuple[Generation, ...]]:
        """Greedy continuations of every prompt, several of each, by the prompt's name.

        The rounds go over all prompts, so that two runs of one prompt never follow each other.
        """
        found: dict[str, list[Generation]] = {prompt.name: [] for prompt in self.texts.prompts}
        for number in range(1, self.limits.runs + 1):
            for prompt in self.texts.prompts:
                self._tell(f"continuing {prompt.name}, run {number} of {self.limits.runs}")
                found[prompt.name].append(
                    self.dialect.generate(
                        self.world,
                        self.endpoint,
                        prompt.text,
                        output_tokens=self.limits.run_tokens,
                        is_fixed_length=True,
                    )
                )
        return {name: tuple(runs) for name, runs in found.items()}

    @cached_property
    def rescored(self) -> Mapping[str, Rescored]:
        """The first run of every prompt, scored again as a given text; only where both scores can be had."""
        found: dict[str, Rescored] = {}
        for prompt in self.texts.prompts:
            run = self.runs[prompt.name][0]
            if run.token_ids is None or run.scores is None:
                continue
            prompt_ids = self.dialect.tokenize(self.world, self.endpoint, prompt.text)
            # Another count means that the server put a token of its own before the prompt.
            if not prompt_ids or run.prompt_tokens != len(prompt_ids):
                continue
            self._tell(f"scoring the continuation of {prompt.name}")
            scores = self.dialect.score(self.world, self.endpoint, (*prompt_ids, *run.token_ids))
            if scores is not None:
                found[prompt.name] = Rescored(generated=run.scores, given=tuple(scores[-len(run.token_ids) :]))
        return found

    @cached_property
    def conversations(self) -> Mapping[str, tuple[Mapping[str, str], ...]]:
        """Messages of every conversation by name."""
        if self.reference is not None and self.reference.chats:
            return {chat.name: chat.messages for chat in self.reference.chats}
        return {chat.name: chat.messages for chat in self.texts.chats}

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """Names of the conversations an answer is asked for."""
        if self.reference is not None and self.reference.chats:
            return tuple(chat.name for chat in self.reference.chats if chat.is_asked)
        return tuple(chat.name for chat in self.texts.chats if chat.is_asked)

    @cached_property
    def rendered(self) -> Mapping[str, str | None]:
        """The prompt the server makes of every conversation; None where it cannot be asked."""
        return {
            name: self.dialect.render_chat(self.world, self.endpoint, messages)
            for name, messages in self.conversations.items()
        }

    @cached_property
    def answers(self) -> Mapping[str, Completion]:
        """Greedy answers through the chat route, by conversation."""
        found = {}
        for name in self.asked:
            self._tell(f"asking {name}")
            fields = self.dialect.generation_fields(output_tokens=self.limits.answer_tokens, is_fixed_length=False)
            found[name] = complete(
                self.world,
                self.endpoint,
                "/chat/completions",
                {"messages": [dict(m) for m in self.conversations[name]], "temperature": 0, **fields},
            )
        return found

    @cached_property
    def forced_tokens(self) -> int:
        """Length asked for past the end: more than the first answer took."""
        first = next(iter(self.answers.values()))
        return (first.usage.completion_tokens or 0) + _FORCED_EXTRA_TOKENS

    @cached_property
    def can_force_length(self) -> bool:
        """Whether this kind of server has a way to ask for an exact length at all."""
        free, fixed = (self.dialect.generation_fields(output_tokens=1, is_fixed_length=f) for f in (False, True))
        return set(fixed) > set(free)

    @cached_property
    def forced(self) -> Generation | None:
        """A raw continuation of the first conversation past its natural end; None where that cannot be asked."""
        name = self.asked[0]
        prompt: str | tuple[int, ...] | None = self.rendered[name]
        if self.reference is not None:
            prompt = next((chat.token_ids for chat in self.reference.chats if chat.name == name), prompt)
        if prompt is None or not self.can_force_length:
            return None
        self._tell("asking for a length past the end")
        return self.dialect.generate(
            self.world, self.endpoint, prompt, output_tokens=self.forced_tokens, is_fixed_length=True
        )

    @cached_property
    def recalls(self) -> Mapping[str, Generation]:
        """Continuations of the prompts that differ in one fact far back, by fact."""
        self._tell("changing a fact far back in a prompt")
        return {
            fact: self.dialect.generate(self.world, self.endpoint, prompt, output_tokens=_RECALL_TOKENS)
            for fact, prompt in self.texts.recall.prompts().items()
        }
