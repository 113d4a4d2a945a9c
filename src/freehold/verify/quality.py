"""Are the generated texts whole? The verdict over every text that was generated.

Read :func:`judge_quality`; the detectors are in ``verify/broken_text.py``.

Does not do: judging content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict
from freehold.verify.broken_text import find_faults
from freehold.verify.limits import QualityLimits

__all__ = ["Written", "judge_quality"]

_CHECK = "text_quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One generated text, and whether a length limit cut it."""

    text: str
    is_cut: bool


def judge_quality(written: Mapping[str, Written], limits: QualityLimits) -> Verdict:
    """Look for broken text in everything that was generated.

    Wrong characters in a single text are a failure. A degenerate loop, an empty text or a long loop can happen to a
    healthy small model once; in half of the texts it cannot.

    Args:
        written: Texts by name.
        limits: Where healthy ends.
    """
    faults = {name: find_faults(item.text, limits, is_cut=item.is_cut) for name, item in written.items()}
    faulty = {name: found for name, found in faults.items() if found}
    severe = {name: [f for f in found if f.is_severe] for name, found in faulty.items()}
    severe = {name: found for name, found in severe.items() if found}
    evidence = {
        "texts": Evidence.measured(len(written), "texts", source="greedy continuations and answers", n=len(written)),
        "texts_with_severe_faults": Evidence.measured(
            len(severe), "texts", source="detectors of verify/broken_text.py", n=len(written)
        ),
        "texts_with_faults": Evidence.measured(
            len(faulty), "texts", source="detectors of verify/broken_text.py", n=len(written)
        ),
    }
    if not faulty:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.PASS,
            observation=f"{len(written)} texts: no wrong characters, no loops, no broken words",
            evidence=evidence,
        )
    shown = "; ".join(f"{name}: {found[0].detail}" for name, found in list((severe or faulty).items())[:3])
    lone = {"degenerate_loop", "empty"}
    is_broken = any(fault.kind not in lone for found in severe.values() for fault in found)
    if is_broken or (severe and 2 * len(severe) >= len(written)):
        return Verdict(
            check=_CHECK,
            outcome=Outcome.FAIL,
            observation=f"{len(severe)} of {len(written)} texts are broken: {shown}",
            why="weights, a kernel, the tokenizer or the detokenizer is damaged",
            remedy="look at the log-probabilities: if they are fine, the text is damaged on its way out",
            evidence=evidence,
        )
    return Verdict(
        check=_CHECK,
        outcome=Outcome.WARN,
        observation=f"{len(faulty)} of {len(written)} texts look odd: {shown}",
        why="small models loop when they are decoded greedily; damaged ones loop everywhere",
        remedy="compare with the answers of another engine",
        evidence=evidence,
    )
