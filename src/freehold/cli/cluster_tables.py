"""Turns a plan over ranks and nodes into tables of at most 100 columns.

Does not do: writing them (``cli/cluster_plans.py``), or arithmetic.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freehold.evidence import Evidence
    from freehold.records.cluster_plan import ClusterPlan, LayoutPlan, RankPlan

__all__ = ["render_cluster_plan"]

_WIDTH = 100
_QUESTIONS = {
    "hosted_api": "call a hosted interface",
    "stored_on_ssd": "store the files on disk",
    "resident": "hold the weights in memory",
    "lower_bit": "run a derivative of fewer bits",
    "interactive": "interactive, one user",
    "production": "a production service",
}
_FIGURES = {
    "payload_headroom_bytes": "label − payload",
    "files_deficit_bytes": "files − label as GiB",
    "files_share": "files / label as GiB",
    "streaming_s_per_token": "from disk, per token",
    "streaming_tok_per_s": "from disk",
    "full_scan_s": "full scan",
    "optimistic_step_bytes": "active weights at 4 bits",
    "optimistic_steps_per_s": "steps/s at most",
}


def render_cluster_plan(record: ClusterPlan, *, is_explained: bool) -> Iterator[str]:
    """The lines of a plan.

    Args:
        record: The plan.
        is_explained: Whether to say why each alternative lost, and where the figures come from.
    """
    yield from _heading(record)
    if record.layouts:
        yield ""
        yield from _layouts(record)
    chosen = next((x for x in record.layouts if x.name == record.chosen), None)
    if chosen is not None:
        yield ""
        yield from _memory(chosen)
        yield ""
        yield from _bounds(record, chosen)
        yield from _speculation(record)
    if is_explained and record.layouts:
        yield ""
        for layout in record.layouts:
            yield from _wrap(f"{layout.name}: ", layout.verdict)
            for reason in layout.reasons[1:]:
                yield from _wrap("    ", reason)
        if chosen is not None:
            for name, evidence in chosen.ceilings.items():
                yield from _wrap(f"{_words(name)}: ", f"{evidence.text} = {evidence.source or evidence.reason}")
    yield ""
    yield from _nodes(record)
    if record.answers:
        yield ""
        yield from _answers(record)
    if record.cost:
        yield ""
        yield from _cost(record)
    for note in record.notes:
        yield from _wrap("note: ", note)


def _heading(record: ClusterPlan) -> Iterator[str]:
    from freehold.units import format_bytes, format_memory

    count = "" if record.nodes is None else f"{record.nodes} × "
    sequences = "1 sequence" if record.sequences == 1 else f"{record.sequences:,} sequences"
    yield f"{record.model} · {count}{record.hardware} · {record.context_tokens:,} tokens × {sequences}"
    payload = record.tensor_bytes.number
    if payload is not None:
        yield (
            f"tensors {record.tensor_bytes.text} = {format_memory(round(payload))} ({format_bytes(round(payload))}), "
            f"files {record.file_bytes.text}"
        )
    yield from _wrap(
        "one unit gives ",
        f"{record.budget_bytes.text}: {record.budget_bytes.origin}, "
        f"{record.budget_bytes.source or record.budget_bytes.reason}",
    )
    yield f"split as {record.rules} does it"


def _layouts(record: ClusterPlan) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        ("layout", "weights", "context", "must be free", "fits", "bound", "longest", "×4", "×16")
    ]
    for layout in record.layouts:
        if not layout.is_legal:
            continue
        fullest = _fullest(layout)
        bound = layout.ceilings.get("decode_ceiling_in_turn_tok_per_s")
        contexts = [layout.max_context_tokens.get(str(n)) for n in (1, 4, 16)]
        fits = {True: "yes", False: "no", None: "?"}[layout.fits]
        rows.append(
            (
                layout.name + (" *" if layout.name == record.chosen else "" if layout.is_supported else " †"),
                _gib(fullest.weights_bytes),
                "?" if layout.steady_bytes.is_missing else _gib(fullest.kv_bytes),
                layout.contract_free_bytes.text,
                fits,
                "—" if bound is None else bound.text,
                *("—" if c is None or c.number is None else f"{c.number:,}" for c in contexts),
            )
        )
    if len(rows) > 1:
        yield from _table(rows, right=range(1, 9))
        yield "per rank, the fullest one; bound: if nothing is read while ranks wait, never a prediction"
        marks = "* chosen" if record.chosen is not None else ""
        if any(x.is_legal and not x.is_supported for x in record.layouts):
            marks += f"{'; ' if marks else ''}† needs a patched engine"
        if marks:
            yield marks
    for layout in record.layouts:
        if not layout.is_legal:
            yield from _wrap(f"{layout.name} is not possible: ", "; ".join(layout.reasons[:2]))


def _fullest(layout: LayoutPlan) -> RankPlan:
    return max(layout.per_rank, key=lambda r: (r.peak_bytes, r.resident_bytes))


def _memory(layout: LayoutPlan) -> Iterator[str]:
    rank = _fullest(layout)
    rows = [(f"{layout.name}, rank {rank.rank}", "GiB")]
    for i, (name, size) in enumerate(rank.terms.items()):
        rows.append((_words(name) if i == 0 else f"+ {_words(name)}", _three(size)))
    rows.append(("= weights", _three(rank.weights_bytes)))
    rows.append(("+ context", _three(rank.kv_bytes)))
    if rank.draft_bytes:
        rows.append(("+ draft model", _three(rank.draft_bytes)))
    rows.append(("+ driver, workspace, graphs", _three(rank.runtime_bytes)))
    rows.append(("= while it serves", _three(rank.resident_bytes)))
    rows.append(("at the most", _three(rank.peak_bytes)))
    need = layout.contract_free_bytes.number
    rows.append(("must be free before the load, with a margin", "—" if need is None else _three(round(need))))
    yield from _table(rows, right=(1,))


def _bounds(record: ClusterPlan, layout: LayoutPlan) -> Iterator[str]:
    ceilings = layout.ceilings
    yield from _wrap(
        "one step reads ",
        f"{ceilings['step_bytes'].text} on the fullest rank, at least {ceilings['bandwidth_floor_s'].text}; "
        f"{ceilings['all_reduces'].text} messages between ranks, at least {ceilings['all_reduce_floor_s'].text}",
    )
    yield from _wrap(
        "bounds: ",
        f"{ceilings['decode_ceiling_in_turn_tok_per_s'].text} decode with an empty context, "
        f"{ceilings['decode_ceiling_at_context_tok_per_s'].text} at the asked one, "
        f"{ceilings['prefill_ceiling_tok_per_s'].text} prefill",
    )
    for published in record.published:
        share = published.share_of_ceiling.get(layout.name)
        if share is None:
            said = "another layout than this one"
        else:
            said = f"{share.text} of the bound" if not share.is_missing else str(share.reason)
        yield from _wrap("measured by others: ", f"{published.decode_tok_per_s.text}, {said} ({published.config})")


def _speculation(record: ClusterPlan) -> Iterator[str]:
    for choice in record.speculation:
        speeds = ", ".join(f"{depth}: {e.text}" for depth, e in choice.decode_tok_per_s_by_depth.items())
        yield from _wrap(
            f"drafting, {choice.workload}: ",
            f"{choice.depth} tokens a step are best of what others measured ({speeds})",
        )


def _nodes(record: ClusterPlan) -> Iterator[str]:
    bases = {"labelled": "by the label", "exposed": "by what the system exposes", "planning": "with room to plan for"}
    counts = [f"{e.number} {bases.get(name, name)}" for name, e in record.min_nodes.items() if e.number is not None]
    if counts:
        yield from _wrap("units that hold the tensors at least: ", ", ".join(counts))
    for width in record.hypothetical:
        counts = [
            f"{e.number} {bases.get(name, name)}" for name, e in width.nodes_by_basis.items() if e.number is not None
        ]
        size = width.tensor_bytes.number
        shown = "—" if size is None else f"{size / 1e12:,.4f} TB" if size >= 1e12 else f"{size / 1e9:,.1f} GB"
        yield from _wrap(
            f"with {width.bits} bits per routed weight, {shown} (no such file is known): ", ", ".join(counts)
        )
    if record.node_counts:
        yield ""
        rows = [("units", "label, GB", "headroom, GB", "per unit, GB", "best layout that fits")]
        for row in record.node_counts:
            rows.append(
                (
                    f"{row.nodes:,}",
                    _gb(row.labelled_bytes),
                    _gb(row.headroom_bytes),
                    _gb(row.headroom_per_node_bytes),
                    _shorten(row.layout or f"none: {row.note}", 48),
                )
            )
        yield from _table(rows, right=(0, 1, 2, 3))
        yield "headroom is the label less the tensors; whether a layout fits counts context, runtime and margin too"


def _answers(record: ClusterPlan) -> Iterator[str]:
    for key, answer in record.answers.items():
        yield from _wrap(f"{_QUESTIONS.get(key, key)}: ", f"{answer.answer}. {answer.reason}")
        figures = [
            f"{label} {_figure(key, answer.evidence[key])}"
            for key, label in _FIGURES.items()
            if key in answer.evidence and not answer.evidence[key].is_missing
        ]
        if figures:
            yield from _wrap("    ", " · ".join(figures))


def _figure(key: str, evidence: Evidence) -> str:
    value = evidence.number
    if value is None:
        return evidence.text
    if key == "payload_headroom_bytes":
        return f"{value / 1e9:,.3f} GB"
    if key == "files_deficit_bytes":
        return f"{value / 2**30:,.3f} GiB"
    if key == "files_share":
        return f"{value:.3f}×"
    if key == "streaming_tok_per_s":
        return f"{value:.3f} tok/s"
    return evidence.text


def _cost(record: ClusterPlan) -> Iterator[str]:
    names = {
        "purchase_usd": "purchase",
        "electricity_usd_per_node_year": "electricity, one unit a year at maximum power",
        "electricity_usd_per_year": "electricity, all a year",
        "hosted_usd_per_output_mtok": "hosted, a million output tokens with their input",
        "break_even_output_tokens": "purchase equals this many hosted output tokens",
        "break_even_months": "months until both have cost the same",
    }
    for key, evidence in record.cost.items():
        shown = evidence.text if not evidence.is_missing else f"— ({evidence.reason})"
        yield from _wrap(f"{names.get(key, key)}: ", shown)
    yield from _wrap("", "cables, switches, cooling, labour and downtime are not counted")


def _words(name: str) -> str:
    known = {"even_share": "an even share of the tensors", "mla_kv_b": "MLA kv_b in BF16"}
    return known.get(name, name.replace("_", " "))


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _three(size: int) -> str:
    return f"{size / 2**30:,.3f}"


def _gb(evidence: Evidence) -> str:
    return "—" if evidence.number is None else f"{evidence.number / 1e9:,.3f}"


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        label + text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False, drop_whitespace=True
    ) or [label.rstrip()]


def _table(rows: Sequence[Sequence[str]], *, right: Sequence[int] | range) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
