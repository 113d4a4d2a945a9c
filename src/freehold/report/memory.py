"""What is said about memory: every predicted term, what had to be free, and what was measured after load.

Read :func:`memory_section`.

Does not do: predicting (``plan/``).
"""

from __future__ import annotations

from freehold.evidence import Evidence, calculate
from freehold.report.document import (
    Block,
    Chart,
    Cited,
    Column,
    Facts,
    Figure,
    Row,
    RowGroup,
    Section,
    Table,
    Text,
)
from freehold.report.load import RunRecords, Stage
from freehold.units import format_number

__all__ = ["actual_share", "memory_actual", "memory_figures", "memory_predicted", "memory_section"]


def memory_predicted(run: RunRecords) -> Evidence:
    """The predicted steady state."""
    if run.plan is not None:
        return run.plan.contract.steady_bytes
    if run.deployment is not None:
        return run.deployment.memory_predicted_bytes
    return Evidence.not_measured(run.why_missing(Stage.PLAN), "bytes")


def memory_actual(run: RunRecords) -> Evidence:
    """What the engine's process really held after load."""
    if run.deployment is not None:
        return run.deployment.memory_actual_bytes
    return Evidence.not_measured(run.why_missing(Stage.DEPLOYMENT), "bytes")


def actual_share(run: RunRecords) -> Evidence:
    """Measured memory over predicted memory; 1 is a perfect prediction."""
    predicted = memory_predicted(run)
    if predicted.number == 0:
        return Evidence.not_measured("the prediction is zero bytes", "share")
    return calculate(
        "share",
        "resident after load ÷ predicted steady state",
        lambda resident_after_load, predicted_steady_state: resident_after_load / predicted_steady_state,
        resident_after_load=memory_actual(run),
        predicted_steady_state=predicted,
    )


def memory_figures(run: RunRecords) -> tuple[Figure, ...]:
    """The headline number of memory: what was measured, beside what was predicted."""
    predicted, share = memory_predicted(run), actual_share(run)
    if predicted.is_missing:
        note = "no prediction to compare with"
    elif share.is_missing:
        note = f"predicted {predicted.text}"
    else:
        note = f"{share.text} of the predicted {predicted.text}"
    value = Cited(name="memory after load", evidence=memory_actual(run))
    return (Figure(label="memory after load", scope="engine, resident set", value=value, note=note),)


def memory_section(run: RunRecords) -> Section:
    """The chapter on memory."""
    blocks: list[Block] = []
    plan = run.plan
    if plan is None:
        blocks.append(Text(text=run.missing_text(Stage.PLAN, "Memory plan"), is_missing=True))
    else:
        free = plan.free_memory_bytes
        blocks.append(
            Chart(
                name="memory",
                caption="Predicted, term by term, beside what was measured after load. "
                f"Free before the start: {free.text}.",
                alternative="Memory terms as a stacked bar; the numbers are in the table below.",
                missing="" if any(term.bytes.number for term in plan.terms) else "no term of the plan has a size",
            )
        )
    blocks.append(_table(run))
    if plan is not None:
        fits = "not known" if plan.fits is None else "yes" if plan.fits else "no"
        blocks.append(
            Facts(
                slug="plan-facts",
                caption="The question that was planned",
                items=(
                    ("fits", fits),
                    ("context", f"{format_number(plan.context_tokens, 'tokens')} per sequence"),
                    ("sequences at once", format_number(plan.sequences, "")),
                    ("longest context that fits", Cited(name="longest context", evidence=plan.max_context_tokens)),
                    ("bytes read per decode step", Cited(name="bytes per decode step", evidence=plan.step_bytes)),
                    (
                        "memory read bandwidth",
                        Cited(name="memory read bandwidth", evidence=plan.read_bandwidth_bytes_per_s),
                    ),
                    ("decode ceiling", Cited(name="decode ceiling", evidence=plan.decode_ceiling_tok_per_s)),
                ),
            )
        )
        blocks += [Text(text=note) for note in plan.notes]
    return Section(
        slug="memory",
        title="Memory",
        lead="What had to be free before anything was loaded, and what the engine really took.",
        blocks=tuple(blocks),
    )


def _table(run: RunRecords) -> Table:
    groups = []
    if run.plan is not None:
        contract = run.plan.contract
        terms = [
            Row(
                cells=(
                    term.name.replace("_", " "),
                    Cited(name=f"memory term {term.name}", evidence=term.bytes),
                    term.detail,
                )
            )
            for term in run.plan.terms
        ]
        groups.append(RowGroup(title="predicted, term by term", rows=tuple(terms)))
        groups.append(
            RowGroup(
                title="memory contract",
                rows=(
                    _row("must be free before load", contract.contract_free_bytes),
                    _row("peak", contract.peak_bytes),
                    _row("steady state", contract.steady_bytes),
                    _row("free before the start", run.plan.free_memory_bytes),
                ),
            )
        )
    groups.append(
        RowGroup(
            title="predicted against actual",
            rows=(
                _row("predicted steady state", memory_predicted(run)),
                _row("resident after load", memory_actual(run)),
                _row("actual as a share of predicted", actual_share(run)),
            ),
        )
    )
    return Table(
        slug="memory-table",
        caption="Memory, predicted and actual",
        columns=(Column(title="memory"), Column(title="amount", is_numeric=True), Column(title="how it comes about")),
        groups=tuple(groups),
    )


def _row(name: str, evidence: Evidence) -> Row:
    source = evidence.reason if evidence.is_missing else evidence.source
    return Row(cells=(name, Cited(name=name, evidence=evidence), source or ""))
