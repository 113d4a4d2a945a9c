"""How many tokens to draft per step: speed by depth, from step times and the acceptance of each position.

A step that verifies N drafted tokens takes step(N) and gives E(N) = 1 + p₁ + … + p_N tokens on average, where pᵢ is the
chance that position i is kept. Speed is E(N) / step(N). If one more position costs m, it pays exactly where

    (E + p) / (S + m) > E / S   ⇔   p > m · E / S,

that is, where its acceptance exceeds its cost times the *present speed*. Comparing it with m over the time of a plain
step, as is sometimes done, drafts too far: that is the rule for a step without any fixed cost. Step times are often no
line, so measured depths are searched, not extrapolated. Read :func:`best_depth`, then :func:`position_pays`.

Does not do: measuring, or carrying one workload's acceptance over to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from freehold.evidence import Evidence, Kind, calculate
from freehold.hardware.catalogue import Hardware
from freehold.plan.subject import Subject
from freehold.records.cluster_plan import SpeculationChoice

__all__ = ["best_depth", "choose_published_depths", "emitted_tokens", "position_pays", "tok_per_s_by_depth"]


def emitted_tokens(acceptance: Sequence[float]) -> float:
    """Tokens a step gives on average: the target's own and every drafted one that is kept.

    Args:
        acceptance: Chance that each drafted position is kept, all before it included (0–1, never rising).

    Raises:
        ValueError: A chance lies outside 0–1, or rises.
    """
    previous = 1.0
    for chance in acceptance:
        if not 0 <= chance <= previous:
            raise ValueError(
                f"an acceptance of {chance} after {previous}: a position is kept only with those before it"
            )
        previous = chance
    return 1 + sum(acceptance)


def position_pays(acceptance: float, cost_s: float, tok_per_s: float) -> bool:
    """Whether one more drafted position makes it faster.

    Args:
        acceptance: Chance that the position is kept.
        cost_s: What it adds to a step, in seconds.
        tok_per_s: Speed without it.
    """
    return acceptance > cost_s * tok_per_s


def tok_per_s_by_depth(step_s: Mapping[int, float], emitted: Mapping[int, float]) -> dict[int, float]:
    """Speed at every depth that was measured.

    Args:
        step_s: Duration of a step by drafted tokens.
        emitted: Tokens per step by drafted tokens.

    Raises:
        ValueError: A duration is not positive, or the depths differ.
    """
    if set(step_s) != set(emitted) or not step_s or min(step_s.values()) <= 0:
        raise ValueError("step times and tokens per step are given for the same depths, and take time")
    return {depth: emitted[depth] / step_s[depth] for depth in sorted(step_s)}


def best_depth(step_s: Mapping[int, float], emitted: Mapping[int, float]) -> int:
    """The measured depth with the highest speed; the smaller of equals, 0 for no drafting if it was measured.

    Args:
        step_s: Duration of a step by drafted tokens.
        emitted: Tokens per step by drafted tokens.
    """
    speeds = tok_per_s_by_depth(step_s, emitted)
    return max(speeds, key=lambda depth: (speeds[depth], -depth))


def choose_published_depths(subject: Subject, hardware: Hardware, nodes: int | None) -> tuple[SpeculationChoice, ...]:
    """Best depth of every workload that others measured on this hardware.

    Args:
        subject: The model.
        hardware: One unit.
        nodes: How many; None finds nothing.
    """
    if subject.model is None or not subject.model.is_published:
        return ()
    rows = subject.model.entry.table.get("speculation", ())
    return tuple(_choice(row) for row in rows if row["hardware"] == hardware.name and row["nodes"] == nodes)


def _choice(row: Mapping[str, Any]) -> SpeculationChoice:
    depths = [int(d) for d in row["depths"]]
    step_s = dict(zip(depths, (float(s) for s in row["step_s"]), strict=True))
    emitted = dict(zip(depths, (float(e) for e in row["emitted"]), strict=True))
    speeds = {}
    for depth in depths:
        tokens, step = (
            Evidence(value=value, kind=Kind(row["kind"]), unit=unit, source=row["source"], date=str(row["checked"]))
            for value, unit in ((emitted[depth], ""), (step_s[depth], "s"))
        )
        speeds[str(depth)] = calculate(
            "tok/s",
            "tokens per step / duration of a step",
            lambda tokens, step: tokens / step,
            tokens=tokens,
            step=step,
        )
    return SpeculationChoice(
        workload=row["workload"], depth=best_depth(step_s, emitted), decode_tok_per_s_by_depth=speeds
    )
