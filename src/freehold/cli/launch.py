"""``freehold launch``: start the engine of a run again and leave it running.

Does not do: starting it (``launch/start.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["launch"]


def launch(
    run: Annotated[Path, typer.Argument(help="Run folder that `freehold up` made.", show_default=False)],
    cache: Annotated[
        Path | None, typer.Option(help="Folder for downloaded models.", envvar="FREEHOLD_CACHE", show_default=False)
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File that holds the server's API key.", show_default=False)
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=1, help="How long the engine may take to answer its first request, in seconds.")
    ] = 900.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the journey's record as JSON.")] = False,
) -> None:
    """Start the engine of a run again and wait until it really answers.

    The server stays; `freehold stop RUN` ends it. Verification and figures of the old server are set aside.
    """
    from freehold.cli.rerun import rerun_and_show

    rerun_and_show(run, "launch", as_json=as_json, cache=cache, api_key_file=api_key_file, timeout_s=timeout_s)
