"""What does an independent engine answer for a checkpoint? The stored reference, and where to find one.

A reference is bound to a checkpoint by its sha256 and says which engine made it, how, and from which weights. It
carries its own copy of the texts. Read :class:`Reference`, then :func:`open_reference`.

Does not do: making one (``verify/make_reference.py``) or comparing with it (``verify/fingerprint.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Literal

from freehold.engines.interface import TokenScore
from freehold.errors import InputError
from freehold.records.base import decode, encode, record, sha256_hex
from freehold.records.folder import read_limited, write_whole
from freehold.records.verification import ReferenceOrigin

__all__ = [
    "Reference",
    "ReferenceChat",
    "ReferenceText",
    "embedded_references",
    "find_reference",
    "open_reference",
    "origin_of",
    "write_reference",
]

_PREFIX = "embedded:"
_FOLDER = "data/verify/references"
_MAX_BYTES = 64 * 2**20  # guess: a thousand times the embedded one


@record
class ReferenceText:
    """One scored text; entry ``i`` of every list is about token ``i + 1``, given all before it.

    Args:
        name: Its name.
        text: The text itself.
        token_ids: Its tokens, the reference's prefix not included.
        has_special: Whether special tokens are among them, so that no server makes them from the text.
        logprobs: Log-probability of each token but the first; None where only a bound is known.
        upper_bounds: What it cannot exceed, where it is not known.
        top_token_ids: The most likely token there.
        top_logprobs: Its log-probability.
        runner_up_logprobs: That of the second most likely one.
    """

    name: str
    text: str
    token_ids: tuple[int, ...]
    has_special: bool = False
    logprobs: tuple[float | None, ...]
    upper_bounds: tuple[float | None, ...] = ()
    top_token_ids: tuple[int | None, ...]
    top_logprobs: tuple[float | None, ...]
    runner_up_logprobs: tuple[float | None, ...]

    def __post_init__(self) -> None:
        lists = (self.logprobs, self.top_token_ids, self.top_logprobs, self.runner_up_logprobs)
        if any(len(values) != len(self.logprobs) for values in lists):
            raise ValueError(f"lists of text {self.name!r} differ in length")
        if self.upper_bounds and len(self.upper_bounds) != len(self.logprobs):
            raise ValueError(f"bounds of text {self.name!r} differ in number from its positions")
        if not self.logprobs:
            raise ValueError(f"text {self.name!r} has no scored position")

    def scores(self) -> list[TokenScore]:
        """The lists as one score per position."""
        bounds = self.upper_bounds or (None,) * len(self.logprobs)
        columns = zip(
            self.logprobs, bounds, self.top_token_ids, self.top_logprobs, self.runner_up_logprobs, strict=True
        )
        return [
            TokenScore(logprob=own, upper_bound=bound, top_token_id=top_id, top_logprob=top, runner_up_logprob=second)
            for own, bound, top_id, top, second in columns
        ]


@record
class ReferenceChat:
    """One conversation as the checkpoint's own template renders it, and how the reference engine answers.

    Args:
        name: Its name.
        messages: Role and content of every message.
        is_asked: Whether an answer is asked for.
        rendered: The prompt.
        token_ids: Its tokens, special ones included.
        answer_text: The greedy answer; shown, never compared.
        answer_tokens: Its length, the ending token included.
        finish_reason: ``stop`` or ``length``.
    """

    name: str
    messages: tuple[Mapping[str, str], ...]
    is_asked: bool
    rendered: str
    token_ids: tuple[int, ...]
    answer_text: str
    answer_tokens: int
    finish_reason: str


@record
class Reference:
    """What an independent engine computes with the weights of one checkpoint.

    Args:
        model: The checkpoint in words.
        checkpoint_sha256: Hash of the checkpoint file (not of the weights expanded from it).
        chat_template_sha256: Hash of the chat template inside it.
        engine: Engine that made the reference, by the name of its dialect.
        engine_version: Its version.
        dtype: Precision it computed in.
        weights: How its weights were made from the checkpoint.
        command: The commands that make this file again.
        date: UTC date and time.
        prefix_token_ids: Tokens put before every text that is no conversation, such as a begin-of-sequence token.
        texts: Scored texts.
        chats: Rendered conversations.
    """

    schema: Literal["freehold.reference/1"] = "freehold.reference/1"
    model: str
    checkpoint_sha256: str
    chat_template_sha256: str | None
    engine: str
    engine_version: str
    dtype: str
    weights: str
    command: str
    date: str
    prefix_token_ids: tuple[int, ...] = ()
    texts: tuple[ReferenceText, ...]
    chats: tuple[ReferenceChat, ...]

    def __post_init__(self) -> None:
        for text in self.texts:
            if len(text.logprobs) != len(self.scored_token_ids(text)) - 1:
                raise ValueError(f"text {text.name!r} has {len(text.logprobs)} scores for {len(text.token_ids)} tokens")
        if not self.texts:
            raise ValueError("a reference without texts")
        if self.chats and not any(chat.is_asked for chat in self.chats):
            raise ValueError("no conversation of the reference is asked")

    def scored_token_ids(self, text: ReferenceText) -> tuple[int, ...]:
        """What is given to an engine to score a text: the prefix and its tokens; a conversation begins by itself."""
        return text.token_ids if text.has_special else (*self.prefix_token_ids, *text.token_ids)


def embedded_references() -> tuple[str, ...]:
    """Names of the references that ship with freehold."""
    folder = resources.files("freehold").joinpath(_FOLDER)
    return tuple(sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")))


def open_reference(source: str) -> Reference:
    """Read a reference.

    Args:
        source: Path of a file, or ``embedded:NAME`` for one that ships with freehold.

    Raises:
        InputError: There is none, or it is no reference.
    """
    if source.startswith(_PREFIX):
        name = source.removeprefix(_PREFIX)
        if name not in embedded_references():
            raise InputError(
                f"no reference {name!r} ships with freehold",
                why=f"there is {', '.join(embedded_references())}",
                fix="name one of them, or make one: `python -m freehold.verify.make_reference --help`",
            )
        data = resources.files("freehold").joinpath(f"{_FOLDER}/{name}.json").read_bytes()
        return decode(Reference, data, name=source)
    try:
        data = read_limited(Path(source), _MAX_BYTES)
    except OSError as error:
        raise InputError(
            f"cannot read the reference {source}",
            why=error.strerror or str(error),
            fix="name a file that `python -m freehold.verify.make_reference` wrote, or `embedded:NAME`",
        ) from None
    return decode(Reference, data, name=source)


def find_reference(checkpoint_sha256: str) -> str | None:
    """Name, as :func:`open_reference` takes it, of the reference that ships for a checkpoint; None without one."""
    for name in embedded_references():
        source = f"{_PREFIX}{name}"
        if open_reference(source).checkpoint_sha256 == checkpoint_sha256:
            return source
    return None


def write_reference(reference: Reference, path: Path) -> None:
    """Write a reference whole or not at all.

    Raises:
        PrerequisiteError: It cannot be written.
    """
    write_whole(path, encode(reference))


def origin_of(reference: Reference) -> ReferenceOrigin:
    """What a verification writes down about the reference it used."""
    return ReferenceOrigin(
        sha256=sha256_hex(encode(reference)),
        checkpoint_sha256=reference.checkpoint_sha256,
        engine=f"{reference.engine} {reference.engine_version}, {reference.dtype}, {reference.weights}",
        command=reference.command,
        date=reference.date,
    )
