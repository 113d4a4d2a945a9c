"""Is this text broken? Detectors of what damaged weights, kernels and detokenizers produce.

:func:`find_faults` looks for wrong characters (replacement, control, unassigned), for text decoded with the wrong
codec, for tokens printed raw, for loops, for symbols in place of words, for words no language has, and for scripts
thrown together. A loop with a long period is a mild fault: healthy small models loop when they are decoded greedily.

Does not do: telling a wrong answer from a right one.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from freehold.verify.limits import QualityLimits

__all__ = ["Fault", "Loop", "find_faults", "find_loop"]

_REPLACEMENT = "\ufffd"
_ALLOWED_CONTROLS = frozenset("\n\r\t")
# How byte-level BPE and SentencePiece write blanks, line ends and bytes before they are decoded.
_RAW_TOKENS = re.compile("[\u0120\u010a][A-Za-z\u0120\u010a]|\u2581[A-Za-z]|<0x[0-9A-F]{2}>|[A-Za-z]##[a-z]")
# Two or three characters that may be the bytes of one, as Latin-1 or Windows-1252 show them.
_AFTER = "[\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]"
_MISREAD = re.compile(f"[\u00c2-\u00df]{_AFTER}|[\u00e0-\u00ef]{_AFTER}{_AFTER}")
_PLAIN_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "GREEK", "CJK", "han"})
_WORD = re.compile(r"[^\W\d_]+")
_VOWELS = frozenset("aeiouyAEIOUY")
_WIDE_SCRIPTS = {"CJK": "han", "HIRAGANA": "han", "KATAKANA": "han", "FULLWIDTH": "han", "BOPOMOFO": "han"}
_LONGEST_WORD = 30
_MOST_CONSONANTS = 6  # the longest run in English words: "catchphrase", "latchstring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a text.

    Args:
        kind: ``empty characters codec raw_tokens degenerate_loop loop symbols non_words scripts``.
        detail: What was seen.
        is_severe: Whether no healthy model writes this.
    """

    kind: str
    detail: str
    is_severe: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The repetition at the end of a text: its period, and how many characters it covers."""

    period: str
    covered_chars: int

    @property
    def repeats(self) -> float:
        """How often the period fits into what is covered."""
        return self.covered_chars / len(self.period)


def find_loop(text: str, min_repeats: int) -> Loop | None:
    """The longest stretch at the end of a text that repeats one period at least so many times.

    Works backwards with the prefix function of Knuth, Morris and Pratt: a stretch of length L whose longest proper
    border has length b repeats a period of L - b characters.
    """
    reverse = text[::-1]
    border = [0] * len(reverse)
    best: Loop | None = None
    for i in range(1, len(reverse)):
        length = border[i - 1]
        while length and reverse[i] != reverse[length]:
            length = border[length - 1]
        border[i] = length + (reverse[i] == reverse[length])
        covered = i + 1
        period = covered - border[i]
        if covered >= min_repeats * period:
            best = Loop(period=text[len(text) - period :], covered_chars=covered)
    return best


def find_faults(text: str, limits: QualityLimits, *, is_cut: bool) -> tuple[Fault, ...]:
    """Everything that is wrong with a text.

    Args:
        text: What a model wrote.
        limits: Where healthy ends.
        is_cut: Whether it ended because of a length limit; then it may end inside a character.
    """
    if is_cut:
        text = text.rstrip(_REPLACEMENT)
    if not text.strip():
        return (Fault(kind="empty", detail="nothing but blanks"),)
    checks = (
        _characters(text),
        _codec(text),
        _raw_tokens(text),
        _loop(text, limits),
        _symbols(text, limits),
        _non_words(text, limits),
        _scripts(text, limits),
    )
    return tuple(fault for fault in checks if fault is not None)


def _is_no_text(character: str) -> bool:
    """Whether no text has this character: replacement, control, surrogate, private use, noncharacter.

    Unassigned ones are let through: emoji are younger than the table of the Python that runs this.
    """
    if character == _REPLACEMENT:
        return True
    if unicodedata.category(character) in {"Cc", "Cs", "Co"}:
        return character not in _ALLOWED_CONTROLS
    return 0xFDD0 <= ord(character) <= 0xFDEF or ord(character) & 0xFFFE == 0xFFFE


def _characters(text: str) -> Fault | None:
    """Characters that no text has."""
    wrong = [c for c in text if _is_no_text(c)]
    if not wrong:
        return None
    return Fault(kind="characters", detail=f"{len(wrong)} characters that are no text, first U+{ord(wrong[0]):04X}")


def _codec(text: str) -> Fault | None:
    """UTF-8 that was read as Latin-1 or Windows-1252: ``Ã©`` for ``é``.

    Two signs that decode to one letter can stand together by chance (``Ã”`` ends a quotation in capitals), so one such
    pair is no finding; three that do, cannot.
    """
    found: list[str] = []
    weight = 0
    for match in _MISREAD.finditer(text):
        for codec in ("cp1252", "latin-1"):
            try:
                decoded = match[0].encode(codec).decode("utf-8")
            except UnicodeError:
                continue
            if _script(decoded) in _PLAIN_SCRIPTS or unicodedata.category(decoded)[0] == "P":
                found.append(f"{match[0]!r} is {decoded!r}")
                weight += len(match[0]) - 1
            break
    if weight < 2:
        return None
    return Fault(kind="codec", detail=f"{found[0]} read with the wrong codec")


def _raw_tokens(text: str) -> Fault | None:
    """Tokens that were printed without being decoded: ``ĠParis``, ``▁Paris``, ``<0x0A>``."""
    found = _RAW_TOKENS.findall(text)
    if len(found) < 2:
        return None
    return Fault(kind="raw_tokens", detail=f"{len(found)} undecoded tokens, first {found[0]!r}")


def _loop(text: str, limits: QualityLimits) -> Fault | None:
    """A text that ends in a repetition covering most of it."""
    trimmed = text.rstrip()
    loop = find_loop(trimmed, limits.min_repeats)
    if loop is None or loop.covered_chars < limits.loop_share * len(trimmed):
        return None
    is_short = len(loop.period) <= limits.short_period_chars
    if loop.covered_chars < limits.degenerate_chars:
        return None
    return Fault(
        kind="degenerate_loop" if is_short else "loop",
        detail=f"{loop.period[:40]!r} {loop.repeats:.0f} times in a row",
        is_severe=is_short,
    )


def _symbols(text: str, limits: QualityLimits) -> Fault | None:
    """Mostly signs where words should be."""
    dense = [c for c in text if not c.isspace()]
    if len(text) < limits.min_word_chars or not dense:
        return None
    share = sum(not (c.isalnum() or unicodedata.category(c)[0] == "M") for c in dense) / len(dense)
    if share <= limits.max_symbol_share:
        return None
    return Fault(kind="symbols", detail=f"{share:.0%} of the characters are neither letters nor digits")


def _is_non_word(word: str) -> bool:
    """Whether a Latin word is none: no vowel, an endless run of consonants, endless, or capitals in its middle."""
    if len(word) > _LONGEST_WORD:
        return True
    if len(word) < 4 or not word.isascii() or word.isupper():
        return False
    if not _VOWELS & set(word):
        return True
    runs = re.findall(r"[^aeiouyAEIOUY]+", word)
    if max((len(run) for run in runs), default=0) > _MOST_CONSONANTS:
        return True
    return sum(a.islower() and b.isupper() for a, b in pairwise(word)) > 2


def _non_words(text: str, limits: QualityLimits) -> Fault | None:
    """Too many words that are none."""
    words = _WORD.findall(text)
    if len(words) < limits.min_words:
        return None
    wrong = [word for word in words if _is_non_word(word)]
    share = len(wrong) / len(words)
    if share <= limits.max_non_word_share:
        return None
    return Fault(kind="non_words", detail=f"{share:.0%} of {len(words)} words are none, such as {wrong[0][:30]!r}")


def _script(character: str) -> str:
    name = unicodedata.name(character, "UNKNOWN").split()[0].split("-")[0]
    return _WIDE_SCRIPTS.get(name, name)


def _scripts(text: str, limits: QualityLimits) -> Fault | None:
    """Letters of many scripts, or of several within one word."""
    scripts = {_script(c) for c in text if c.isalpha()}
    mixed = [word for word in _WORD.findall(text) if len({_script(c) for c in word}) > 1]
    mixed = [word for word in mixed if {_script(c) for c in word} - {"han", "LATIN", "MODIFIER"}]
    if len(scripts) <= limits.max_scripts and len(mixed) < 3:
        return None
    seen = f"letters of {len(scripts)} scripts" if len(scripts) > limits.max_scripts else f"words like {mixed[0]!r}"
    return Fault(kind="scripts", detail=seen)
