"""Which routes, fields and counters does a kind of server have? Facts from ``data/engines/*_api.toml``, typed.

Read :func:`load_api_facts`, then :func:`read_counters`, which turns a metrics page into our names.

Does not do: asking a server (``engines/asking.py``).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

__all__ = ["ApiFacts", "load_api_facts", "read_counters", "read_labels"]

# One sample of the Prometheus text format: name, labels, value (and a time stamp that is ignored).
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(\{.*\})?[ \t]+(\S+)")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """What one kind of server calls things.

    Args:
        source: Where the facts come from.
        checked: ISO date of the last look.
        routes: Our name of a route → path below the server's root address.
        recognise: Values that only this kind of server answers.
        listed: Numbers of most likely tokens to ask for when scoring, tried in this order.
        counters: Our name of a counter → metrics whose sum it is.
        labels_metric: Metric whose labels tell the configuration; empty without.
        labels: Label → our name of a configuration value.
    """

    source: str
    checked: str
    routes: Mapping[str, str]
    recognise: Mapping[str, str]
    listed: tuple[int, ...]
    counters: Mapping[str, tuple[str, ...]]
    labels_metric: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=8)
def load_api_facts(name: str) -> ApiFacts:
    """The facts of one kind of server: ``llama_cpp``, ``vllm`` or ``openai``, the names of the files."""
    text = resources.files("freehold").joinpath(f"data/engines/{name}_api.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    labels = table.get("labels", {})
    return ApiFacts(
        source=table["source"],
        checked=table["checked"],
        routes=table["routes"],
        recognise=table["recognise"],
        listed=tuple(table["scoring"]["listed"]),
        counters={ours: tuple(theirs) for ours, theirs in table["counters"].items()},
        labels_metric=labels.get("metric", ""),
        labels=labels.get("names", {}),
    )


def read_counters(metrics: str, facts: ApiFacts) -> dict[str, float]:
    """Counters by our names from a Prometheus text page; one whose metrics are all absent is left out.

    Samples of one metric that differ only in labels are added up. A sample that is no finite number is no sample.
    """
    totals: dict[str, float] = {}
    for line in metrics.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            totals[match[1]] = totals.get(match[1], 0.0) + value
    found = {}
    for ours, theirs in facts.counters.items():
        present = [totals[name] for name in theirs if name in totals]
        if present:
            found[ours] = sum(present)
    return found


def read_labels(metrics: str, facts: ApiFacts) -> dict[str, str]:
    """Configuration values by our names from the labels of the metric that carries them."""
    for line in metrics.splitlines():
        match = _SAMPLE.match(line)
        if match is not None and match[1] == facts.labels_metric and match[2]:
            labels = dict(_LABEL.findall(match[2]))
            return {ours: labels[theirs] for theirs, ours in facts.labels.items() if theirs in labels}
    return {}
