"""Which fixed texts, prompts and conversations does verification use? Data from ``data/verify/texts.toml``, typed.

Read :func:`load_texts`.

Does not do: asking a server (``verify/interview.py``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

__all__ = ["FixedChat", "FixedRecall", "FixedText", "FixedTexts", "load_texts"]

_FACT = "{fact}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedText:
    """A text with a name; scored token by token, or continued greedily."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedChat:
    """A conversation.

    Args:
        name: Its name.
        messages: Role and content of every message.
        is_asked: Whether an answer is asked for, which has to end by itself.
    """

    name: str
    messages: tuple[Mapping[str, str], ...]
    is_asked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRecall:
    """A prompt whose continuation is decided by a fact far back in it.

    Args:
        name: Its name.
        prompt: The prompt, with ``{fact}`` where the fact goes.
        facts: The facts, each with the space before it that its continuation has.
    """

    name: str
    prompt: str
    facts: tuple[str, ...]

    def prompts(self) -> dict[str, str]:
        """Prompt by fact."""
        return {fact: self.prompt.replace(_FACT, fact.strip()) for fact in self.facts}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTexts:
    """Everything that is asked."""

    scored: tuple[FixedText, ...]
    prompts: tuple[FixedText, ...]
    chats: tuple[FixedChat, ...]
    recall: FixedRecall


@lru_cache(maxsize=1)
def load_texts() -> FixedTexts:
    """The texts that ship with freehold."""
    text = resources.files("freehold").joinpath("data/verify/texts.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    recall = table["recall"]
    return FixedTexts(
        scored=tuple(FixedText(name=t["name"], text=t["text"]) for t in table["text"]),
        prompts=tuple(FixedText(name=t["name"], text=t["text"]) for t in table["prompt"]),
        chats=tuple(
            FixedChat(name=c["name"], messages=tuple(c["messages"]), is_asked=c["asked"]) for c in table["chat"]
        ),
        recall=FixedRecall(name=recall["name"], prompt=recall["prompt"], facts=tuple(recall["facts"])),
    )
