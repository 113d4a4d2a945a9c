"""``freehold status``: which servers freehold started, and whether they still answer.

Does not do: asking them (``launch/status.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["status"]


def status(
    folder: Annotated[Path, typer.Argument(help="A run folder, or a folder of runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one object per run as JSON.")] = False,
) -> None:
    """Show which servers freehold started and whether they still answer."""
    from freehold.cli.render import sanitize, write_json
    from freehold.launch.status import find_runs, run_status
    from freehold.world import LocalWorld

    world = LocalWorld()
    found = [run_status(run, world) for run in find_runs(folder)]
    if as_json:
        write_json(
            [{"run": one.name, "state": one.state, "base_url": one.base_url, "detail": one.detail} for one in found]
        )
        return
    if not found:
        typer.echo(f"no runs in {folder}")
    for one in found:
        address = f"  {one.base_url}" if one.base_url else ""
        typer.echo(sanitize(f"{one.state:<12} {one.name}{address}  {one.detail}".rstrip()))
