"""A secret that cannot be printed, hashed into a record, or put into an argument vector by accident.

Does not do: storing secrets; they are read from the file the user names.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Secret"]


class Secret:
    """A value that only :meth:`reveal` gives away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself; call it only where it goes over the wire."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __hash__(self) -> int:
        raise TypeError("a secret is never hashed")

    def __eq__(self, other: object) -> bool:
        raise TypeError("secrets are not compared")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is never serialised")
