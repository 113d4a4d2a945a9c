"""``freehold stop``: end the servers of a run, and nothing else.

Does not do: ending them (``launch/stop.py``), or writing it down (``journey/ending.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["stop"]


def stop(
    run: Annotated[Path, typer.Argument(help="Run folder whose server is to end.", show_default=False)],
    timeout_s: Annotated[float, typer.Option(min=0, help="Seconds before a process that stays is killed.")] = 15.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what became of each process as JSON.")] = False,
) -> None:
    """End the servers that a run started, and nothing else.

    A process is ended only if its pid, start time and command line are those the run wrote down.
    """
    from freehold.cli.render import write_json
    from freehold.journey.ending import stop_run
    from freehold.records.folder import RunFolder
    from freehold.world import LocalWorld

    folder = RunFolder.open(run)
    with folder.lock():
        report = stop_run(folder, LocalWorld(), timeout_s=timeout_s)
    if as_json:
        write_json([{"pid": one.pid, "outcome": one.outcome, "detail": one.detail} for one in report.processes])
    else:
        typer.echo(report.summary)
