"""Says which values of a recipe make sense, one rule per key.

Rules look at one value at a time, so that every mistake of a file is found in one reading, also beside a mistake of
another kind. Read :data:`RULES`, then :func:`check_recipe`.

Does not do: whether a model exists, an engine is known or its options are right; those who use them say that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass

from freehold.errors import InputError
from freehold.recipes.secrets import secret_key, secret_value
from freehold.records.recipe import Recipe

__all__ = ["MAX_STREAMS", "PROMPT_CLASSES", "RULES", "Finding", "check_recipe", "find_in_value", "findings_error"]

PROMPT_CLASSES = ("code", "prose")
"""Kinds of prompt the benchmark has."""
_MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One mistake in a recipe.

    Args:
        path: Dotted key, "" for the recipe as a whole.
        what: What is wrong, one clause; never repeats a secret.
        fix: What to write instead.
        line: Line of the file, from 1; None where there is no file.
    """

    path: str
    what: str
    fix: str
    line: int | None = None


Rule = Callable[[object], tuple[str, str] | None]


def _count(minimum: int, unit: str) -> Rule:
    def rule(value: object) -> tuple[str, str] | None:
        assert isinstance(value, int)
        if minimum <= value <= _MAX_COUNT:
            return None
        return f"is {value:,}, and must be between {minimum} and {_MAX_COUNT:,}", f"give a number of {unit}"

    return rule


def _port(value: object) -> tuple[str, str] | None:
    assert isinstance(value, int)
    if 0 <= value <= 65535:
        return None
    return f"is {value:,}, and ports go from 0 to 65,535", "0 takes a free port"


def _text(value: object) -> tuple[str, str] | None:
    assert isinstance(value, str)
    if not value.strip():
        return "is empty", "give a value, or remove the line"
    if value != value.strip() or not value.isprintable():
        return "begins or ends with a space, or holds a control character", "remove it"
    return None


def _several(value: object) -> tuple[str, str] | None:
    assert isinstance(value, tuple)
    if not value:
        return "is an empty list", "name at least one, or remove the line"
    doubled = sorted({str(v) for v in value if value.count(v) > 1})
    if doubled:
        return f"names {', '.join(doubled)} twice", "name each once"
    return None


def _prompt_class(value: object) -> tuple[str, str] | None:
    if value in PROMPT_CLASSES:
        return None
    return f"is {value!r}, which is no kind of prompt", f"kinds are {' and '.join(PROMPT_CLASSES)}"


MAX_STREAMS = 4096  # guess: every stream is a socket of one process, and the ruler was measured up to 256

RULES: Mapping[str, Rule] = {
    "name": _text,
    "model": _text,
    "tokenizer": _text,
    "hardware": _text,
    "engine.name": _text,
    "engine.version": _text,
    "engine.runtime": _text,
    "layout.tp_size": _count(1, "ranks"),
    "layout.pp_size": _count(1, "ranks"),
    "layout.ep_size": _count(1, "ranks"),
    "context": _count(1, "tokens"),
    "sequences": _count(1, "sequences"),
    "overlays[]": _text,
    "pins.*": _text,
    "endpoint.host": _text,
    "endpoint.port": _port,
    "endpoint.api_key_file": _text,
    "verify.reference": _text,
    "bench.requests": _count(1, "requests"),
    "bench.warmup": _count(0, "requests"),
    "bench.output_tokens": _count(1, "tokens"),
    "bench.prompt_classes": _several,
    "bench.prompt_classes[]": _prompt_class,
    "bench.concurrency": _several,
    "bench.concurrency[]": _count(1, "streams"),
}
"""Rule by key; ``[]`` stands for the items of a list, ``*`` for any key of a free mapping."""


def find_in_value(path: str, key: str, value: object) -> Iterator[Finding]:
    """What is wrong with one value of the right type.

    Args:
        path: Its dotted key, for the report.
        key: The key of its rule in :data:`RULES`.
        value: The value.
    """
    if isinstance(value, str):
        kind = secret_value(value)
        if kind is None and secret_key(path.rsplit(".", 1)[-1]):
            kind = "a secret"
        if kind is not None:
            yield Finding(
                path=path,
                what=f"`{path}` holds what looks like {kind}, and a recipe is copied into every run folder",
                fix="write the secret into a file of its own (mode 0600) and name it as `endpoint.api_key_file`; "
                "if it was ever shared, replace it",
            )
            return
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            what = f"`{path}` holds a character that neither a file nor a command line can carry"
            yield Finding(path=path, what=what, fix="remove the escaped NUL or half of a surrogate pair")
            return
    rule = RULES.get(key)
    found = rule(value) if rule is not None else None
    if found is not None:
        yield Finding(path=path, what=f"`{path}` {found[0]}", fix=found[1])


def check_recipe(recipe: Recipe, name: str = "recipe") -> None:
    """Refuse a recipe whose values make no sense, such as one that was changed on the command line.

    Raises:
        InputError: At least one value breaks its rule; all of them are named.
    """
    found = [f for path, key, value in _walk(recipe, "") for f in find_in_value(path, key, value)]
    found = found or list(_find_between(recipe))
    if found:
        raise findings_error(name, found)


def _find_between(recipe: Recipe) -> Iterator[Finding]:
    """Values that are possible alone and not together."""
    if recipe.bench.output_tokens >= recipe.context:
        yield Finding(
            path="bench.output_tokens",
            what=f"`bench.output_tokens` is {recipe.bench.output_tokens:,}, and a sequence has room for "
            f"{recipe.context:,} tokens, prompt included",
            fix="ask for fewer output tokens, or for a longer `context`",
        )
    widest = max(recipe.bench.concurrency, default=1)
    if widest > MAX_STREAMS:
        yield Finding(
            path="bench.concurrency",
            what=f"`bench.concurrency` asks for {widest:,} streams, and one client opens {MAX_STREAMS:,} at most",
            fix="measure with fewer streams at a time",
        )


def _walk(value: object, path: str) -> Iterator[tuple[str, str, object]]:
    if is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            inner = f"{path}.{f.name}" if path else f.name
            item = getattr(value, f.name)
            if is_dataclass(item):
                yield from _walk(item, inner)
            elif isinstance(item, Mapping):
                for key, entry in item.items():
                    yield f"{inner}.{key}", f"{inner}.*", entry
            elif isinstance(item, tuple):
                yield inner, inner, item
                for i, entry in enumerate(item):
                    yield f"{inner}[{i}]", f"{inner}[]", entry
            elif item is not None:
                yield inner, inner, item


def findings_error(name: str, findings: list[Finding]) -> InputError:
    """All mistakes of a recipe as one error, in the order of their lines.

    Args:
        name: What to call the recipe, such as its path.
        findings: At least one.
    """
    ordered = sorted(findings, key=lambda f: f.line or 0)
    facts = {"findings": [{"line": f.line, "key": f.path, "what": f.what, "fix": f.fix} for f in ordered]}
    if len(ordered) == 1:
        only = ordered[0]
        where = f"{name}, line {only.line}" if only.line else name
        return InputError(
            f"{where}: {only.what}",
            why="recipes are read strictly, so that a slip cannot change what runs",
            fix=only.fix,
            facts=facts,
        )
    fixes = list(dict.fromkeys(f"{_place(f)}{f.fix}" for f in ordered))
    return InputError(
        f"{name} has {len(ordered)} mistakes",
        why="\n".join(f"{_place(f)}{f.what}" for f in ordered),
        fix="\n".join(fixes),
        facts=facts,
    )


def _place(finding: Finding) -> str:
    return f"line {finding.line}: " if finding.line else ""
