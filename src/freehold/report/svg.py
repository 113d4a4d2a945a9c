"""Turns a Vega-Lite specification into inline SVG that follows the page's theme, without any network.

Charts use the colour tokens below. :func:`to_svg` replaces each by a CSS variable, so one picture is right in light,
dark and print; the page's style sheet defines the variables. Read :func:`to_svg`.

Does not do: deciding what is drawn (``charts.py``).
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["GRID", "INK", "MUTED", "NEUTRAL", "PAPER", "SERIES", "TERM_FILLS", "to_svg"]

INK = "#000001"
MUTED = "#000002"
GRID = "#000003"
PAPER = "#000004"
SERIES = "#000005"
NEUTRAL = "#000006"
TERM_FILLS = ("#000011", "#000012", "#000013", "#000014", "#000015", "#000016")

_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--rule",
    PAPER: "--paper",
    SERIES: "--series",
    NEUTRAL: "--neutral",
    **{token: f"--term-{number}" for number, token in enumerate(TERM_FILLS, start=1)},
}
_ID = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')
_HEAD = re.compile(r'^<svg [^>]*?viewBox="([^"]+)">')


def to_svg(specification: dict[str, Any], *, prefix: str) -> str:
    """Draw a specification.

    Args:
        specification: Vega-Lite, with its data inside.
        prefix: Makes the ids of this picture different from those of others on the page.

    Returns:
        An ``<svg>`` element that scales with its box and is hidden from assistive technology, which reads the caption
        and the table instead.
    """
    import vl_convert

    version = ".".join(specification["$schema"].rpartition("/v")[2].split(".")[:2])
    drawn: str = vl_convert.vegalite_to_svg(specification, vl_version=version, allowed_base_urls=[])
    head = _HEAD.match(drawn)
    assert head is not None, "the converter's SVG begins with its box"
    body = _unique_ids(drawn[head.end() :], prefix)
    for token, variable in _VARIABLES.items():
        body = body.replace(f'"{token}"', f'"var({variable})"')
    return f'<svg class="chart" aria-hidden="true" focusable="false" viewBox="{head[1]}">{body}'


def _unique_ids(body: str, prefix: str) -> str:
    """Number the ids anew: the converter counts on from picture to picture, which would change the bytes."""
    numbers: dict[str, int] = {}

    def rename(match: re.Match[str]) -> str:
        return f"{match[1]}{prefix}-{numbers.setdefault(match[2], len(numbers))}"

    return _ID.sub(rename, body)
