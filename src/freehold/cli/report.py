"""``freehold report``: renders the page and the summary of a run again, from its records alone.

Does not do: rendering (``report/``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    run: Annotated[Path, typer.Argument(help="Run folder, such as one under `runs/`.", show_default=False)],
    opens: Annotated[bool, typer.Option("--open", help="Open the page in the browser of this machine.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the two files' entries in the run's manifest.")
    ] = False,
) -> None:
    """Render the page and the summary of a run again from its records.

    Writes report.html and report.md into the run folder and shows the summary. Nothing is measured: the same records
    always give the same files.
    """
    from freehold.cli.render import write_json
    from freehold.records.folder import RunFolder
    from freehold.report.write import write_report

    folder = RunFolder.open(run)
    with folder.lock():
        files = write_report(folder)
    if as_json:
        write_json({"schema": "freehold.manifest/1", "files": files.entries})
    else:
        from rich.console import Console

        from freehold.report.load import load_run
        from freehold.report.terminal import render_summary

        Console(highlight=False).print(render_summary(load_run(folder)))
    if opens:
        import webbrowser

        webbrowser.open(files.html.resolve().as_uri())
