"""Is the engine there, in the version the recipe pins, and does it know the recipe's options?

Does not do: starting it.
"""

from __future__ import annotations

from freehold.engines.interface import Engine
from freehold.errors import InputError
from freehold.preflight.question import Question
from freehold.records.verdict import Outcome, Verdict

__all__ = ["check_engine", "check_engine_options"]

_EMBEDDED = "embedded"


def check_engine(question: Question) -> Verdict:
    """Ask the engine which version would start, and compare it with the pin."""
    request, engine = question.recipe.engine, question.engine
    installed = engine.installed_version(question.recipe, question.world)
    is_embedded = request.runtime == _EMBEDDED
    place = "as a Python package" if is_embedded else "as the program the recipe names"
    if installed is None:
        return Verdict(
            check="engine",
            outcome=Outcome.FAIL,
            observation=f"{engine.name} is not installed {place}",
            why="there is nothing to start",
            remedy=_install(engine)
            if is_embedded
            else "check `engine.runtime`, or leave it out to use the embedded runtime",
        )
    if request.version is not None and request.version != installed:
        return Verdict(
            check="engine",
            outcome=Outcome.FAIL,
            observation=f"{engine.name} {installed} is installed, the recipe pins {request.version}",
            why="results of another version are not those of the recipe",
            remedy=f'install {request.version}, or set `engine.version: "{installed}"` and verify again',
        )
    pinned = "as pinned" if request.version is not None else "not pinned; the version is recorded"
    return Verdict(check="engine", outcome=Outcome.PASS, observation=f"{engine.name} {installed}, {place}; {pinned}")


def check_engine_options(question: Question) -> Verdict | None:
    """Ask the engine whether it knows the recipe's options."""
    count = len(question.recipe.options)
    try:
        question.engine.check_options(question.recipe)
    except InputError as error:
        return Verdict(
            check="engine_options", outcome=Outcome.FAIL, observation=error.what, why=error.why, remedy=error.fix
        )
    if not count:
        return None
    return Verdict(
        check="engine_options",
        outcome=Outcome.PASS,
        observation=f"{question.engine.name} knows the {count} option{'s' if count > 1 else ''} of the recipe",
    )


def _install(engine: Engine) -> str:
    """Extras are named as their engine, letters and digits only."""
    extra = "".join(c for c in engine.name if c.isalnum())
    return f"in freehold's checkout, `pip install '.[{extra}]'`"
