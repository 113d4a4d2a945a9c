"""One machine as a cluster of one, so that there is no second code path.

Does not do: links, or more than one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from freehold.records.node import NodeFacts

__all__ = ["Cluster", "local_cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Machines by name, in a fixed order; the first one runs what runs once."""

    nodes: Mapping[str, NodeFacts]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a cluster has at least one node")
        for name, facts in self.nodes.items():
            if name != facts.name:
                raise ValueError(f"the node {facts.name!r} stands under the name {name!r}")

    @property
    def head(self) -> NodeFacts:
        """The first machine."""
        return next(iter(self.nodes.values()))


def local_cluster(facts: NodeFacts) -> Cluster:
    """A cluster of one machine."""
    return Cluster(nodes={facts.name: facts})
