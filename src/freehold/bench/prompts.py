"""What does the benchmark ask? Prompts of one class, each made unique in its very first characters.

A server that keeps prompts in a cache finds them by their beginning, block by block. Each prompt therefore starts with
random characters, so that not even the first block is shared. Read :func:`make_prompts`.

Does not do: sending (``bench/run.py``).
"""

from __future__ import annotations

import random
import string
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final

from freehold.errors import InputError
from freehold.records.base import sha256_hex

__all__ = ["Prompt", "PromptSet", "load_prompts", "make_prompts", "prompt_classes"]

_NONCE_LETTERS: Final = string.ascii_lowercase + string.digits
NONCE_LENGTH: Final = 16
"""36^16 possibilities; a tokenizer makes 5 to 16 tokens of it, and the first differ already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """The prompts of one class.

    Args:
        name: ``code`` or ``prose``.
        texts: The texts, in the file's order.
        sha256: Hash of all of them, so that two results can be compared.
    """

    name: str
    texts: tuple[str, ...]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt to send.

    Args:
        label: Class and position of the text, such as ``code-07``.
        nonce: The random beginning.
        text: All of it, nonce first.
    """

    label: str
    nonce: str
    text: str


@lru_cache(maxsize=1)
def _document() -> dict[str, tuple[str, ...]]:
    data = tomllib.loads(files("freehold").joinpath("data/prompts.toml").read_text(encoding="utf-8"))
    return {name: tuple(value["prompts"]) for name, value in data.items() if isinstance(value, dict)}


def prompt_classes() -> tuple[str, ...]:
    """The classes there are."""
    return tuple(_document())


@lru_cache(maxsize=8)
def load_prompts(name: str) -> PromptSet:
    """The prompts of a class.

    Raises:
        InputError: There is no such class.
    """
    texts = _document().get(name)
    if texts is None:
        known = ", ".join(prompt_classes())
        raise InputError(
            f"an unknown class of prompts: {name!r}",
            why=f"freehold has {known}",
            fix=f"write one or more of {known} under `bench: prompt_classes`",
        )
    return PromptSet(name=name, texts=texts, sha256=sha256_hex("\0".join(texts).encode()))


def make_prompts(name: str, count: int, generator: random.Random) -> tuple[Prompt, ...]:
    """Prompts of a class, each text as often as any other (or once more), in a random order, no two alike.

    Args:
        name: The class.
        count: How many.
        generator: Source of order and nonces; the same seed gives the same prompts.

    Raises:
        InputError: There is no such class.
    """
    texts = load_prompts(name).texts
    prompts: list[Prompt] = []
    order: list[int] = []
    for _ in range(count):
        if not order:
            order = list(range(len(texts)))
            generator.shuffle(order)
        position = order.pop()
        nonce = "".join(generator.choices(_NONCE_LETTERS, k=NONCE_LENGTH))
        text = f"{nonce}\n{texts[position].strip()}"
        prompts.append(Prompt(label=f"{name}-{position + 1:02d}", nonce=nonce, text=text))
    return tuple(prompts)
