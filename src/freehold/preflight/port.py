"""Is the port free, and if not, whose is it?

A process that holds the port is named so that the user can judge; nothing is ended.

Does not do: choosing a port.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from freehold.errors import PrerequisiteError
from freehold.preflight.question import Question
from freehold.recipes.secrets import secret_key, secret_value
from freehold.records.verdict import Outcome, Verdict
from freehold.world import ProcessFacts

__all__ = ["check_port", "describe_process"]

_MAX_SHOWN = 160
_HIDDEN = "(hidden)"


def check_port(question: Question) -> Verdict:
    """Bind the address for a moment; where that fails, say who listens there."""
    endpoint = question.recipe.endpoint
    place = f"{endpoint.host} port {endpoint.port}" if endpoint.port else f"{endpoint.host}, any free port"
    holder = question.world.listener(endpoint.port) if endpoint.port else None
    if holder is not None:
        return Verdict(
            check="port",
            outcome=Outcome.FAIL,
            observation=f"port {endpoint.port} is held by {describe_process(holder)}",
            why="two servers cannot share a port, and answers would come from the wrong one",
            remedy=f"if it is yours and not needed, end it with `kill {holder.pid}` (if freehold started it, with "
            "`freehold stop`), or set `endpoint.port: 0` for a free port",
        )
    try:
        number = question.world.bindable_port(endpoint.host, endpoint.port)
    except PrerequisiteError as error:
        return Verdict(check="port", outcome=Outcome.FAIL, observation=error.what, why=error.why, remedy=error.fix)
    return Verdict(check="port", outcome=Outcome.PASS, observation=f"{place}: can be bound, {number} just now")


def describe_process(process: ProcessFacts) -> str:
    """A process as ``pid 123 (python -m http.server)``: paths shortened to their last part, secrets hidden."""
    words = " ".join(_shown(process.argv))
    shown = words if len(words) <= _MAX_SHOWN else f"{words[: _MAX_SHOWN - 1]}…"
    return f"pid {process.pid} ({shown})" if shown else f"pid {process.pid}"


def _shown(argv: Sequence[str]) -> Iterator[str]:
    is_secret_next = False
    for word in argv:
        name, mark, _ = word.partition("=")
        is_key = secret_key(name.lstrip("-"))
        if is_secret_next or (secret_value(word) is not None and not mark):
            yield _HIDDEN
        elif mark and (is_key or secret_value(word) is not None):
            yield f"{name}={_HIDDEN}"
        else:
            yield PurePath(word).name if "/" in word else word
        is_secret_next = is_key and not mark and word.startswith("-")
