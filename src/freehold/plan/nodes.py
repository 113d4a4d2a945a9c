"""How many nodes hold a model at least, and with fewer bits per weight: capacity before layout, cache and system.

One node is taken to hold what its label says, what its system exposes, or a share of the label that leaves room for
system, runtime and cache; the answers differ, so all are given. Tensor payload counts, not the size of the files.
Read :func:`min_nodes`, then :func:`hypothetical_widths`.

Does not do: layouts; enough memory in total is not a way to use it (``plan/cluster.py``).
"""

from __future__ import annotations

from math import ceil

from freehold.evidence import Evidence, calculate
from freehold.hardware.catalogue import Hardware
from freehold.plan.cost import assumption
from freehold.plan.layouts import ROUTED
from freehold.plan.subject import Subject
from freehold.records.cluster_plan import HypotheticalWidth, NodeCount

__all__ = ["count_node", "hypothetical_widths", "min_nodes", "node_bases"]

_LOWEST_BITS = 2


def node_bases(hardware: Hardware) -> dict[str, Evidence]:
    """What one unit can be taken to hold, by basis.

    Args:
        hardware: The unit.
    """
    labelled = hardware.fact("memory", "labelled")
    share = calculate(
        "bytes_memory", "label × share", lambda label, share: label * share,
        label=labelled, share=assumption("planning_share"),
    )  # fmt: skip
    bases = {"labelled": labelled, "exposed": hardware.fact("memory", "exposed"), "planning": share}
    return {name: evidence for name, evidence in bases.items() if not evidence.is_missing}


def min_nodes(payload: Evidence, hardware: Hardware) -> dict[str, Evidence]:
    """Fewest units that hold the payload, by basis; nothing else is in them then.

    Args:
        payload: Tensor bytes.
        hardware: The unit.
    """
    return {
        name: calculate(
            "nodes", "tensor payload / bytes per node, rounded up",
            lambda payload, per_node: ceil(payload / per_node), payload=payload, per_node=per_node,
        )
        for name, per_node in node_bases(hardware).items()
    }  # fmt: skip


def count_node(nodes: int, payload: Evidence, hardware: Hardware, *, layout: str | None, note: str) -> NodeCount:
    """What a number of nodes leaves beyond the payload.

    Args:
        nodes: How many.
        payload: Tensor bytes.
        hardware: The unit.
        layout: Best layout that fits; None where none does.
        note: Why none does.
    """
    count = Evidence.verified(nodes, "", source="nodes asked for")
    total = calculate(
        "bytes_disk", "label × nodes", lambda label, nodes: label * nodes,
        label=hardware.fact("memory", "labelled"), nodes=count,
    )  # fmt: skip
    left = calculate(
        "bytes_disk", "label × nodes − tensor payload", lambda total, payload: total - payload,
        total=total, payload=payload,
    )  # fmt: skip
    each = calculate("bytes_disk", "headroom / nodes", lambda left, nodes: left / nodes, left=left, nodes=count)
    return NodeCount(
        nodes=nodes,
        labelled_bytes=total,
        headroom_bytes=left,
        headroom_per_node_bytes=each,
        layout=layout,
        note=note,
    )


def hypothetical_widths(subject: Subject, hardware: Hardware) -> tuple[HypotheticalWidth, ...]:
    """The model with one and more bits less per routed weight, scales kept: what no file may exist of.

    Args:
        subject: The model; without a known number of bits per routed weight there is nothing to take away.
        hardware: The unit.
    """
    native = None if subject.model is None else subject.model.routed_code_bits
    if native is None:
        return ()
    weights = Evidence.verified(
        sum(_weights(t.shape) for t in subject.inventory.tensors if t.role in ROUTED),
        "",
        source="weights of the routed experts",
    )
    payload = subject.payload
    found = []
    for bits in range(native - 1, _LOWEST_BITS - 1, -1):
        smaller = calculate(
            "bytes_disk", "tensor payload − routed weights × bits less / 8, scales kept",
            lambda payload, weights, less: payload - weights * less / 8, payload=payload, weights=weights,
            less=Evidence.assumed(native - bits, "bits", source=f"{bits} bits instead of {native}"),
        )  # fmt: skip
        found.append(HypotheticalWidth(bits=bits, tensor_bytes=smaller, nodes_by_basis=min_nodes(smaller, hardware)))
    return tuple(found)


def _weights(shape: tuple[int, ...]) -> int:
    total = 1
    for axis in shape:
        total *= axis
    return total
