"""Is the machine quiet enough that a measurement means something?

Does not do: finding out who is busy, or making anybody stop.
"""

from __future__ import annotations

import re

from freehold.evidence import Evidence
from freehold.hardware.cgroup import read_text
from freehold.hardware.processor import parse_cpu_list
from freehold.preflight.question import Question, thresholds
from freehold.records.verdict import Outcome, Verdict
from freehold.world import utc_text

__all__ = ["busy_cores", "check_load", "parse_cpu_times"]

_IDLE_FIELDS = (3, 4)
"""Columns ``idle`` and ``iowait`` of a ``cpu`` line, from 0."""


def check_load(question: Question) -> Verdict:
    """Watch the processors that this process may use for a moment."""
    limits = thresholds()["load"]
    busy = busy_cores(question, limits["sample_s"])
    why = "what others compute is missing from every token, and the spread of the results hides it"
    if busy is None:
        return Verdict(
            check="load",
            outcome=Outcome.INCONCLUSIVE,
            observation="the system does not say how busy its processors are",
            why=why,
            remedy="look at the load yourself before you trust a speed",
        )
    evidence = Evidence.measured(
        busy,
        "cores",
        source=f"processor time over {limits['sample_s']} s, all processes",
        date=utc_text(question.world.now()),
        n=1,
    )
    cores = question.facts.num_cores
    shown = f"{busy:.1f} of {cores} {'core' if cores == 1 else 'cores'} busy before the start"
    if busy > limits["quiet_cores"]:
        return Verdict(
            check="load",
            outcome=Outcome.WARN,
            observation=shown,
            why=why,
            remedy="end other programs, or take the speeds as those of a busy machine",
            evidence={"busy": evidence},
        )
    return Verdict(check="load", outcome=Outcome.PASS, observation=shown, evidence={"busy": evidence})


def busy_cores(question: Question, sample_s: float) -> float | None:
    """Processors' worth of time that all processes together took during a moment; None where nobody says.

    Args:
        question: Whose world and root are used.
        sample_s: How long to watch.
    """
    status = read_text(question.root, "/proc/self/status") or ""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, flags=re.MULTILINE)
    allowed = frozenset(parse_cpu_list(match[1])) if match else None
    before = read_text(question.root, "/proc/stat")
    if before is None:
        return _from_psutil(sample_s)
    question.world.sleep(sample_s)
    first, second = (parse_cpu_times(t, allowed) for t in (before, read_text(question.root, "/proc/stat") or ""))
    shares = [
        (second[cpu][0] - first[cpu][0]) / total
        for cpu in first.keys() & second.keys()
        if (total := second[cpu][1] - first[cpu][1]) > 0
    ]
    return sum(max(0.0, share) for share in shares) if shares else None


def parse_cpu_times(text: str, allowed: frozenset[int] | None) -> dict[int, tuple[int, int]]:
    """Busy and total ticks of each processor in ``/proc/stat``.

    Args:
        text: The file.
        allowed: Processors that count; None for all.

    Source: proc_stat(5); guest time is part of user time and not counted twice.
    """
    found = {}
    for line in text.splitlines():
        match = re.match(r"cpu(\d+)((?:\s+\d+){5,})", line)
        if match is None or (allowed is not None and int(match[1]) not in allowed):
            continue
        ticks = [int(part) for part in match[2].split()][:8]
        found[int(match[1])] = (sum(ticks) - sum(ticks[i] for i in _IDLE_FIELDS), sum(ticks))
    return found


def _from_psutil(sample_s: float) -> float | None:
    import psutil

    return sum(psutil.cpu_percent(interval=sample_s, percpu=True)) / 100
