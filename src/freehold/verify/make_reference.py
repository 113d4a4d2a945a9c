"""Makes the reference of a checkpoint from an engine that is not the one under test.

    python -m freehold.verify.make_reference --url http://127.0.0.1:8000/v1 --checkpoint MODEL.gguf \
        --dtype float32 --weights "how they were made" --command "what was run" -o REFERENCE.json

The engine is served beforehand, with weights expanded from the checkpoint (``tools/gguf_to_safetensors.py``). Read
:func:`make_reference`.

Does not do: serving an engine or expanding weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from freehold.client.api import Endpoint
from freehold.client.openai import complete
from freehold.engines.interface import Dialect, TokenScore
from freehold.errors import EngineError, FreeholdError
from freehold.progress import Listener, Progress, ignore
from freehold.verify.limits import load_limits
from freehold.verify.reference import Reference, ReferenceChat, ReferenceText, write_reference
from freehold.verify.texts import load_texts
from freehold.world import LocalWorld, World, utc_text

__all__ = ["main", "make_reference"]

_DIGITS = 6  # of a log-probability; float32 carries about as many


def make_reference(
    endpoint: Endpoint,
    dialect: Dialect,
    world: World,
    *,
    model: str,
    checkpoint_sha256: str,
    chat_template_sha256: str | None,
    dtype: str,
    weights: str,
    command: str,
    prefix_token_ids: Sequence[int] = (),
    listener: Listener = ignore,
) -> Reference:
    """Ask an engine for everything a reference holds.

    Besides the fixed texts it scores one conversation with the engine's own answer, so that special tokens and the
    ending token are among what is compared.

    Args:
        endpoint: The server of the trusted engine.
        dialect: How to ask it; it has to tokenize, score and render.
        world: Gives HTTP and the clock.
        model: The checkpoint in words.
        checkpoint_sha256: Hash of the checkpoint file the weights were made from.
        chat_template_sha256: Hash of the chat template inside it.
        dtype: Precision the engine computes in.
        weights: How the weights were made.
        command: Commands that make this reference again.
        prefix_token_ids: Tokens to put before every text (a begin-of-sequence token, where the model wants one).
        listener: Is told about progress.

    Raises:
        EngineError: The engine cannot tokenize, score or render, or failed at it.
        PrerequisiteError: The server does not answer.
    """
    texts = load_texts()
    version = dialect.recognise(world, endpoint)
    if version is None:
        raise _cannot("be recognised", dialect)
    scored: list[ReferenceText] = []
    for text in texts.scored:
        listener(Progress(stage="reference", message=f"scoring {text.name}", done=len(scored), unit="texts"))
        tokens = dialect.tokenize(world, endpoint, text.text)
        if not tokens:
            raise _cannot("tokenize", dialect)
        scores = dialect.score(world, endpoint, (*prefix_token_ids, *tokens))
        if scores is None:
            raise _cannot("score given tokens", dialect)
        scored.append(_as_text(text.name, text.text, tokens, scores))
    chats: list[ReferenceChat] = []
    for chat in texts.chats:
        listener(Progress(stage="reference", message=f"asking {chat.name}", done=len(chats), unit="conversations"))
        made, answer_ids = _ask(endpoint, dialect, world, chat.name, chat.messages, chat.is_asked)
        chats.append(made)
        if len(scored) == len(texts.scored):
            tokens = [*made.token_ids, *answer_ids]
            scores = dialect.score(world, endpoint, tokens)
            if scores is None:
                raise _cannot("score given tokens", dialect)
            whole = _as_text("conversation", made.rendered + made.answer_text, tokens, scores)
            scored.append(replace(whole, has_special=True))
    return Reference(
        model=model,
        checkpoint_sha256=checkpoint_sha256,
        chat_template_sha256=chat_template_sha256,
        engine=dialect.name,
        engine_version=version,
        dtype=dtype,
        weights=weights,
        command=command,
        date=utc_text(world.now()),
        prefix_token_ids=tuple(prefix_token_ids),
        texts=tuple(scored),
        chats=tuple(chats),
    )


def _cannot(what: str, dialect: Dialect) -> EngineError:
    return EngineError(
        f"the {dialect.name} server cannot {what}",
        why="a reference needs token ids, prompt log-probabilities and rendered conversations",
        fix="serve the weights with an engine that gives them, such as vLLM",
    )


def _ask(
    endpoint: Endpoint,
    dialect: Dialect,
    world: World,
    name: str,
    messages: Sequence[Mapping[str, str]],
    is_asked: bool,
) -> tuple[ReferenceChat, tuple[int, ...]]:
    """Render a conversation and answer it; the answer's tokens come from the rendered prompt."""
    rendered = dialect.render_chat(world, endpoint, messages)
    if rendered is None:
        raise _cannot("render a conversation", dialect)
    limit = load_limits().answer_tokens
    fields = dialect.generation_fields(output_tokens=limit, is_fixed_length=False)
    payload = {"messages": [dict(m) for m in messages], "temperature": 0, **fields}
    answer = complete(world, endpoint, "/chat/completions", payload)
    tokens = _special_tokens(dialect, world, endpoint, rendered)
    if answer.usage.prompt_tokens != len(tokens):
        raise EngineError(
            f"the chat route counts {answer.usage.prompt_tokens} tokens for {name}, the rendering has {len(tokens)}",
            why="the engine's two ways to read a conversation disagree, so it is no reference",
            fix="check the engine's chat template and tokenizer files",
        )
    generated = dialect.generate(world, endpoint, tokens, output_tokens=limit)
    if generated.token_ids is None:
        raise _cannot("give the tokens of an answer", dialect)
    chat = ReferenceChat(
        name=name,
        messages=tuple(dict(m) for m in messages),
        is_asked=is_asked,
        rendered=rendered,
        token_ids=tuple(tokens),
        answer_text=answer.text,
        answer_tokens=answer.usage.completion_tokens or len(generated.token_ids),
        finish_reason=answer.finish_reason or "",
    )
    return chat, generated.token_ids


def _special_tokens(dialect: Dialect, world: World, endpoint: Endpoint, rendered: str) -> list[int]:
    """Tokens of a rendered prompt, special tokens recognised; the engine has to turn them into special tokens."""
    tokens = dialect.tokenize(world, endpoint, rendered)
    if not tokens:
        raise _cannot("tokenize", dialect)
    return tokens


def _as_text(name: str, text: str, tokens: Sequence[int], scores: Sequence[TokenScore]) -> ReferenceText:
    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, _DIGITS)

    bounds = tuple(rounded(s.upper_bound) for s in scores)
    return ReferenceText(
        name=name,
        text=text,
        token_ids=tuple(tokens),
        logprobs=tuple(rounded(s.logprob) for s in scores),
        upper_bounds=bounds if any(b is not None for b in bounds) else (),
        top_token_ids=tuple(s.top_token_id for s in scores),
        top_logprobs=tuple(rounded(s.top_logprob) for s in scores),
        runner_up_logprobs=tuple(rounded(s.runner_up_logprob) for s in scores),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit status."""
    from freehold.client.openai import open_endpoint
    from freehold.engines.registry import recognise
    from freehold.models.hashing import hash_checkpoint
    from freehold.models.inventory import read_inventory

    parser = argparse.ArgumentParser(prog="python -m freehold.verify.make_reference", allow_abbrev=False)
    parser.add_argument("--url", required=True, help="address of the trusted engine")
    parser.add_argument("--checkpoint", required=True, type=Path, help="the checkpoint its weights were made from")
    parser.add_argument("--model", help="the checkpoint in words; default: its file name")
    parser.add_argument("--dtype", required=True, help="precision the engine computes in, such as float32")
    parser.add_argument("--weights", required=True, help="how the weights were made from the checkpoint")
    parser.add_argument("--command", required=True, help="commands that make this reference again")
    parser.add_argument("--prefix-token-id", type=int, action="append", default=[], help="token before every text")
    parser.add_argument("-o", "--output", required=True, type=Path, help="file to write")
    given = parser.parse_args(argv)
    world = LocalWorld()
    try:
        inventory = hash_checkpoint(read_inventory(given.checkpoint), given.checkpoint)
        endpoint = open_endpoint(world, given.url)
        made = make_reference(
            endpoint,
            recognise(world, endpoint).dialect,
            world,
            model=given.model or given.checkpoint.name,
            checkpoint_sha256=inventory.checkpoint_sha256 or "",
            chat_template_sha256=inventory.architecture.chat_template_sha256,
            dtype=given.dtype,
            weights=given.weights,
            command=given.command,
            prefix_token_ids=given.prefix_token_id,
            listener=lambda event: print(event.message, file=sys.stderr),
        )
        write_reference(made, given.output)
    except FreeholdError as error:
        print(f"error: {error.what}\n  why: {error.why}\n  try: {error.fix}", file=sys.stderr)
        return error.exit_code
    num = sum(len(text.logprobs) for text in made.texts)
    print(f"{given.output}: {num} log-probabilities by {made.engine} {made.engine_version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
