"""``freehold verify``: check the answers of a run's server again.

Does not do: any check (``verify/``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["verify"]


def verify(
    run: Annotated[Path, typer.Argument(help="Run folder whose server is running.", show_default=False)],
    reference: Annotated[
        str | None, typer.Option(help="Reference to verify answers against: a file, or embedded:NAME.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File that holds the server's API key.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the journey's record as JSON.")] = False,
) -> None:
    """Check again whether a run's server answers as its checkpoint should.

    Figures that were measured before are set aside: they belong to the verification that was current then.
    """
    from freehold.cli.rerun import rerun_and_show

    rerun_and_show(run, "verify", as_json=as_json, reference=reference, api_key_file=api_key_file)
