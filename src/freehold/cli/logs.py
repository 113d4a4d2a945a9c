"""``freehold logs``: what the engine of a run wrote.

Does not do: reading meaning into it; the engine's own reader does that at launch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["logs"]


def logs(
    run: Annotated[Path, typer.Argument(help="Run folder that `freehold up` made.", show_default=False)],
    lines: Annotated[int, typer.Option(min=0, help="Show the last N lines; 0 for all.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C; the server is left alone.")] = False,
) -> None:
    """Show what the engine of a run wrote."""
    from freehold.cli.render import sanitize
    from freehold.errors import InputError
    from freehold.launch.logs import follow_log, last_lines
    from freehold.records.folder import RunFolder
    from freehold.world import LocalWorld

    folder = RunFolder.open(run)
    paths = sorted(folder.logs.glob("*.log"))
    if not paths:
        raise InputError(
            f"{run} has no engine log",
            why="no engine was started in it",
            fix="name a run whose launch stage ran",
        )
    for path in paths:
        if len(paths) > 1:
            typer.echo(f"== {path.name} ==")
        for line in last_lines(path, lines):
            typer.echo(sanitize(line))
    if follow:
        for line in follow_log(paths[-1], LocalWorld()):
            typer.echo(sanitize(line))
