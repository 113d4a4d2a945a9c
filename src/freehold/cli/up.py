"""``freehold up``: the whole journey, on a recipe or on a server that is already running.

Does not do: any stage; ``journey/`` runs them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["up"]


def up(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="Recipe file; without one, a small embedded model is served.", show_default=False),
    ] = None,
    attach: Annotated[
        str | None, typer.Option(help="Verify and measure the server at this URL instead of starting one.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="With --attach: the model to ask for, where the server offers several.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Reference to verify answers against: a file, or embedded:NAME.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running at the end.")] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Measure even if verification fails; every figure is marked.")
    ] = False,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Counted requests per prompt class; 15 or more give an interval.")
    ] = None,
    output_tokens: Annotated[int | None, typer.Option(min=2, help="Output tokens per request.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Context per sequence, in tokens.")] = None,
    sequences: Annotated[int | None, typer.Option(min=1, help="Sequences served at once.")] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder for this run; runs/<utc>-<name> by default.", show_default=False)
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for downloaded models.", envvar="FREEHOLD_CACHE", show_default=False)
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File that holds the server's API key.", show_default=False)
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=1, help="How long the engine may take to answer its first request, in seconds.")
    ] = 900.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the prompts; random and recorded by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the journey's record as JSON.")] = False,
) -> None:
    """Plan, check, launch, verify, measure and report, in one go.

    Without arguments it serves a 135-million-parameter model on this machine's processor, which takes a few minutes and
    needs nothing but Python. Everything it finds is kept in a run folder; the server is stopped at the end.
    """
    from freehold.cli.journeys import Request, run_and_show

    run_and_show(
        Request(
            recipe=recipe,
            attach=attach,
            model=model,
            reference=reference,
            keep=keep,
            is_unverified=unverified,
            requests=requests,
            output_tokens=output_tokens,
            context=context,
            sequences=sequences,
            run_dir=run_dir,
            cache=cache,
            api_key_file=api_key_file,
            timeout_s=timeout_s,
            seed=seed,
        ),
        as_json=as_json,
    )
