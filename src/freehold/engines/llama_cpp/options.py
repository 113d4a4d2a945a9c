"""Says which options a recipe may give llama.cpp, and what each becomes: a flag, or a field of the package.

Names are ``llama-server``'s own long flags without dashes (``threads``, ``cache-type-k``), for both runtimes. The
table (``data/engines/llama_cpp_options.toml``) is written by ``tools/llama_cpp_options.py`` from the real parser.
Read :func:`check_options`, then :func:`to_flags` and :func:`apply_option`.

Does not do: the settings that freehold makes itself (``engine.py``), or starting anything.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from freehold.errors import InputError
from freehold.records.recipe import OptionValue

__all__ = [
    "Option",
    "apply_option",
    "check_options",
    "facts",
    "memory_facts",
    "options",
    "parse_option",
    "to_flags",
    "to_text",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Args:
        name: Long flag without dashes.
        kind: ``int float text choice`` take a value; ``toggle`` is on or off; ``flag`` can only be given.
        words: Words it takes: all of them for a choice, some beside numbers for an int.
        negative: The flag that switches a toggle off.
        help: The engine's own description, shortened.
        field: Dotted path in the package's parameters; None where only the binary has it.
        field_kind: Type of that field.
        is_inverted: Whether the field means the opposite.
        reads_file: Whether the field takes the contents of the file that the option names.
        values: Word -> member of the field's enumeration, or number.
        sampling_bit: Name of the bit that marks it as chosen by the user.
    """

    name: str
    kind: str
    words: tuple[str, ...] = ()
    negative: str | None = None
    help: str = ""
    field: str | None = None
    field_kind: str | None = None
    is_inverted: bool = False
    reads_file: bool = False
    values: Mapping[str, str | int | bool] = dataclass_field(default_factory=dict)
    sampling_bit: str | None = None


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("freehold") / "data" / "engines" / name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def facts() -> Mapping[str, Any]:
    """What freehold knows about the engine beside its options: reserved names and defaults.

    Source:
        ``data/engines/llama_cpp.toml``.
    """
    return _read("llama_cpp.toml")


@lru_cache(maxsize=1)
def memory_facts() -> Mapping[str, Any]:
    """What the engine takes beside weights and KV cache, for the planner.

    Source:
        ``data/engines/llama_cpp_memory.toml``.
    """
    return _read("llama_cpp_memory.toml")


@lru_cache(maxsize=1)
def options() -> Mapping[str, Option]:
    """Every option of the engine by name, those that a recipe may not set included.

    Source:
        ``data/engines/llama_cpp_options.toml``.
    """
    table = {}
    for row in _read("llama_cpp_options.toml")["option"]:
        row = {key: value for key, value in row.items() if key != "flags"}
        row["words"] = tuple(row.get("words", ()))
        table[row["name"]] = Option(**row)
    return table


def check_options(given: Mapping[str, OptionValue], *, is_embedded: bool) -> dict[str, OptionValue]:
    """Check a recipe's options and bring their values into one form: numbers, words, true or false.

    Args:
        given: Option name -> value, as the recipe has them.
        is_embedded: Whether the package runs it; the binary has more options.

    Returns:
        The same options; ``on`` and ``off`` of a YAML reader, which are true and false, as words again.

    Raises:
        InputError: An option is unknown, set by freehold itself, not available in this runtime, or of another type.
    """
    return {name: _check(name, value, is_embedded=is_embedded) for name, value in given.items()}


def _check(name: str, value: OptionValue, *, is_embedded: bool) -> OptionValue:
    reserved = facts()["reserved"]
    if name in reserved:
        instead, _, reason = str(reserved[name]).partition(": ")
        is_gone = instead == "nothing"
        raise InputError(
            f"`{name}` is not set under `options`",
            why=reason or "freehold sets it itself",
            fix="remove it" if is_gone else f"use {instead} instead",
            facts={"option": name},
        )
    option = options().get(name)
    if option is None:
        table = [n for n in options() if n not in reserved]
        near = difflib.get_close_matches(name.lstrip("-").replace("_", "-"), table, n=1, cutoff=0.6)
        raise InputError(
            f"llama.cpp has no option `{name}`",
            why="options are llama-server's long flags without dashes, and unknown ones are never ignored",
            fix=f"did you mean `{near[0]}`?" if near else "see `llama-server --help`",
            facts={"option": name, "nearest": near[0] if near else None},
        )
    if is_embedded and option.field is None:
        raise InputError(
            f"the embedded runtime has no option `{name}`",
            why="the Python package does not offer it",
            fix="name a llama-server binary as `engine.runtime`, or remove the option",
        )
    return _typed(option, value)


def _typed(option: Option, value: OptionValue) -> OptionValue:
    if isinstance(value, bool) and option.kind == "choice" and {"on", "off"} <= set(option.words):
        value = "on" if value else "off"
    match option.kind:
        case "toggle":
            is_good, wanted = isinstance(value, bool), "true or false"
        case "flag":
            is_good, wanted = value is True, "true, or to be left out"
        case "int":
            is_number = isinstance(value, int) and not isinstance(value, bool)
            is_good, wanted = is_number or value in option.words, "a whole number"
            if option.words:
                wanted += f" or one of {', '.join(option.words)}"
        case "float":
            is_good, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
            value = float(value) if is_good else value
        case "choice":
            is_good, wanted = value in option.words, f"one of {', '.join(option.words)}"
        case _:
            is_good, wanted = isinstance(value, str) and bool(value) and "\0" not in value, "a text"
    if not is_good:
        raise InputError(
            f"option `{option.name}` has the value {value!r}",
            why=f"it takes {wanted}",
            fix=f"correct it under `options` ({option.help})",
            facts={"option": option.name, "value": value},
        )
    return value


def to_flags(checked: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Options as arguments of the binary."""
    arguments: list[str] = []
    for name, value in checked.items():
        option = options()[name]
        if option.kind == "flag":
            arguments.append(f"--{name}")
        elif option.kind == "toggle":
            arguments.append(f"--{name}" if value else str(option.negative))
        else:
            arguments += [f"--{name}", str(value)]
    return tuple(arguments)


def to_text(checked: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Options as ``name=value`` for the embedded runtime's process; :func:`parse_option` reads them back."""
    return tuple(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in checked.items()
    )


def parse_option(text: str) -> tuple[str, OptionValue]:
    """Read one ``name=value``.

    Raises:
        InputError: No such form, or not an option that the embedded runtime has.
    """
    name, equals, raw = text.partition("=")
    if not equals:
        raise InputError(f"not an option: {text!r}", why="it has no `=`", fix="write `name=value`")
    option = options().get(name)
    value: OptionValue = raw
    if option is not None and option.kind in ("toggle", "flag") and raw in ("true", "false"):
        value = raw == "true"
    elif option is not None and option.kind in ("int", "float") and raw not in option.words:
        try:
            value = int(raw) if option.kind == "int" else float(raw)
        except ValueError:
            value = raw
    return name, _check(name, value, is_embedded=True)


def apply_option(parameters: Any, package: Any, name: str, value: OptionValue) -> None:
    """Set one checked option in the package's parameters.

    Args:
        parameters: A ``CommonParams``.
        package: The module it comes from, for its enumerations.
        name: Option name.
        value: Its checked value.

    Raises:
        InputError: The option names a file that cannot be read, or a number that the field cannot hold.
    """
    option = options()[name]
    assert option.field is not None
    *path, last = option.field.split(".")
    owner = parameters
    for step in path:
        owner = getattr(owner, step)
    setting: Any = value
    if isinstance(value, str) and value in option.values:
        setting = option.values[value]
        if isinstance(setting, str):
            setting = getattr(package, str(option.field_kind))[setting]
    elif option.is_inverted:
        setting = not value
    elif option.reads_file:
        setting = _read_text(str(value), name)
    try:
        setattr(owner, last, setting)
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"option `{name}` cannot be {value!r}", why=str(error), fix="choose a value that the engine can hold"
        ) from None
    if option.sampling_bit:
        bit = package.common_params_sampling_config[option.sampling_bit]
        parameters.sampling.user_sampling_config |= int(bit)


def _read_text(path: str, name: str) -> str:
    try:
        with open(path, encoding="utf-8") as source:
            return source.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}, named by option `{name}`",
            why=getattr(error, "strerror", None) or str(error),
            fix="name a readable text file",
        ) from None
