"""Reads a plain YAML value the one way on which YAML 1.1 and YAML 1.2 agree, and refuses the others.

``yes`` is true to one reader and a text to the next, ``1e3`` a text and a number, ``012`` ten and twelve, ``1:30``
ninety and a text. Whoever wrote such a value meant one of the two, and the file does not say which. Read
:func:`resolve_plain`.

Does not do: structure, or what a key may hold (``recipes/read.py``).
"""

from __future__ import annotations

import math
import re

from freehold.records.recipe import OptionValue

__all__ = ["AmbiguousValueError", "is_plain_text", "resolve_plain"]

_INT_12 = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT_12 = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ENDLESS_12 = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS_12: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_MAX_INT_CHARACTERS = 18
_MAX_FLOAT_CHARACTERS = 40
_TEXT_TAG = "tag:yaml.org,2002:str"
_NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_WORD_TAGS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")


class AmbiguousValueError(ValueError):
    """A plain value that readers of YAML take differently, or that is no usable number; the text says which."""


def resolve_plain(text: str, tag_11: str) -> OptionValue | None:
    """The value of an unquoted scalar.

    Args:
        text: The scalar as it stands in the file.
        tag_11: What YAML 1.1 takes it for, as PyYAML resolves it.

    Returns:
        A bool, a number, a text, or None for an empty value.

    Raises:
        AmbiguousValueError: YAML 1.1 and 1.2 read it differently, or it is an endless or huge number.

    Source: YAML 1.1 type repository (bool, int, float, timestamp); YAML 1.2.2, section 10.3 (core schema).
    """
    if text in _WORDS_12:
        if tag_11 not in _WORD_TAGS:
            raise AmbiguousValueError(f"{text} is {_kind(tag_11)} to some readers of YAML and not to others")
        return _WORDS_12[text]
    if _ENDLESS_12.fullmatch(text):
        raise AmbiguousValueError(f"{text} is no finite number")
    is_int, is_float = bool(_INT_12.fullmatch(text)), bool(_FLOAT_12.fullmatch(text))
    if not is_int and not is_float:
        if tag_11 != _TEXT_TAG:
            raise AmbiguousValueError(f"{text} is {_kind(tag_11)} to YAML 1.1 and a text to YAML 1.2")
        return text
    if tag_11 not in _NUMBER_TAGS:
        raise AmbiguousValueError(f"{text} is {_kind(tag_11)} to YAML 1.1 and a number to YAML 1.2")
    digits = text.lstrip("+-")
    if is_int and digits.isdigit() and len(digits) > 1 and digits.startswith("0"):
        raise AmbiguousValueError(f"{text} is an octal number to YAML 1.1 and a decimal one to YAML 1.2")
    if len(digits) > (_MAX_INT_CHARACTERS if is_int else _MAX_FLOAT_CHARACTERS):
        raise AmbiguousValueError(f"a number of {len(digits)} characters is longer than anything counted here")
    if is_int:
        return int(text, 0)
    value = float(text)
    if not math.isfinite(value):
        raise AmbiguousValueError(f"{text} is no finite number")
    return value


def is_plain_text(text: str, tag_11: str) -> bool:
    """Whether an unquoted scalar is this same text to every reader of YAML.

    A character that cannot be seen may break a line for one reader and not for another, such as NEL (U+0085).
    """
    if not text.isprintable():
        return False
    try:
        return resolve_plain(text, tag_11) == text
    except AmbiguousValueError:
        return False


def _kind(tag: str) -> str:
    name = tag.rsplit(":", 1)[-1]
    return {
        "int": "a number",
        "float": "a number",
        "bool": "true or false",
        "timestamp": "a date",
        "str": "a text",
    }.get(name, f"a {name}")
