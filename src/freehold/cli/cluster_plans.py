"""Plans for hardware that may not be there: what was asked on the command line, and how the answer is shown.

Does not do: planning (``plan/cluster.py``), or plans of a recipe on this machine (``cli/plan.py``).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freehold.plan.subject import Subject
    from freehold.records.cluster_plan import ClusterPlan
    from freehold.records.recipe import Recipe

__all__ = ["ClusterRequest", "parse_nodes", "plan_and_show"]

_RANGE = re.compile(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?\Z")
_MOST_NODES = 1024
_MOST_COUNTS = 64
_DEFAULT_RULES = "vllm"
_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """What was asked for; None where nothing was said.

    Args:
        hardware: ``NAME`` or ``NAME:COUNT``.
        model: A catalogue name, a path or ``hf:OWNER/REPO``.
        recipe: A recipe instead of a model.
        engine: Whose rules of splitting.
        nodes: ``A..B``.
        context: Tokens per sequence.
        sequences: Sequences at once.
        kv_type: Storage of the cache.
        draft: Size of a draft model's weights.
        memory: What one unit gives to a model.
        usd_per_kwh: Price of electricity.
        input_per_output: Uncached input tokens per output token.
        tokens_per_month: Output tokens per month.
        catalogue: Folder with the user's own entries.
        is_explained: Whether to say why each alternative lost.
        as_json: Whether to print the record.
    """

    hardware: str | None
    model: str | None
    recipe: Path | None
    engine: str | None
    nodes: str | None
    context: int | None
    sequences: int | None
    kv_type: str | None
    draft: str | None
    memory: str | None
    usd_per_kwh: float | None
    input_per_output: float | None
    tokens_per_month: int | None
    catalogue: Path | None
    is_explained: bool
    as_json: bool


def parse_nodes(text: str) -> range:
    """Understand ``4`` or ``1..18``.

    Raises:
        InputError: It is neither, runs backwards, begins at 0, or asks for more than can be read.
    """
    from freehold.errors import InputError

    match = _RANGE.match(text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if match is None or not 1 <= first <= last <= _MOST_NODES or last - first >= _MOST_COUNTS:
        raise InputError(
            f"not a range of nodes: {text!r}",
            why=f"it runs upwards from at least 1 to at most {_MOST_NODES:,}, over at most {_MOST_COUNTS} numbers",
            fix="write it like `--nodes 1..18`",
        )
    return range(first, last + 1)


def plan_and_show(request: ClusterRequest) -> None:
    """Make the plan, show it, and end with 1 if nothing fits.

    Raises:
        InputError: What was asked makes no sense.
        PlanError: No layout of the asked number of nodes is possible and fits.
    """
    from freehold.cli.catalogues import user_files
    from freehold.cli.cluster_tables import render_cluster_plan
    from freehold.cli.render import sanitize, write_record
    from freehold.engines.layout_rules import layout_rules
    from freehold.errors import InputError
    from freehold.evidence import Evidence
    from freehold.hardware.catalogue import hardware_catalogue, parse_hardware
    from freehold.plan.cluster import Prices, plan_cluster
    from freehold.plan.contract import Demand
    from freehold.units import parse_bytes

    files = user_files(request.catalogue)
    recipe = _recipe(request.recipe)
    if request.hardware is None and (recipe is None or recipe.hardware is None):
        raise InputError(
            "no hardware to plan for",
            why="without one only a recipe can be planned, for this machine",
            fix="add for example `--hardware dgx-spark:4`; `freehold catalog list` shows what there is",
        )
    hardware, count = parse_hardware(
        request.hardware or (recipe.hardware if recipe is not None and recipe.hardware else ""),
        hardware_catalogue(files.hardware),
    )
    subject = _subject(request, recipe, files.models)
    node_range = None if request.nodes is None else parse_nodes(request.nodes)
    record = plan_cluster(
        subject,
        hardware,
        layout_rules(request.engine or (recipe.engine.name if recipe is not None else _DEFAULT_RULES)),
        Demand(
            context_tokens=request.context or (recipe.context if recipe is not None else _DEFAULT_CONTEXT),
            sequences=request.sequences or (recipe.sequences if recipe is not None else 1),
            kv_type=request.kv_type,
            draft_bytes=0 if request.draft is None else parse_bytes(request.draft),
        ),
        nodes=count if count is not None or node_range is not None else 1,
        node_range=node_range,
        prices=Prices(
            usd_per_kwh=request.usd_per_kwh,
            input_per_output=request.input_per_output,
            tokens_per_month=request.tokens_per_month,
        ),
        budget=None
        if request.memory is None
        else Evidence.assumed(_positive_bytes(request.memory), "bytes_memory", source="given with --memory"),
        made_from={"inventory_headers": subject.inventory.header_sha256},
    )
    if request.as_json:
        write_record(record)
    else:
        lines = render_cluster_plan(record, is_explained=request.is_explained)
        sys.stdout.flush()
        sys.stdout.buffer.write("".join(f"{sanitize(line)}\n" for line in lines).encode())
        sys.stdout.buffer.flush()
    _refuse(record)


def _positive_bytes(text: str) -> int:
    from freehold.errors import InputError
    from freehold.units import parse_bytes

    size = parse_bytes(text)
    if size < 1:
        raise InputError(f"no memory: {text!r}", why="a model needs some", fix="write it like `--memory 118GiB`")
    return size


def _recipe(path: Path | None) -> Recipe | None:
    if path is None:
        return None
    from freehold.recipes.read import read_recipe

    return read_recipe(path)


def _subject(request: ClusterRequest, recipe: Recipe | None, model_files: tuple[Path, ...]) -> Subject:
    from freehold.errors import InputError
    from freehold.models.catalogue import find_model, instantiate, model_catalogue
    from freehold.models.inventory import read_inventory, read_remote_inventory
    from freehold.models.source import parse_source
    from freehold.plan.subject import Subject

    if request.model is not None and recipe is not None:
        raise InputError("both a recipe and --model", why="a recipe names its model", fix="leave one of the two out")
    text = request.model or (recipe.model if recipe is not None else None)
    if text is None:
        raise InputError(
            "no model to plan for",
            why="`--hardware` plans for machines that may not be there, and needs to know what for",
            fix="add for example `--model kimi-k3`; `freehold catalog list` shows what there is",
        )
    if text.startswith(("hf:", "pypi:")) or Path(text).expanduser().exists():
        source = parse_source(text)
        if source.path is not None:
            return Subject.of_inventory(read_inventory(source.path))
        if source.repo is not None:
            from freehold.cli.stages import StageDisplay

            with StageDisplay(is_quiet=request.as_json) as listener:
                return Subject.of_inventory(
                    read_remote_inventory(source.repo, source.revision, file=source.file, listener=listener)
                )
        raise InputError(
            f"{source.text} is a package, which can only be planned once it is here",
            why="a wheel's content cannot be read in pieces",
            fix="`freehold plan RECIPE` fetches the model of a recipe; or name a catalogue model",
        )
    return Subject.of_model(instantiate(*find_model(text, model_catalogue(model_files))))


def _refuse(record: ClusterPlan) -> None:
    from freehold.errors import PlanError

    if record.nodes is None or record.chosen is not None or any(x.is_legal and x.fits is None for x in record.layouts):
        return
    answer = record.answers["resident"]
    legal = [x for x in record.layouts if x.is_legal]
    counts = {name: e.number for name, e in record.min_nodes.items() if e.number is not None}
    fewest = max(counts.values(), default=None)
    more = f"`--hardware {record.hardware}:{fewest}` is the first with room to plan for" if fewest else "more memory"
    units = "unit" if record.nodes == 1 else "units"
    raise PlanError(
        f"no layout over {record.nodes} {units} of {record.hardware} " + ("fits" if legal else "is possible"),
        why=answer.reason,
        fix=f"{more}, a smaller model, or `--explain` for every layout" if legal else "another number of units",
        facts={"budget_bytes": record.budget_bytes.value, "min_nodes": counts},
    )
