"""Writes a recipe as YAML that says every value, defaults included, so that it means the same to a later freehold.

``parse_recipe(dump_recipe(r)) == r`` for every recipe whose values follow ``recipes/rules.py``.

Does not do: files; the run folder saves the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from freehold.recipes.scalars import is_plain_text
from freehold.records.recipe import Recipe

__all__ = ["dump_recipe"]

_LINE_COLUMNS = 100


def dump_recipe(recipe: Recipe) -> str:
    """A recipe as YAML, in the order of the format; keys without a value are left out.

    Raises:
        ValueError: A number is not finite.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """A dumper of its own, so that its rule for texts stays local."""

    def represent_text(dumper: Any, text: str) -> Any:
        tag = dumper.resolve(yaml.ScalarNode, text, (True, False))
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if is_plain_text(text, tag) else '"')

    def represent_number(dumper: Any, value: float) -> Any:
        text = repr(value)
        if "n" in text:
            raise ValueError(f"not a number to write: {value}")
        mantissa, mark, exponent = text.partition("e")
        if mark:  # YAML 1.1 needs a point and a signed exponent, YAML 1.2 takes them
            mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
            exponent = exponent if exponent[0] in "+-" else f"+{exponent}"
        return dumper.represent_scalar("tag:yaml.org,2002:float", mantissa + mark + exponent)

    Dumper.add_representer(str, represent_text)
    Dumper.add_representer(float, represent_number)
    text: str = yaml.dump(
        _plain(recipe),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=_LINE_COLUMNS,
    )
    return text


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if not _is_left_out(value, f.name)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return value


def _is_left_out(owner: Any, name: str) -> bool:
    """Whether a value is the absence of one: None, or an empty mapping or list that is also the default."""
    value = getattr(owner, name)
    return value is None or (name in {"options", "overlays", "pins"} and not value)
