"""``freehold bench``: measure a run's verified server again.

Does not do: any measurement (``bench/``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["bench"]


def bench(
    run: Annotated[Path, typer.Argument(help="Run folder whose server is running.", show_default=False)],
    requests: Annotated[
        int, typer.Option(min=1, help="Counted requests per prompt class; 15 or more give an interval.")
    ] = 15,
    output_tokens: Annotated[int, typer.Option(min=2, help="Output tokens per request.")] = 128,
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="Streams in flight; repeat it for several arms.")
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Measure without a passing verification; every figure is marked.")
    ] = False,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File that holds the server's API key.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the prompts; random and recorded by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the journey's record as JSON.")] = False,
) -> None:
    """Measure again how fast a run's verified server is, as its client sees it."""
    from freehold.cli.rerun import rerun_and_show
    from freehold.records.recipe import BenchRequest

    rerun_and_show(
        run,
        "bench",
        as_json=as_json,
        request=BenchRequest(requests=requests, output_tokens=output_tokens, concurrency=tuple(concurrency or (1,))),
        is_unverified=unverified,
        api_key_file=api_key_file,
        seed=seed,
    )
