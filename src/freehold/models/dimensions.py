"""What a dimension written as ``heads * 128 + rope`` comes to, and which layers ``3..92/4`` are.

Catalogue files state shapes in the words of the architecture, so that one changed width changes every tensor that
depends on it. Read :func:`evaluate` and :func:`layer_sets`.

Does not do: anything but whole numbers with ``+ - * /`` and names; no other code can be written there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from freehold.errors import InputError

__all__ = ["evaluate", "layer_sets"]

_MAX_VALUE = 2**62
_MAX_LAYERS = 100_000
_RANGE = re.compile(r"([0-9]{1,6})(?:\.\.([0-9]{1,6})(?:/([0-9]{1,6}))?)?\Z")


def evaluate(expression: int | str, values: Mapping[str, int]) -> int:
    """The whole number an expression stands for.

    Args:
        expression: A number, or text of numbers, names, ``+ - * /`` and brackets; ``/`` must leave no rest.
        values: What the names stand for.

    Raises:
        InputError: It is no such expression, a name is unknown, or the result is no positive whole number.
    """
    if isinstance(expression, int) and not isinstance(expression, bool):
        return expression
    if not isinstance(expression, str) or len(expression) > 200:
        raise _bad(str(expression)[:60], "a dimension is a whole number or a short expression")
    try:
        result = _walk(ast.parse(expression, mode="eval").body, values, expression)
    except (SyntaxError, RecursionError, ValueError):
        raise _bad(expression, "it does not read as a formula") from None
    if not 0 < result < _MAX_VALUE:
        raise _bad(expression, f"it comes to {result}, and a dimension is at least 1")
    return result


def _walk(node: ast.expr, values: Mapping[str, int], expression: str) -> int:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in values:
                raise _bad(expression, f"{name!r} is not defined; known: {', '.join(sorted(values))}")
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _walk(left, values, expression), _walk(right, values, expression)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.Div():
                    if b == 0 or a % b:
                        raise _bad(expression, f"{a} / {b} is no whole number")
                    return a // b
    raise _bad(expression, "only numbers, names, + - * / and brackets are known")


def layer_sets(table: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, ...]]:
    """Named sets of layer numbers.

    Args:
        table: By name, a list whose items are ``7``, ``3..92``, ``3..92/4`` (every fourth from 3) or ``all - mla``.

    Raises:
        InputError: An item is none of these, or takes away a set that is not defined before it.
    """
    sets: dict[str, tuple[int, ...]] = {}
    for name, items in table.items():
        numbers: set[int] = set()
        for item in items:
            whole, minus, less = item.partition(" - ")
            if minus:
                if whole.strip() not in sets or less.strip() not in sets:
                    raise _bad(item, "both sets have to be defined above it")
                numbers |= set(sets[whole.strip()]) - set(sets[less.strip()])
                continue
            match = _RANGE.match(item.strip())
            if match is None:
                raise _bad(item, "layers are written as `7`, `3..92`, `3..92/4` or `all - mla`")
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            if step < 1 or last < first or last > _MAX_LAYERS:
                raise _bad(item, "a range runs upwards in steps of at least 1")
            numbers |= set(range(first, last + 1, step))
        sets[name] = tuple(sorted(numbers))
    return sets


def _bad(expression: str, why: str) -> InputError:
    return InputError(f"not a dimension: {expression!r}", why=why, fix="correct it in the catalogue file")
