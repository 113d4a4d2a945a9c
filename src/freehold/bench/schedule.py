"""In which order are the requests sent? Arms apart, their classes taking turns, so that drift hits all alike.

A machine warms up and slows down. With two classes the order is A B B A, block by block, and a drift that grows
steadily then costs both the same. Each concurrency is an experiment of its own. Read :func:`plan_blocks`.

Does not do: sending (``bench/run.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from freehold.bench.prompts import load_prompts
from freehold.errors import InputError
from freehold.records.recipe import BenchRequest

__all__ = ["Block", "check_request", "plan_blocks"]

ROUNDS: Final = 4
"""Turns of each class: an even number, so that forward and backward turns are as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Requests that run together.

    Args:
        prompt_class: Their class.
        concurrency: Streams in flight.
        number: Which block of its arm, from 0; the warm-up is 0 too.
        count: How many requests.
        is_warmup: Whether they are dropped.
    """

    prompt_class: str
    concurrency: int
    number: int
    count: int
    is_warmup: bool


def check_request(request: BenchRequest) -> None:
    """Refuse a request that cannot be measured.

    Raises:
        InputError: A count is out of range, a list is empty or names something twice, or a class is unknown.
    """
    for name, value, least in (
        ("requests", request.requests, 1),
        ("warmup", request.warmup, 0),
        ("output_tokens", request.output_tokens, 1),
    ):
        if value < least:
            raise InputError(
                f"`bench: {name}` is {value}", why=f"it is at least {least}", fix=f"write `{name}: {max(least, 15)}`"
            )
    for name, values in (("concurrency", request.concurrency), ("prompt_classes", request.prompt_classes)):
        if not values or len(set(values)) != len(values):
            raise InputError(
                f"`bench: {name}` is {list(values)}",
                why="each entry is one arm: there has to be one, and none twice",
                fix=f"write for example `{name}: {'[1]' if name == 'concurrency' else '[code, prose]'}`",
            )
    if min(request.concurrency) < 1:
        raise InputError(
            f"`bench: concurrency` holds {min(request.concurrency)}",
            why="at least one stream is in flight",
            fix="write for example `concurrency: [1, 4]`",
        )
    for prompt_class in request.prompt_classes:
        load_prompts(prompt_class)


def plan_blocks(request: BenchRequest) -> tuple[Block, ...]:
    """All blocks in the order they run.

    For every concurrency first the warm-up of each class, then the classes in turns: forward, backward, forward,
    backward. An arm of several streams gets whole waves: its requests are rounded up to a multiple of the concurrency.

    Raises:
        InputError: The request cannot be measured.
    """
    check_request(request)
    blocks: list[Block] = []
    for concurrency in request.concurrency:
        if request.warmup:
            blocks += [
                Block(
                    prompt_class=prompt_class,
                    concurrency=concurrency,
                    number=0,
                    count=max(request.warmup, concurrency if concurrency > 1 else 0),
                    is_warmup=True,
                )
                for prompt_class in request.prompt_classes
            ]
        waves = -(-request.requests // concurrency)
        for number, share in enumerate(_shares(waves)):
            order = request.prompt_classes if number % 2 == 0 else request.prompt_classes[::-1]
            blocks += [
                Block(
                    prompt_class=prompt_class,
                    concurrency=concurrency,
                    number=number,
                    count=share * concurrency,
                    is_warmup=False,
                )
                for prompt_class in order
            ]
    return tuple(blocks)


def _shares(waves: int) -> list[int]:
    """So many waves in as many turns as there are, at most :data:`ROUNDS`, as even as possible."""
    rounds = min(ROUNDS, waves)
    return [waves // rounds + (turn < waves % rounds) for turn in range(rounds)]
