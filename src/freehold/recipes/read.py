"""Reads a recipe file into a :class:`~freehold.records.recipe.Recipe`, strictly, and reports every mistake at once.

An unknown key, a value of another type, a key given twice, or a value that YAML readers disagree on is an error with
its line, never a guess. Read :func:`read_recipe`, then :func:`parse_recipe`.

Does not do: writing (``recipes/write.py``), or judging single values (``recipes/rules.py``).
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from freehold.errors import InputError, PrerequisiteError
from freehold.recipes.rules import Finding, find_in_value, findings_error
from freehold.recipes.scalars import AmbiguousValueError, is_plain_text, resolve_plain
from freehold.recipes.secrets import secret_value
from freehold.recipes.write import dump_recipe
from freehold.records.recipe import Recipe

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node

__all__ = ["EMBEDDED", "MAX_RECIPE_BYTES", "dump_recipe", "embedded_recipe", "parse_recipe", "read_recipe"]

EMBEDDED = "smollm2-135m-instruct"
"""Name of the recipe that ships with freehold."""
MAX_RECIPE_BYTES = 256 * 1024
"""A recipe is a page of text; anything longer is another file."""
_MAX_DEPTH = 8
_MISSING = object()


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a file.

    Args:
        path: A YAML file in UTF-8.

    Raises:
        InputError: There is no such file, it is no recipe, or the recipe has mistakes; all are named.
        PrerequisiteError: It cannot be read.
    """
    try:
        if path.is_dir():
            raise InputError(
                f"{path} is a folder, not a recipe",
                why="a recipe is one YAML file",
                fix=_suggest_file(path),
            )
        with path.open("rb") as source:
            data = source.read(MAX_RECIPE_BYTES + 1)
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist",
            why="a recipe is a YAML file",
            fix="check the spelling, or leave it out to use the embedded recipe",
        ) from None
    except (OSError, ValueError) as error:
        raise PrerequisiteError(
            f"cannot read {path}",
            why=getattr(error, "strerror", None) or str(error),
            fix="name a file that you may read",
        ) from None
    if len(data) > MAX_RECIPE_BYTES:
        raise InputError(
            f"{path} is no recipe: it is longer than {MAX_RECIPE_BYTES // 1024} KiB",
            why="a recipe is a page of text",
            fix="to serve a checkpoint, name it as `model` in a recipe",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is no UTF-8 text: byte {error.start:,} is 0x{data[error.start]:02x}",
            why="recipes are UTF-8",
            fix="save it as UTF-8",
        ) from None
    return parse_recipe(text, str(path))


def _suggest_file(folder: Path) -> str:
    found = sorted(p.name for p in folder.iterdir() if p.suffix in {".yaml", ".yml"})
    return f"name the file, such as `{folder / found[0]}`" if found else "name the YAML file itself"


@lru_cache(maxsize=1)
def embedded_recipe() -> Recipe:
    """The recipe that ships with freehold: a small real model that any machine can serve."""
    name = f"{EMBEDDED}.yaml"
    return parse_recipe((files("freehold") / "data" / "recipes" / name).read_text(encoding="utf-8"), name)


def parse_recipe(text: str, name: str) -> Recipe:
    """Read a recipe from YAML text.

    Args:
        text: The YAML.
        name: What to call it in an error, such as its path.

    Raises:
        InputError: It is no YAML, or has mistakes; all are named, with their lines.
    """
    import yaml

    try:
        _check_events(text, name)
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise InputError(
            f"{name}{where}: no YAML",
            why=_clause(getattr(error, "problem", None) or str(error)),
            fix="check indentation, colons and quotes there; tabs cannot indent",
        ) from None
    if node is None:
        raise InputError(
            f"{name} is empty",
            why="a recipe says at least what to serve and with which engine",
            fix="start from `freehold: 1`, `name`, `model` and `engine`",
        )
    reading = _Reading()
    recipe = reading.read_record(Recipe, node, "")
    if reading.findings or not isinstance(recipe, Recipe):
        raise findings_error(name, reading.findings)
    return recipe


def _check_events(text: str, name: str) -> None:
    """Refuse what no recipe needs and what could grow without bound: anchors, aliases, tags, depth, documents."""
    import yaml

    depth = documents = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark is not None else None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise findings_error(
                name,
                [Finding(path="", what="an anchor or alias", fix="write the value out; recipes have none", line=line)],
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise findings_error(
                name,
                [Finding(path="", what=f"a tag: {tag}", fix="remove it; recipes hold plain values", line=line)],
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise findings_error(
                name,
                [Finding(path="", what=f"nested deeper than {_MAX_DEPTH}", fix="recipes are flat", line=line)],
            )
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise findings_error(
                name, [Finding(path="", what="a second document", fix="one file holds one recipe", line=line)]
            )


class _Reading:
    """One pass over a file that collects mistakes and goes on."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def report(self, path: str, node: Node, what: str, fix: str) -> Any:
        self.findings.append(Finding(path=path, what=what, fix=fix, line=node.start_mark.line + 1))
        return _MISSING

    def read_record(self, cls: type[Any], node: Node, path: str) -> Any:
        from yaml.nodes import MappingNode

        if not isinstance(node, MappingNode):
            if not path:
                return self.report(
                    "", node, f"a recipe is a mapping, this is {_name(node)}", "write `key: value` lines"
                )
            return self.report(path, node, f"`{path}` is {_name(node)}, expected a mapping", _example(cls, path))
        hints = get_type_hints(cls)
        known: dict[str, Field[Any]] = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for key, key_node, value_node in self._entries(node, path):
            inner = f"{path}.{key}" if path else key
            if key not in known:
                self.report(inner, key_node, f"unknown key `{inner}`", _suggest_key(key, list(known)))
                continue
            values[key] = self.read_value(hints[key], value_node, inner, inner)
        for key, f in known.items():
            is_needed = f.default is MISSING and f.default_factory is MISSING
            if key not in values and (is_needed or key == "freehold"):
                inner = f"{path}.{key}" if path else key
                self.report(inner, node, f"`{inner}` is missing", f"add `{inner.split('.')[-1]}: {_sample(key)}`")
                values[key] = _MISSING
        return _MISSING if any(v is _MISSING for v in values.values()) else cls(**values)

    def _entries(self, node: MappingNode, path: str) -> Iterator[tuple[str, Node, Node]]:
        from yaml.nodes import ScalarNode

        first_line: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.report(path, key_node, f"a key is {_name(key_node)}, expected a word", "write `key: value`")
                continue
            key = key_node.value
            line = key_node.start_mark.line + 1
            if not key.isprintable() or not key or (key_node.style is None and not is_plain_text(key, key_node.tag)):
                self.report(path, key_node, f"the key {_quoted(key)} is no plain word", "use letters, or quote it")
                continue
            if key in first_line:
                self.report(
                    f"{path}.{key}" if path else key,
                    key_node,
                    f"`{key}` stands here and in line {first_line[key]}",
                    "keep one of the two",
                )
                continue
            first_line[key] = line
            yield key, key_node, value_node

    def read_value(self, hint: Any, node: Node, path: str, rule: str) -> Any:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            members = [a for a in arguments if a is not types.NoneType]
            if len(members) < len(arguments) and _is_null(node):
                return None
            if len(members) == 1:
                return self.read_value(members[0], node, path, rule)
            return self._scalar(tuple(members), node, path, rule)
        if is_dataclass(hint):
            return self.read_record(hint, node, path) if isinstance(hint, type) else _MISSING
        if origin is tuple:
            return self._sequence(arguments[0], node, path, rule)
        if origin is not None and origin is not Literal and issubclass(origin, Mapping):
            return self._mapping(arguments[1], node, path, rule)
        if origin is Literal:
            return self._version(arguments[0], node, path)
        return self._scalar((hint,), node, path, rule)

    def _sequence(self, item: Any, node: Node, path: str, rule: str) -> Any:
        from yaml.nodes import SequenceNode

        if not isinstance(node, SequenceNode):
            return self.report(
                path, node, f"`{path}` is {_name(node)}, expected a list", f"write `{path.split('.')[-1]}: [a, b]`"
            )
        values = [self.read_value(item, n, f"{path}[{i}]", f"{rule}[]") for i, n in enumerate(node.value)]
        return _MISSING if any(v is _MISSING for v in values) else self._judged(tuple(values), node, path, rule)

    def _mapping(self, item: Any, node: Node, path: str, rule: str) -> Any:
        from yaml.nodes import MappingNode

        if not isinstance(node, MappingNode):
            return self.report(
                path,
                node,
                f"`{path}` is {_name(node)}, expected a mapping",
                "write `key: value` lines under it, or `{}`",
            )
        values = {
            key: self.read_value(item, value_node, f"{path}.{key}", f"{rule}.*")
            for key, _, value_node in self._entries(node, path)
        }
        return _MISSING if any(v is _MISSING for v in values.values()) else values

    def _version(self, expected: int, node: Node, path: str) -> Any:
        found = self._scalar((int,), node, path, path)
        if found is _MISSING or found == expected:
            return found
        return self.report(
            path,
            node,
            f"`freehold: {found}` is another recipe format, this freehold reads {expected}",
            f"write `freehold: {expected}` and follow that format, or use a freehold that reads {found}",
        )

    def _scalar(self, kinds: tuple[type, ...], node: Node, path: str, rule: str) -> Any:
        from yaml.nodes import ScalarNode

        expected = _expected(kinds)
        if not isinstance(node, ScalarNode):
            return self.report(path, node, f"`{path}` is {_name(node)}, expected {expected}", "give one plain value")
        value: Any = node.value
        if node.style is None:
            try:
                value = resolve_plain(node.value, node.tag)
            except AmbiguousValueError as error:
                what = str(error) if secret_value(node.value) is None else "a value that YAML readers disagree on"
                return self.report(path, node, f"`{path}`: {what}", _plain_fix(kinds))
        if value is None:
            return self.report(
                path, node, f"`{path}` has no value, expected {expected}", "give one, or remove the line"
            )
        if type(value) not in kinds:
            hint = f'write "{node.value}" in quotes' if kinds == (str,) else f"give {expected}"
            return self.report(path, node, f"`{path}` is {_shown(value)}, expected {expected}", hint)
        return self._judged(value, node, path, rule)

    def _judged(self, value: Any, node: Node, path: str, rule: str) -> Any:
        found = list(find_in_value(path, rule, value))
        for f in found:
            self.report(f.path, node, f.what, f.fix)
        return _MISSING if found else value


def _is_null(node: Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null" and getattr(node, "style", "") is None


def _name(node: Node) -> str:
    from yaml.nodes import MappingNode, SequenceNode

    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return "empty" if _is_null(node) else f"the value {_quoted(node.value)}"


def _quoted(text: str) -> str:
    if secret_value(text) is not None:
        return "(not shown)"
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value:,}"
    return f"the text {_quoted(str(value))}"


def _expected(kinds: tuple[type, ...]) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return words[kinds[0]] if len(kinds) == 1 else "one value"


def _plain_fix(kinds: tuple[type, ...]) -> str:
    if kinds == (str,):
        return "put it in quotes"
    if kinds == (int,):
        return "write a whole number in plain digits, such as 4096"
    return "write true, false or plain digits; a text goes in quotes"


def _suggest_key(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"write `{close[0]}`"
    elsewhere = _paths_by_key().get(key)
    if elsewhere is not None:
        return f"it stands under another key: `{elsewhere}`"
    return f"known keys here: {', '.join(known)}"


@lru_cache(maxsize=1)
def _paths_by_key() -> dict[str, str]:
    """Where each key of the format stands, for somebody who put it into the wrong section."""
    found: dict[str, str] = {}
    for name, hint in get_type_hints(Recipe).items():
        if is_dataclass(hint):
            found |= {f.name: f"{name}.{f.name}" for f in fields(hint)}
    return found


def _sample(key: str) -> str:
    return {"freehold": "1", "engine": "{name: llama.cpp}", "model": "hf:OWNER/REPO"}.get(key, "…")


def _example(cls: type[Any], path: str) -> str:
    first = next(iter(get_type_hints(cls)))
    return f"write `{path}:` and, indented below it, `{first}: …`"


def _clause(text: str) -> str:
    return " ".join(text.split()).rstrip(".") or "it cannot be read"
