"""What ``launch``, ``preflight``, ``verify`` and ``bench`` share: one stage again, in a run folder.

Does not do: running the stage (``journey/rerun.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freehold.records.recipe import BenchRequest

__all__ = ["rerun_and_show"]


def rerun_and_show(
    run: Path,
    stage: str,
    *,
    as_json: bool,
    request: BenchRequest | None = None,
    reference: str | None = None,
    is_unverified: bool = False,
    api_key_file: Path | None = None,
    cache: Path | None = None,
    timeout_s: float = 900.0,
    seed: int | None = None,
) -> None:
    """Run one stage of a run again and show how it ended.

    Raises:
        FreeholdError: Whatever stopped it, after everything was saved and shown.
    """
    from freehold.cli.journeys import Request, open_scene, show
    from freehold.journey.rerun import rerun_stage
    from freehold.records.folder import RunFolder

    request_line = Request(
        is_unverified=is_unverified,
        keep=stage == "launch",
        api_key_file=api_key_file,
        cache=cache,
        timeout_s=timeout_s,
        seed=seed,
    )
    with open_scene(request_line, RunFolder.open(run)) as scene:
        outcome = rerun_stage(scene, stage, request=request, reference=reference)
    show(outcome, as_json=as_json)
