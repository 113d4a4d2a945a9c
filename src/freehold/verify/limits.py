"""Where does healthy end? Limits from ``data/verify/limits.toml``, each with the measurement it follows from.

Read :func:`load_limits`.

Does not do: comparing anything with them (the checks do).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from freehold.evidence import Evidence, Kind

__all__ = ["FingerprintLimits", "Limits", "QualityLimits", "load_limits"]

_STATISTICS = ("mean_abs", "p90_abs", "max_abs", "worst_text_mean_abs", "shift")


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintLimits:
    """Limits of the comparison with a reference; log-probabilities in nats, shares 0–1.

    Args:
        mean_abs: Mean absolute difference.
        p90_abs: 90th percentile of the absolute differences.
        max_abs: Largest absolute difference.
        worst_text_mean_abs: Mean absolute difference of the worst text.
        shift: Absolute mean of the signed differences.
        decisive_margin_nats: Margin from which a position is decisive.
        min_decisive_share: Share of decisive positions that must have the reference's most likely token.
        max_unlisted_share: Share of positions that may have only a bound.
        min_positions: Positions below which nothing is concluded.
    """

    mean_abs: Evidence
    p90_abs: Evidence
    max_abs: Evidence
    worst_text_mean_abs: Evidence
    shift: Evidence
    decisive_margin_nats: float
    min_decisive_share: float
    max_unlisted_share: float
    min_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLimits:
    """Limits of the detectors of broken text; see ``verify/broken_text.py`` for each.

    Args:
        min_repeats: Repeats from which a period is a loop.
        loop_share: Share of the text the loop must cover.
        short_period_chars: Period up to which a loop is degenerate.
        degenerate_chars: Length from which a degenerate loop counts.
        min_word_chars: Shortest text, in characters, whose share of symbols is judged.
        max_symbol_share: Share of characters that are neither letters, digits nor blanks.
        max_scripts: Scripts of letters in one text.
        min_words: Fewest words whose share of non-words is judged.
        max_non_word_share: Share of words that cannot be words.
    """

    min_repeats: int
    loop_share: float
    short_period_chars: int
    degenerate_chars: int
    min_word_chars: int
    max_symbol_share: float
    max_scripts: int
    min_words: int
    max_non_word_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits.

    Args:
        fingerprint: Against a reference.
        quality: Of generated text.
        near_tie_nats: Two tokens whose log-probabilities lie closer than this may swap by rounding alone.
        rescore_mean_abs: Mean absolute difference between an engine's scores of its own tokens while generating and
            when they are given to it.
        runs: Times every prompt is continued.
        run_tokens: Tokens of each.
        answer_tokens: Longest answer to a question.
        stop_texts: Texts of special tokens that never belong into an answer.
    """

    fingerprint: FingerprintLimits
    quality: QualityLimits
    near_tie_nats: float
    rescore_mean_abs: Evidence
    runs: int
    run_tokens: int
    answer_tokens: int
    stop_texts: tuple[str, ...]


@lru_cache(maxsize=1)
def load_limits() -> Limits:
    """The limits that ship with freehold."""
    text = resources.files("freehold").joinpath("data/verify/limits.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    marks = table["fingerprint"]
    from_healthy = {name: _limit(marks["healthy"], name, marks["factor"][name]) for name in _STATISTICS}
    rescore = table["rescore"]
    return Limits(
        fingerprint=FingerprintLimits(
            **from_healthy,
            decisive_margin_nats=marks["decisive_margin_nats"],
            min_decisive_share=marks["min_decisive_share"],
            max_unlisted_share=marks["max_unlisted_share"],
            min_positions=marks["min_positions"],
        ),
        quality=QualityLimits(**{k: v for k, v in table["quality"].items() if k != "source"}),
        near_tie_nats=table["determinism"]["near_tie_nats"],
        rescore_mean_abs=_limit(rescore["healthy"], "mean_abs", rescore["factor"]["mean_abs"]),
        runs=table["determinism"]["runs"],
        run_tokens=table["determinism"]["run_tokens"],
        answer_tokens=table["stopping"]["answer_tokens"],
        stop_texts=tuple(table["stopping"]["stop_texts"]),
    )


def _limit(healthy: list[Mapping[str, Any]], name: str, factor: float) -> Evidence:
    """Factor times the largest healthy value, which is its input."""
    row = max(healthy, key=lambda candidate: abs(candidate[name]))
    largest = Evidence.measured(abs(row[name]), "nats", source=row["command"], date=row["date"], n=row["n"])
    return Evidence(
        value=factor * abs(row[name]),
        kind=Kind.CALCULATED,
        unit="nats",
        source=f"{factor:g} × the largest of {len(healthy)} healthy servers",
        inputs={row["name"]: largest},
    )
