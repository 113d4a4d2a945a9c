"""Does somebody already compute on the accelerators?

Does not do: anything where no NVIDIA driver answers; then the check does not apply.
"""

from __future__ import annotations

from freehold.hardware.nvidia import AcceleratorUse, read_uses
from freehold.preflight.question import Question
from freehold.records.verdict import Outcome, Verdict
from freehold.units import format_memory

__all__ = ["check_accelerators"]

_MOST_NAMED = 5


def check_accelerators(question: Question) -> Verdict | None:
    """Ask the driver which processes hold its memory."""
    answer = read_uses(question.world)
    why = "a stopped server may still hold its memory, and a running one takes time from whatever is measured"
    if answer.problem == "":
        return None
    if answer.problem is not None:
        return Verdict(
            check="accelerators",
            outcome=Outcome.INCONCLUSIVE,
            observation=f"nvidia-smi is there and gives no answer: {answer.problem}",
            why=why,
            remedy="run `nvidia-smi` yourself; after a driver update the machine needs a restart",
        )
    if answer.uses:
        named = ", ".join(_describe(use) for use in answer.uses[:_MOST_NAMED])
        more = len(answer.uses) - _MOST_NAMED
        return Verdict(
            check="accelerators",
            outcome=Outcome.WARN,
            observation=f"in use by {named}{f' and {more} more' if more > 0 else ''}",
            why=why,
            remedy="end those that are yours, and wait until their memory is really free",
        )
    count = len(question.facts.accelerators)
    if count == 0:
        return None
    return Verdict(
        check="accelerators",
        outcome=Outcome.PASS,
        observation=f"no process computes on {'the accelerator' if count == 1 else f'the {count} accelerators'}",
    )


def _describe(use: AcceleratorUse) -> str:
    size = "unknown memory" if use.used_bytes is None else format_memory(use.used_bytes)
    return f"pid {use.pid} ({use.name.rsplit('/', 1)[-1]}, {size})"
