"""Writes the report of a run into its folder: ``report.html`` and ``report.md``, whole or not at all.

Read :func:`write_report`. Rendering again from the same records gives the same bytes.

Does not do: rendering (``page.py``, ``markdown.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from freehold.records.base import sha256_hex
from freehold.records.folder import RunFolder
from freehold.report.load import REPORT_FILES, load_run
from freehold.report.markdown import render_markdown
from freehold.report.page import render_html

__all__ = ["ReportFiles", "write_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """What was written.

    Args:
        html: The page.
        markdown: The same in Markdown.
        entries: What the manifest says about both: ``sha256`` and ``bytes`` by base name.
    """

    html: Path
    markdown: Path
    entries: Mapping[str, Mapping[str, str | int]]


def write_report(folder: RunFolder) -> ReportFiles:
    """Render a run and save the result beside its records.

    Args:
        folder: The run.

    Returns:
        Where the files are.

    Raises:
        InputError: A record cannot be read; nothing is written then.
        PrerequisiteError: The folder cannot be written.
    """
    run = load_run(folder)
    html, markdown = REPORT_FILES
    # A lone surrogate in a server's text cannot be UTF-8; it becomes a question mark rather than an error.
    contents = {
        html: render_html(run).encode("utf-8", "replace"),
        markdown: render_markdown(run).encode("utf-8", "replace"),
    }
    for name, data in contents.items():
        folder.write(name, data)
    return ReportFiles(
        html=folder.path / html,
        markdown=folder.path / markdown,
        entries={name: {"sha256": sha256_hex(data), "bytes": len(data)} for name, data in contents.items()},
    )
