"""Parses and formats sizes, times and rates; the only place that turns a number into text.

Memory is binary (GiB), disks and downloads are decimal (GB), bandwidth is SI. A lone ``24G`` says neither
and is refused. Read :func:`parse_bytes` first.

Does not do: arithmetic on the values, or any rounding of what is stored.
"""

from __future__ import annotations

import math
import re

from freehold.errors import InputError

__all__ = [
    "format_bandwidth",
    "format_bytes",
    "format_count",
    "format_disk",
    "format_duration",
    "format_memory",
    "format_number",
    "format_percent",
    "format_tok_per_s",
    "parse_bytes",
]

_SUFFIX_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
# No size anybody can mean has more digits; without the bound a long enough line would be quadratic to parse.
_SIZE = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?|[0-9]{1,3}(?:,[0-9]{3}){1,9})\s*([A-Za-z]{0,8})\s*\Z")
_BINARY_STEPS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_DECIMAL_STEPS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def parse_bytes(text: str) -> int:
    """Turn a size a person wrote, such as ``24GiB`` or ``1.5 TB``, into bytes.

    Args:
        text: A non-negative number and a unit: B, kB/MB/GB/TB (powers of 1000) or KiB/MiB/GiB/TiB (of 1024). A whole
            number may have thousands separators, as :func:`format_bytes` writes them.

    Returns:
        Whole bytes, rounded half to even.

    Raises:
        InputError: The text is no size, has no unit, or has a unit that could mean either base (``24G``).
    """
    match = _SIZE.match(text)
    if match is None:
        raise InputError(
            f"not a size: {text!r}",
            why="a size is a non-negative number and a unit",
            fix="write it like `24GiB` (2^30) or `24GB` (10^9)",
        )
    number, suffix = match[1].replace(",", ""), match[2]
    if suffix == "":
        raise InputError(
            f"a size without a unit: {text!r}",
            why="bytes, GB and GiB differ by up to nine orders of magnitude",
            fix=f"write `{number}GiB`, `{number}GB` or `{number}B`",
        )
    if suffix.upper() in {"K", "M", "G", "T"}:
        letter = suffix.upper()
        raise InputError(
            f"an ambiguous size: {text!r}",
            why=f"{letter} could mean {letter}B (powers of 1000) or {letter}iB (powers of 1024)",
            fix=f"write `{number}{letter}iB` or `{number}{letter}B`",
        )
    factor = _SUFFIX_BYTES.get(suffix.upper())
    if factor is None:
        raise InputError(
            f"an unknown unit of size: {suffix!r} in {text!r}",
            why="known units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
            fix=f"write for example `{number}GiB`",
        )
    if "." in number:
        whole, fraction = number.split(".")
        scale = int("1" + "0" * len(fraction))
        total, rest = divmod(int(whole + fraction) * factor, scale)
        if 2 * rest > scale or (2 * rest == scale and total % 2 == 1):
            total += 1
        return total
    return int(number) * factor


def format_memory(size_bytes: int) -> str:
    """Show an amount of memory in binary units, such as ``84.1 GiB``."""
    return _format_stepped(size_bytes, _BINARY_STEPS)


def format_disk(size_bytes: int) -> str:
    """Show an amount of disk or download in decimal units, such as ``330.2 GB``."""
    return _format_stepped(size_bytes, _DECIMAL_STEPS)


def format_bytes(size_bytes: int) -> str:
    """Show an exact count of bytes with thousands separators, such as ``330,160,710,016 B``."""
    return f"{size_bytes:,} B"


def _format_stepped(size_bytes: int, steps: tuple[tuple[str, int], ...]) -> str:
    for name, factor in steps:
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:,.1f} {name}"
    return f"{size_bytes:,} B"


def format_bandwidth(bytes_per_s: float) -> str:
    """Show a bandwidth in SI units, such as ``273.0 GB/s``."""
    for name, factor in _DECIMAL_STEPS:
        if abs(bytes_per_s) >= factor:
            return f"{bytes_per_s / factor:,.1f} {name}/s"
    return f"{bytes_per_s:,.0f} B/s"


def format_duration(seconds: float) -> str:
    """Show a duration with the unit that reads best: ``41 ms``, ``2.31 s``, ``3 min 05 s``, ``2 h 04 min``."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.01:
        return f"{seconds * 1e3:.2f} ms"
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 99.995:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_tok_per_s(tok_per_s: float) -> str:
    """Show a token rate: ``23.4 tok/s`` below 100, ``1,842 tok/s`` above."""
    if abs(tok_per_s) < 99.95:
        return f"{tok_per_s:.1f} tok/s"
    return f"{tok_per_s:,.0f} tok/s"


def format_percent(share: float, whole: str) -> str:
    """Show a share (0–1) as a percentage that names its whole, such as ``62 % of peak bandwidth``."""
    digits = 1 if abs(share) < 0.1 else 0
    return f"{share * 100:.{digits}f} % of {whole}"


def format_count(count: int) -> str:
    """Show a count with thousands separators."""
    return f"{count:,}"


def format_number(value: float | int | str | bool, unit: str) -> str:
    """Show a value by its unit name (``bytes``, ``bytes_memory``, ``bytes_disk``, ``s``, ``tok/s``, ``bytes/s`` …).

    Raises:
        ValueError: The value is NaN or infinite; such a value is a missing one and has to be recorded as that.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"not a number to show: {value}")
    match unit:
        case "bytes" | "bytes_memory":
            return format_memory(round(value))
        case "bytes_disk":
            return format_disk(round(value))
        case "bytes/s":
            return format_bandwidth(value)
        case "s":
            return format_duration(value)
        case "tok/s":
            return format_tok_per_s(value)
        case "tokens":
            return f"{format_count(value)} tokens" if isinstance(value, int) else f"{value:,.1f} tokens"
        case "USD":
            return f"${value:,.2f}"
        case "share":
            return f"{value * 100:.{1 if abs(value) < 0.1 else 0}f} %"
        case "":
            return format_count(value) if isinstance(value, int) else f"{value:,.3g}"
    text = format_count(value) if isinstance(value, int) else f"{value:,.3g}"
    return f"{text} {unit}"
