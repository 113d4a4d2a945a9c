"""Finds an engine by its name in a recipe, and recognises the kind of a server that is already running.

Read :func:`engine` and :func:`recognise`. Engines and dialects are imported when they are asked for.

Does not do: anything an engine does; this is the list of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from freehold.client.api import Endpoint
from freehold.engines.interface import Dialect, Engine
from freehold.errors import InputError
from freehold.world import World

__all__ = ["Recognised", "dialect_named", "dialects", "engine", "engine_names", "recognise"]


def _llama_cpp() -> Engine:
    from freehold.engines.llama_cpp.engine import LlamaCppEngine

    return LlamaCppEngine()


_ENGINES: dict[str, Callable[[], Engine]] = {"llama.cpp": _llama_cpp}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What kind of server answers.

    Args:
        dialect: How to talk to it.
        version: As it says itself; None where it does not.
    """

    dialect: Dialect
    version: str | None


def engine_names() -> tuple[str, ...]:
    """Names that a recipe may give as ``engine.name``."""
    return tuple(_ENGINES)


def engine(name: str) -> Engine:
    """The engine of a name.

    Raises:
        InputError: There is no such engine.
    """
    make = _ENGINES.get(name)
    if make is None:
        near = difflib.get_close_matches(name.lower(), _ENGINES, n=1, cutoff=0.4)
        raise InputError(
            f"no engine is called {name!r}",
            why=f"engines that freehold can start: {', '.join(_ENGINES)}",
            fix=f"write `engine.name: {near[0] if near else next(iter(_ENGINES))}`",
            facts={"engine": name},
        )
    return make()


def dialects() -> tuple[Dialect, ...]:
    """Every dialect, the particular ones first; the last one fits any OpenAI-compatible server."""
    from freehold.engines.llama_cpp.dialect import LlamaCppDialect
    from freehold.engines.openai.dialect import OpenAIDialect
    from freehold.engines.vllm.dialect import VllmDialect

    return (LlamaCppDialect(), VllmDialect(), OpenAIDialect())


def dialect_named(name: str) -> Dialect:
    """The dialect of a name, as a deployment's record has it in ``engine``.

    Raises:
        InputError: There is no such dialect.
    """
    for dialect in dialects():
        if dialect.name == name:
            return dialect
    names = ", ".join(d.name for d in dialects())
    raise InputError(
        f"no dialect is called {name!r}",
        why=f"servers that freehold can talk to: {names}",
        fix="use the version of freehold that wrote the record",
        facts={"dialect": name},
    )


def recognise(world: World, endpoint: Endpoint) -> Recognised:
    """Find out what kind of server answers at an address.

    Args:
        world: For the requests.
        endpoint: Where to ask.

    Returns:
        The first dialect that knows the server, else the general one without a version.
    """
    known = dialects()
    for dialect in known:
        version = dialect.recognise(world, endpoint)
        if version is not None:
            return Recognised(dialect=dialect, version=version or None)
    return Recognised(dialect=known[-1], version=None)
