"""``freehold plan``: does a recipe fit this machine, and how fast can it be at most; or a model on other hardware.

Does not do: planning (``plan/``), or showing plans for other hardware (``cli/cluster_plans.py``).
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freehold.evidence import Evidence
    from freehold.plan.here import PlannedHere
    from freehold.records.plan import Plan
    from freehold.records.recipe import Recipe

__all__ = ["plan"]

_MIN_DETAIL_COLUMNS = 24


def plan(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="Recipe file; without one, the small embedded model is planned.", show_default=False),
    ] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Context per sequence, in tokens.")] = None,
    sequences: Annotated[int | None, typer.Option(min=1, help="Sequences served at once.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for downloaded models.", envvar="FREEHOLD_CACHE", show_default=False)
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(help="Plan for this hardware instead of this machine: NAME or NAME:COUNT.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --hardware: a catalogue model, a path or hf:OWNER/REPO.", show_default=False),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="With --hardware: numbers of units to compare, such as 1..18.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="With --hardware: whose way of splitting; vllm by default.")
    ] = None,
    kv_type: Annotated[str | None, typer.Option(help="With --hardware: storage of the KV cache, such as fp8.")] = None,
    draft: Annotated[
        str | None, typer.Option(help="With --hardware: size of a draft model's weights, such as 7.1GB.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="With --hardware: what one unit gives to a model, such as 118GiB.")
    ] = None,
    usd_per_kwh: Annotated[float | None, typer.Option(min=0, help="With --hardware: price of electricity.")] = None,
    input_per_output: Annotated[
        float | None, typer.Option(min=0, help="With --hardware: uncached input tokens per output token.")
    ] = None,
    tokens_per_month: Annotated[
        int | None, typer.Option(min=1, help="With --hardware: output tokens per month, for the break-even.")
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(help="Folder with your own catalogue.", envvar="FREEHOLD_CATALOGUE", show_default=False),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="With --hardware: say why each layout lost.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show whether a recipe fits this machine and how fast it can be at most.

    Every share of memory is shown with the sum it comes from. The decode ceiling is what this machine's memory
    permits, measured now: a bound, never a prediction. Exits with 1 if the recipe does not fit.

    With --hardware it plans for machines that may not be there: every layout of a model over them with its memory per
    rank and its bounds, node counts, cost, and what "can it run" comes to.
    """
    prices = (usd_per_kwh, input_per_output, tokens_per_month)
    elsewhere = (hardware, model, nodes, engine, kv_type, draft, memory, *prices, explain or None)
    if any(value is not None for value in elsewhere):
        from freehold.cli.cluster_plans import ClusterRequest, plan_and_show

        plan_and_show(
            ClusterRequest(
                hardware=hardware,
                model=model,
                recipe=recipe,
                engine=engine,
                nodes=nodes,
                context=context,
                sequences=sequences,
                kv_type=kv_type,
                draft=draft,
                memory=memory,
                usd_per_kwh=usd_per_kwh,
                input_per_output=input_per_output,
                tokens_per_month=tokens_per_month,
                catalogue=catalogue,
                is_explained=explain,
                as_json=as_json,
            )
        )
        return
    from freehold.cli.journeys import default_cache
    from freehold.cli.render import write_record
    from freehold.cli.stages import StageDisplay
    from freehold.plan.estimate import refuse
    from freehold.plan.here import plan_here
    from freehold.world import LocalWorld

    asked = _recipe(recipe, context, sequences)
    with StageDisplay(is_quiet=as_json) as listener:
        found = plan_here(asked, LocalWorld(), cache=cache or default_cache(), listener=listener)
    if as_json:
        write_record(found.plan)
    else:
        _show(found)
    refuse(found.plan)


def _recipe(path: Path | None, context: int | None, sequences: int | None) -> Recipe:
    from freehold.recipes.read import embedded_recipe, read_recipe
    from freehold.recipes.rules import check_recipe

    recipe = read_recipe(path) if path is not None else embedded_recipe()
    changed = replace(
        recipe,
        context=recipe.context if context is None else context,
        sequences=recipe.sequences if sequences is None else sequences,
    )
    check_recipe(changed)
    return changed


def _show(found: PlannedHere) -> None:
    from freehold.cli.render import sanitize, terminal_width

    width = terminal_width()
    lines = [*_heading(found), "", *_memory(found.plan, width), "", *_speed(found.plan, width)]
    for note in found.plan.notes:
        lines += ["", *_wrapped("note: ", note, width)]
    sys.stdout.flush()
    sys.stdout.buffer.write("".join(f"{sanitize(line)}\n" for line in lines).encode())
    sys.stdout.buffer.flush()


def _heading(found: PlannedHere) -> Iterator[str]:
    from freehold.units import format_memory

    record, facts = found.plan, found.facts
    sequences = "1 sequence" if record.sequences == 1 else f"{record.sequences:,} sequences"
    yield f"{record.model} · {record.engine} · {record.context_tokens:,} tokens × {sequences}"
    cores = "1 core" if facts.num_cores == 1 else f"{facts.num_cores} cores"
    yield f"{facts.processor}, {cores}, {format_memory(facts.memory_bytes)} of memory"


def _memory(record: Plan, width: int) -> Iterator[str]:
    """The terms, what they add up to, and whether that much is free."""
    from freehold.units import format_memory

    peak, need, free = record.contract.peak_bytes, record.contract.contract_free_bytes, record.free_memory_bytes
    unknown = f"more than {format_memory(_known_bytes(record))}: not every term is known" if need.is_missing else ""
    rows = [("memory", "size", "trust", "how")]
    rows += [(t.name.replace("_", " "), t.bytes.text, _trust(t.bytes), _how(t.bytes, t.detail)) for t in record.terms]
    totals = [
        ("peak", peak.text, _trust(peak), unknown or "the sum; all of it is taken during the load"),
        ("must be free", need.text, _trust(need), unknown or need.source),
        ("is free", free.text, _trust(free), _how(free, free.source)),
    ]
    names = max(len(row[0]) for row in (*rows, *totals))
    sizes = max(len(row[1]) for row in (*rows, *totals))
    trusts = max(len(row[2]) for row in (*rows, *totals))
    for i, (name, size, trust, how) in enumerate((*rows, *totals)):
        if i == len(rows):
            yield "─" * (names + sizes + trusts + 4)
        yield from _wrapped(f"{name:<{names}}  {size:>{sizes}}  {trust:<{trusts}}  ", how, width)
    verdict = {True: "fits", False: "does not fit", None: "not known whether it fits"}[record.fits]
    needed = f"more than {format_memory(_known_bytes(record))}" if need.is_missing else need.text
    yield ""
    yield f"{verdict}: {needed} must be free, {'an unknown amount' if free.is_missing else free.text} is"


def _known_bytes(record: Plan) -> int:
    return sum(round(term.bytes.number) for term in record.terms if term.bytes.number is not None)


def _speed(record: Plan, width: int) -> Iterator[str]:
    rows: list[tuple[str, Evidence]] = [
        ("longest context", record.max_context_tokens),
        ("read per token", record.step_bytes),
        ("memory read bandwidth", record.read_bandwidth_bytes_per_s),
        ("decode ceiling", record.decode_ceiling_tok_per_s),
    ]
    names, values = max(len(name) for name, _ in rows), max(len(e.text) for _, e in rows)
    for name, evidence in rows:
        how = _how(evidence, evidence.source)
        if evidence is record.decode_ceiling_tok_per_s and not evidence.is_missing:
            how = f"{how}, one sequence, empty context: a bound, never a prediction"
        yield from _wrapped(f"{name:<{names}}  {evidence.text:>{values}}  ", how, width)


def _trust(evidence: Evidence) -> str:
    return "" if evidence.is_missing else str(evidence.trust)


def _how(evidence: Evidence, otherwise: str) -> str:
    """The sum, or what is missing at the bottom of it: ``needs a: needs b: reason`` becomes the reason."""
    if not evidence.is_missing:
        return otherwise
    return f"not known: {re.sub(r'^(needs [^:]+: )+', '', evidence.reason or '')}"


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Text behind a label; below the label's end where it is long, below the label where that leaves no room."""
    indent = len(label) if width - len(label) >= _MIN_DETAIL_COLUMNS else 4
    return textwrap.wrap(
        label + text if text else label.rstrip(),
        width,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [label.rstrip()]
