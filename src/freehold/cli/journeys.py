"""What ``up``, ``launch``, ``verify`` and ``bench`` share: command line to scene, journey to screen.

Does not do: running stages (``journey/``) or drawing progress (``cli/stages.py``).
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from freehold.cli.stages import StageDisplay
from freehold.errors import FreeholdError, InputError, PrerequisiteError

if TYPE_CHECKING:
    from freehold.journey.ending import JourneyOutcome
    from freehold.journey.steps import Scene
    from freehold.records.folder import RunFolder
    from freehold.records.recipe import BenchRequest, Recipe
    from freehold.secret import Secret

__all__ = ["Request", "default_cache", "new_folder", "open_scene", "read_key", "run_and_show", "show"]


_MAX_KEY_FILE_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of ``freehold up`` as they were given; None where one was not."""

    recipe: Path | None = None
    attach: str | None = None
    model: str | None = None
    reference: str | None = None
    keep: bool = False
    is_unverified: bool = False
    requests: int | None = None
    output_tokens: int | None = None
    context: int | None = None
    sequences: int | None = None
    run_dir: Path | None = None
    cache: Path | None = None
    api_key_file: Path | None = None
    timeout_s: float = 900.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.attach is None:
            if self.model is not None:
                raise InputError(
                    "`--model` without `--attach`",
                    why="a recipe names its model itself",
                    fix="change `model` in the recipe, or add `--attach URL`",
                )
            return
        given = {
            "a recipe": self.recipe is not None,
            "`--keep`": self.keep,
            "`--context`": self.context is not None,
            "`--sequences`": self.sequences is not None,
        }
        clashing = [name for name, is_given in given.items() if is_given]
        if clashing:
            raise InputError(
                f"{', '.join(clashing)} together with `--attach`",
                why="an attached server is already running with its own model and settings, and is never stopped",
                fix="leave out one or the other",
            )


def run_and_show(request: Request, *, as_json: bool) -> None:
    """Run a journey and show how it ended.

    Raises:
        FreeholdError: Whatever stopped the journey, after everything was saved and shown.
    """
    from freehold.journey.run import run_attached, run_recipe

    if request.attach is not None:
        from freehold.client.openai import normalise_url

        # An address that is none is told before there is a folder; one with a password in it is written nowhere.
        normalise_url(request.attach)
        bench = _bench_of(request, _attached_bench())
        with open_scene(request, new_folder(request, "attached")) as scene:
            outcome = run_attached(
                scene, request.attach, model=request.model, reference=request.reference, request=bench
            )
    else:
        recipe = _recipe_of(request)
        with open_scene(request, new_folder(request, recipe.name)) as scene:
            outcome = run_recipe(scene, recipe)
    show(outcome, as_json=as_json)


@contextmanager
def open_scene(request: Request, folder: RunFolder) -> Iterator[Scene]:
    """Lock a run folder, open the progress display and put the user's choices together."""
    from freehold.journey.steps import Choices, Scene
    from freehold.world import LocalWorld

    choices = Choices(
        cache=request.cache or default_cache(),
        command=shlex.join(["freehold", *sys.argv[1:]]),
        keep=request.keep,
        is_unverified=request.is_unverified,
        ready_timeout_s=request.timeout_s,
        api_key=read_key(request.api_key_file) if request.api_key_file else None,
        seed=request.seed if request.seed is not None else secrets.randbelow(2**32),
    )
    try:
        with folder.lock(), StageDisplay() as display:
            yield Scene(folder=folder, world=LocalWorld(), listener=display, choices=choices)
    finally:
        folder.discard_if_unused()


def new_folder(request: Request, name: str) -> RunFolder:
    """Make the folder of a new run."""
    from freehold.records.folder import RunFolder, run_name

    if request.run_dir is not None:
        return RunFolder.create(request.run_dir)
    wanted = Path("runs") / run_name(name, datetime.now(UTC))
    # Two runs may begin in the same second.
    places = [wanted, *(wanted.with_name(f"{wanted.name}-{n}") for n in range(2, 100))]
    return RunFolder.create(next((place for place in places if not place.exists()), wanted))


def show(outcome: JourneyOutcome, *, as_json: bool) -> None:
    """Show how a journey ended: its record as JSON, or one screen.

    Raises:
        FreeholdError: What stopped it.
    """
    from freehold.cli.render import write_record

    if as_json:
        write_record(outcome.journey)
    else:
        try:
            _show_summary(Path(outcome.journey.where["run"]))
        except FreeholdError:
            # A journey that ended on a full disk may have left nothing to read; its own error says more.
            if outcome.error is None:
                raise
    if outcome.error is not None:
        raise outcome.error


def _show_summary(path: Path) -> None:
    from rich.console import Console

    from freehold.records.folder import RunFolder
    from freehold.report.load import load_run
    from freehold.report.terminal import render_summary

    Console(highlight=False).print(render_summary(load_run(RunFolder.open(path))))


def default_cache() -> Path:
    """Folder for downloads: ``$XDG_CACHE_HOME/freehold``, else ``~/.cache/freehold``.

    Raises:
        PrerequisiteError: This user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "freehold"
    except RuntimeError:
        raise PrerequisiteError(
            "no place for downloaded models",
            why="neither $HOME nor the user database names a home folder",
            fix="name a folder with `--cache`",
        ) from None


def read_key(path: Path) -> Secret:
    """Read an API key from the file the user named; surrounding white space is not part of it.

    Raises:
        PrerequisiteError: The file cannot be read.
        InputError: It is empty, or holds something no HTTP header can carry.
    """
    from freehold.records.folder import read_limited
    from freehold.secret import Secret

    try:
        text = read_limited(path, _MAX_KEY_FILE_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PrerequisiteError(
            f"cannot read the API key from {path}",
            why=getattr(error, "strerror", None) or "it holds bytes that are no ASCII text",
            fix="name a file that holds the key and nothing else",
        ) from None
    if not text or any(not 32 < ord(c) < 127 for c in text):
        raise InputError(
            f"{path} holds no usable API key",
            why="it is empty, or has spaces, line breaks or control characters inside",
            fix="write the key alone into the file, on one line",
        )
    return Secret(text)


def _recipe_of(request: Request) -> Recipe:
    from freehold.recipes.read import embedded_recipe, read_recipe
    from freehold.recipes.rules import check_recipe

    recipe = read_recipe(request.recipe) if request.recipe is not None else embedded_recipe()
    changes: dict[str, object] = {
        key: value
        for key, value in (("context", request.context), ("sequences", request.sequences))
        if value is not None
    }
    if request.reference is not None:
        changes["verify"] = replace(recipe.verify, reference=request.reference)
    changes["bench"] = _bench_of(request, recipe.bench)
    changed = replace(recipe, **changes)  # type: ignore[arg-type]
    check_recipe(changed)
    return changed


def _bench_of(request: Request, bench: BenchRequest) -> BenchRequest:
    return replace(
        bench,
        requests=request.requests if request.requests is not None else bench.requests,
        output_tokens=request.output_tokens if request.output_tokens is not None else bench.output_tokens,
    )


def _attached_bench() -> BenchRequest:
    from freehold.records.recipe import BenchRequest

    return BenchRequest()
