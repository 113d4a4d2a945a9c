"""``freehold preflight``: check this machine against a run again.

Does not do: any check (``preflight/``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["preflight"]


def preflight(
    run: Annotated[Path, typer.Argument(help="Run folder that `freehold up` made.", show_default=False)],
    cache: Annotated[
        Path | None, typer.Option(help="Folder for downloaded models.", envvar="FREEHOLD_CACHE", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the journey's record as JSON.")] = False,
) -> None:
    """Check this machine against a run's plan again; nothing is started."""
    from freehold.cli.rerun import rerun_and_show

    rerun_and_show(run, "preflight", as_json=as_json, cache=cache)
