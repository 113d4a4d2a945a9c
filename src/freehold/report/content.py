"""What a report says, in which order, independent of how it is rendered.

The verdict comes first, then the numbers that a person looks for, then everything that backs them, then what was not
measured. Read :func:`describe`.

Does not do: rendering (``page.py``, ``markdown.py``, ``terminal.py``).
"""

from __future__ import annotations

from dataclasses import replace

from freehold.evidence import DASH
from freehold.report.checks import preflight_section, verification_section
from freehold.report.document import Block, Cited, Column, Document, Figure, Row, RowGroup, Section, Table, cited_in
from freehold.report.headline import document_mark, judge
from freehold.report.load import RunRecords, Stage
from freehold.report.memory import memory_figures, memory_section
from freehold.report.provenance import chain_section
from freehold.report.repeat import machine_text, model_text, repeat_section
from freehold.report.speed import ledger_section, speed_figures, speed_section

__all__ = ["describe"]

_STANDING_GAPS = (
    ("answer quality", "verification compares answers with a checkpoint's; it does not say how good they are"),
    ("speed at other context lengths", "only the prompt and output lengths listed under Speed were sent"),
    ("power and energy", "no stage of this run reads a power meter"),
)
"""What no record of this version can hold; listed so that its absence is not read as a zero."""

_STAGE_NAMES = {
    Stage.INVENTORY: "checkpoint inventory",
    Stage.NODE: "machine facts",
    Stage.NODE_STATE: "machine state",
    Stage.PLAN: "memory plan",
    Stage.PREFLIGHT: "preflight",
    Stage.DEPLOYMENT: "deployment",
    Stage.VERIFICATION: "verification",
    Stage.BENCH: "benchmark",
}


def describe(run: RunRecords) -> Document:
    """Everything a report says about a run.

    Args:
        run: The records, complete or not.

    Returns:
        The same document for the same records, wherever and whenever it is made.
    """
    mark = document_mark(run)
    sections = [
        speed_section(run),
        ledger_section(run),
        memory_section(run),
        verification_section(run),
        preflight_section(run),
        repeat_section(run),
        chain_section(run),
    ]
    document = Document(
        title=_title(run),
        subtitle=_subtitle(run),
        headline=judge(run),
        figures=speed_figures(run) + memory_figures(run) + _ready_figures(run),
        sections=tuple(sections),
        mark=mark,
    )
    gaps = _gaps_section(run, document)
    sections.insert(5, gaps)
    marked = tuple(replace(s, blocks=tuple(_marked(b, mark) for b in s.blocks)) for s in sections)
    return replace(document, sections=marked)


def _ready_figures(run: RunRecords) -> tuple[Figure, ...]:
    """How long a user waits after a launch; nothing for a server that was there already."""
    if run.deployment is None or run.is_attached:
        return ()
    value = Cited(name="launch until the first completion", evidence=run.deployment.ready_s)
    return (Figure(label="ready after", scope="from launch to an answer", value=value),)


def _title(run: RunRecords) -> str:
    if run.recipe is not None:
        return run.recipe.name
    if run.deployment is not None:
        return run.deployment.model
    return run.journey.name if run.journey is not None else "run without a recipe"


def _subtitle(run: RunRecords) -> tuple[str, ...]:
    engine = ""
    if run.deployment is not None:
        engine = " ".join(part for part in (run.deployment.engine, run.deployment.engine_version) if part)
    elif run.recipe is not None:
        engine = run.recipe.engine.name
    server = run.deployment.base_url if run.deployment is not None and run.is_attached else model_text(run)
    started = run.journey.started_at if run.journey is not None else run.bench.started_at if run.bench else ""
    return tuple(part for part in (server, engine, machine_text(run), started) if part)


def _marked(block: Block, mark: str) -> Block:
    if isinstance(block, Table) and mark and mark not in block.mark:
        return replace(block, mark=f"{mark}, {block.mark}" if block.mark else mark)
    return block


def _gaps_section(run: RunRecords, document: Document) -> Section:
    """The chapter on what was not measured: one line per reason, with everything it holds for."""
    names_by_reason: dict[str, list[str]] = {}
    for stage in Stage:
        reason = run.why_missing(stage)
        if reason:
            names_by_reason.setdefault(reason, []).append(_STAGE_NAMES[stage])
    for cited in cited_in(document):
        if cited.evidence.is_missing:
            names = names_by_reason.setdefault(cited.evidence.reason or "", [])
            if cited.name not in names:
                names.append(cited.name)
    rows = [Row(cells=("\n".join(names), DASH, reason)) for reason, names in names_by_reason.items()]
    rows += [Row(cells=(name, DASH, reason)) for name, reason in _STANDING_GAPS]
    table = Table(
        slug="gaps",
        caption="Not measured, and why",
        columns=(Column(title="what"), Column(title="value", is_numeric=True), Column(title="why")),
        groups=(RowGroup(rows=tuple(rows)),),
    )
    return Section(
        slug="not-measured",
        title="What was not measured",
        lead="A dash is not a zero and not an estimate.",
        blocks=(table,),
    )
