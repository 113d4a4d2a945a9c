"""Turns errors, records and evidence into what a terminal or another program reads.

Data goes to stdout, talk to stderr. The one place where a :class:`~freehold.errors.FreeholdError` becomes text is
:func:`render_error`. Text from outside (a file's tensor names, a server's answer) may hold anything, so control
characters are spelled out before they reach a terminal.

Does not do: progress (``cli/stages.py``), or deciding exit codes (``cli/main.py``).
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freehold.errors import FreeholdError
    from freehold.evidence import Evidence
    from freehold.records.base import Record

__all__ = [
    "ERROR_SCHEMA",
    "describe_evidence",
    "render_error",
    "render_error_json",
    "sanitize",
    "terminal_width",
    "write_error",
    "write_json",
    "write_record",
    "write_talk",
]

ERROR_SCHEMA = "freehold.error/1"
_GLUE = "\x00"


def terminal_width() -> int:
    """Columns to wrap at: the terminal's, at least 40, at most 120; 100 where nobody says."""
    return min(120, max(40, shutil.get_terminal_size((100, 24)).columns))


def sanitize(text: str) -> str:
    """Text with every control character except the newline spelled out, so that it cannot steer a terminal."""
    return "".join(c if c == "\n" or c.isprintable() else _spell(c) for c in text)


def _spell(character: str) -> str:
    if character == "\t":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def render_error(error: FreeholdError, *, width: int) -> str:
    """An error as its three parts, wrapped; a command in backticks is never broken, so that it can be pasted.

    Args:
        error: The error.
        width: Columns to wrap at.

    Returns:
        Lines that begin with ``error:``, ``  why:`` and ``  try:``, with a final newline.
    """
    parts = (("error: ", error.what), ("  why: ", error.why), ("  try: ", error.fix))
    return "".join(_wrap(label, text, width) for label, text in parts if text)


def _wrap(label: str, text: str, width: int) -> str:
    lines: list[str] = []
    for paragraph in sanitize(text).strip("\n").split("\n"):
        pieces = paragraph.split("`")
        is_paired = len(pieces) % 2 == 1
        glued = "`".join(p.replace(" ", _GLUE) if is_paired and i % 2 else p for i, p in enumerate(pieces))
        wrapped = textwrap.wrap(
            glued,
            width,
            initial_indent=label if not lines else " " * len(label),
            subsequent_indent=" " * len(label),
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += wrapped or [label.rstrip() if not lines else ""]
    return "".join(line.replace(_GLUE, " ") + "\n" for line in lines)


def render_error_json(error: FreeholdError) -> str:
    """An error as one line of JSON for programs: the three parts, the raw facts and the exit code."""
    document = {
        "schema": ERROR_SCHEMA,
        "error": type(error).__name__,
        "what": error.what,
        "why": error.why,
        "fix": error.fix,
        "exit_code": error.exit_code,
        "facts": error.facts,
    }
    return json.dumps(document, default=str) + "\n"


def write_error(error: FreeholdError, *, as_json: bool) -> None:
    """Write an error to stderr, as text or as the last line of it in JSON; stdout stays empty of it."""
    write_talk(render_error_json(error) if as_json else render_error(error, width=terminal_width()))


def write_talk(text: str) -> None:
    """Write text for a person to stderr."""
    sys.stderr.write(text)
    sys.stderr.flush()


def write_json(value: Any) -> None:
    """Write a JSON document of plain values to stdout, in UTF-8 whatever the locale says."""
    _write_data((json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_record(value: Record) -> None:
    """Write a record to stdout as the JSON that is saved in a run folder."""
    from freehold.records.base import encode

    _write_data(encode(value))


def _write_data(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def describe_evidence(evidence: Evidence) -> str:
    """A value with its unit and where it comes from; a missing one is a dash and its reason.

    Examples: ``23.4 tok/s (measured, n = 15, 95 % interval 23.1 tok/s to 23.7 tok/s)`` ·
    ``— (not measured: the server has no metrics)``.
    """
    from freehold.units import format_number

    notes = [evidence.origin]
    if evidence.n is not None:
        notes.append(f"n = {evidence.n}")
    if evidence.interval is not None:
        low = format_number(evidence.interval.low, evidence.unit)
        high = format_number(evidence.interval.high, evidence.unit)
        notes.append(f"{evidence.interval.level * 100:g} % interval {low} to {high}")
    return f"{evidence.text} ({', '.join(notes)})"
