"""Recognises what looks like a secret, so that none is copied into a run folder or printed.

Does not do: reading secrets; a recipe names a file, and the command line reads it.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files

__all__ = ["secret_key", "secret_value"]


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], ...], tuple[tuple[re.Pattern[str], str], ...]]:
    text = (files("freehold") / "data" / "secret_patterns.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    return (
        tuple(re.compile(row["pattern"]) for row in document["key"]),
        tuple((re.compile(row["pattern"]), row["name"]) for row in document["value"]),
    )


def secret_key(key: str) -> bool:
    """Whether a key's name says that its value is a secret, such as ``api-key``; ``api_key_file`` is none."""
    return any(pattern.fullmatch(key) for pattern in _patterns()[0])


def secret_value(text: str) -> str | None:
    """What kind of secret a text looks like, None when it looks like none.

    Source:
        ``data/secret_patterns.toml``.
    """
    return next((name for pattern, name in _patterns()[1] if pattern.search(text)), None)
