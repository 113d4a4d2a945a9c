"""One machine is a cluster of one."""

from __future__ import annotations

import pytest

from freehold.cluster.local import Cluster, local_cluster
from freehold.records.node import NodeFacts

FACTS = NodeFacts(
    name="local", system="s", machine="m", processor="p", num_cores=1, memory_bytes=1, python="3", libraries={}
)


def test_a_cluster_of_one_is_its_machine() -> None:
    cluster = local_cluster(FACTS)
    assert cluster.nodes == {"local": FACTS}
    assert cluster.head is FACTS


def test_a_cluster_is_never_empty_and_names_agree() -> None:
    with pytest.raises(ValueError, match="at least one node"):
        Cluster(nodes={})
    with pytest.raises(ValueError, match="stands under the name 'b'"):
        Cluster(nodes={"b": FACTS})
