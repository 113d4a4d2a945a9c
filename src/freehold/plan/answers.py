"""The six things that "can it run" may mean, each answered apart, with its reason and numbers.

A hosted interface, the files on a disk, resident weights, a derivative of fewer bits, interactive use and production
are different questions; a yes to one is no yes to another. Read :func:`answer_questions`.

Does not do: advice, or predicting a speed; a bound above a threshold makes use plausible, never certain.
"""

from __future__ import annotations

from collections.abc import Sequence

from freehold.engines.layout_rules import LayoutRules
from freehold.evidence import Evidence, Kind, calculate
from freehold.hardware.catalogue import Hardware
from freehold.plan.cost import assumption
from freehold.plan.nodes import hypothetical_widths
from freehold.plan.roofline import active_step_bytes, decode_steps_per_s, scan_s
from freehold.plan.subject import Subject
from freehold.records.catalogue import choose_fact
from freehold.records.cluster_plan import Answer, LayoutPlan
from freehold.units import format_memory

__all__ = ["answer_questions"]


def answer_questions(
    subject: Subject,
    hardware: Hardware,
    nodes: int,
    rules: LayoutRules,
    budget: Evidence,
    chosen: LayoutPlan | None,
    layouts: Sequence[LayoutPlan],
) -> dict[str, Answer]:
    """Answer the six questions for a model on a number of units.

    Args:
        subject: The model.
        hardware: One unit.
        nodes: How many.
        rules: Whose way of splitting was planned.
        budget: What one unit gives to a model.
        chosen: The layout that fits best; None where none does.
        layouts: Every layout that was looked at.
    """
    resident = _resident(subject, hardware, nodes, budget, chosen, layouts)
    lower = _lower_bit(subject, hardware, nodes, budget)
    return {
        "hosted_api": _hosted(subject),
        "stored_on_ssd": _stored(subject, hardware, nodes),
        "resident": resident,
        "lower_bit": lower,
        "interactive": _interactive(subject, hardware, nodes, chosen, resident, lower),
        "production": Answer(
            answer="no",
            reason="arithmetic cannot show it: long soak runs, cancellation, recovery, authentication and failover "
            f"have to be seen on {rules.name} with this hardware"
            + ("" if chosen is not None else ", and the weights are not resident"),
            evidence={},
        ),
    }


def _hosted(subject: Subject) -> Answer:
    prices = {f"{f.basis}_usd_per_mtok".replace(" ", "_"): f.evidence for f in subject.facts if f.name == "price"}
    if not prices:
        return Answer(answer="not known", reason="the catalogue has no hosted interface for it", evidence={})
    return Answer(answer="yes", reason="the publisher hosts it; that is remote inference, not local", evidence=prices)


def _stored(subject: Subject, hardware: Hardware, nodes: int) -> Answer:
    disk, size = hardware.fact("ssd"), subject.file_bytes
    evidence = {"file_bytes": size, "ssd_bytes": disk}
    if disk.number is None or size.number is None:
        return Answer(answer="not known", reason="the catalogue has no disk for this hardware", evidence=evidence)
    speed = hardware.fact("ssd_bandwidth")
    evidence["full_scan_s"] = scan_s(size, speed)
    active = active_step_bytes(subject.fact("active_params"), assumption("active_bits"))
    evidence["streaming_step_bytes"] = active
    evidence["streaming_s_per_token"] = scan_s(active, speed)
    evidence["streaming_tok_per_s"] = decode_steps_per_s(active, speed)
    fits = size.number <= disk.number
    each = "the disk" if nodes == 1 else "each disk"
    return Answer(
        answer="yes" if fits else "no",
        reason=f"{size.text} of files and {disk.text} on {each}; a disk is no second pool of memory",
        evidence=evidence,
    )


def _resident(
    subject: Subject,
    hardware: Hardware,
    nodes: int,
    budget: Evidence,
    chosen: LayoutPlan | None,
    layouts: Sequence[LayoutPlan],
) -> Answer:
    count = Evidence.verified(nodes, "", source="nodes asked for")
    payload, files = subject.payload, subject.file_bytes
    labelled, generous = hardware.fact("memory", "labelled"), hardware.fact("memory", "label as GiB")
    evidence = {
        "payload_headroom_bytes": calculate(
            "bytes_disk", "label × nodes − tensor payload", lambda label, nodes, payload: label * nodes - payload,
            label=labelled, nodes=count, payload=payload,
        ),
        "files_deficit_bytes": calculate(
            "bytes_memory", "files − label read as GiB × nodes", lambda files, label, nodes: files - label * nodes,
            files=files, label=generous, nodes=count,
        ),
        "files_share": calculate(
            "", "files / (label read as GiB × nodes)", lambda files, label, nodes: files / (label * nodes),
            files=files, label=generous, nodes=count,
        ),
    }  # fmt: skip
    if (evidence["files_deficit_bytes"].number or 0) < 0:
        del evidence["files_deficit_bytes"]
    evidence = {name: e for name, e in evidence.items() if not e.is_missing}
    if chosen is not None:
        evidence["contract_free_bytes"] = chosen.contract_free_bytes
        patch = "" if chosen.is_supported else f"; {chosen.reasons[-1]}"
        reason = f"{chosen.name} needs {chosen.contract_free_bytes.text} per rank{patch}"
        return Answer(answer="yes" if chosen.is_supported else "plausible", reason=reason, evidence=evidence)
    legal = [x for x in layouts if x.is_legal]
    if any(x.fits is None for x in legal):
        reason = subject.missing.rstrip(".") or "the memory of this hardware is not known"
        return Answer(answer="not known", reason=reason[:1].lower() + reason[1:], evidence=evidence)
    if not legal:
        reasons = [x.reasons[0] for x in layouts if x.reasons]
        return Answer(answer="no", reason=reasons[0] if reasons else "no layout is legal", evidence=evidence)
    least = min(legal, key=lambda x: max(r.peak_bytes for r in x.per_rank))
    need = least.contract_free_bytes
    needed = need.text
    if need.is_missing:
        needed = f"more than {format_memory(max(r.peak_bytes for r in least.per_rank))}"
    else:
        evidence["contract_free_bytes"] = need
    return Answer(
        answer="no",
        reason=f"the smallest layout, {least.name}, needs {needed} per rank of {budget.text}",
        evidence=evidence,
    )


def _lower_bit(subject: Subject, hardware: Hardware, nodes: int, budget: Evidence) -> Answer:
    available = budget.number
    files = [f for f in subject.facts if f.name == "derivative"]
    evidence = {f.basis: f.evidence for f in files}
    if available is None:
        return Answer(answer="not known", reason="the memory of this hardware is not known", evidence=evidence)
    fitting = [f for f in files if f.evidence.number is not None and f.evidence.number < available * nodes]
    if fitting:
        best = max(fitting, key=lambda f: f.evidence.number or 0)
        return Answer(
            answer="yes",
            reason=f"{best.basis}, {best.evidence.text}: a file that others made; what it loses was not measured here",
            evidence=evidence,
        )
    widths = hypothetical_widths(subject, hardware)
    evidence |= {f"{w.bits}_bit_bytes": w.tensor_bytes for w in widths}
    able = [w for w in widths if w.tensor_bytes.number is not None and w.tensor_bytes.number < available * nodes]
    if able:
        return Answer(
            answer="plausible",
            reason=f"{able[0].bits} bits per routed weight would come to {able[0].tensor_bytes.text}; no such file is "
            "known",
            evidence=evidence,
        )
    known = choose_fact(subject.facts, "derivative")
    reason = (
        "even two bits per routed weight would not fit"
        if widths
        else "no derivative is known"
        if known.is_missing
        else "every known derivative is larger"
    )
    return Answer(answer="no", reason=reason, evidence=evidence)


def _interactive(
    subject: Subject,
    hardware: Hardware,
    nodes: int,
    chosen: LayoutPlan | None,
    resident: Answer,
    lower: Answer,
) -> Answer:
    threshold = assumption("interactive_tok_per_s")
    step = active_step_bytes(subject.fact("active_params"), assumption("active_bits"))
    roof = decode_steps_per_s(step, hardware.fact("bandwidth"))
    evidence = {"threshold_tok_per_s": threshold}
    if not roof.is_missing:
        evidence |= {"optimistic_step_bytes": step, "optimistic_steps_per_s": roof}
    measured = [
        Evidence(
            value=float(row["value"]),
            kind=Kind(row["kind"]),
            unit="tok/s",
            source=f"{row['config']}: {row['source']}",
            date=str(row["checked"]),
        )
        for row in subject.published
        if row["hardware"] == hardware.name and row["nodes"] == nodes
    ]
    least = float(threshold.number or 0)
    if chosen is not None:
        ceiling = chosen.ceilings["decode_ceiling_in_turn_tok_per_s"]
        evidence["decode_ceiling_tok_per_s"] = ceiling
        fast = [m for m in measured if float(m.number or 0) >= least]
        if fast:
            evidence["published_tok_per_s"] = fast[0]
            return Answer(answer="yes", reason=f"others measured {fast[0].text} on this hardware", evidence=evidence)
        if measured:
            evidence["published_tok_per_s"] = measured[0]
            reason = f"others measured {measured[0].text} on this hardware, below {threshold.text}"
            return Answer(answer="no", reason=reason, evidence=evidence)
        if ceiling.number is not None and ceiling.number >= least:
            reason = f"the bound is {ceiling.text}; nobody measured it on this hardware"
            return Answer(answer="plausible", reason=reason, evidence=evidence)
        return Answer(answer="no", reason=f"the bound is {ceiling.text}, below {threshold.text}", evidence=evidence)
    if lower.answer == "yes":
        reason = "with a derivative of fewer bits, at most as fast as its own bytes per step permit"
        return Answer(answer="plausible", reason=reason, evidence=evidence)
    if resident.answer == "not known":
        return Answer(answer="not known", reason="it is not known whether it fits", evidence=evidence)
    return Answer(answer="no", reason="the weights are not resident", evidence=evidence)
