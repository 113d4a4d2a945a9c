"""Every error freehold raises on purpose: what happened, why, and what to do about it.

    FreeholdError
    ├── InputError             exit 2: what was asked makes no sense (arguments, recipes, broken files)
    │   └── CheckpointError    exit 2: a model file that is truncated, lying or of an unknown kind
    ├── PrerequisiteError      exit 3: something on the machine or the network is missing
    ├── PlanError              exit 1: it does not fit, or no layout is legal
    ├── PreflightError         exit 1: a check on the machine said no
    ├── EngineError            exit 1: the engine did not start, died, or answered nonsense
    ├── VerificationError      exit 1: the answers are not those of the checkpoint
    └── Interrupted            exit 130: somebody pressed Ctrl-C; what was measured is kept

Does not do: printing. ``freehold/cli/render.py`` is the one place that turns these into text.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "CheckpointError",
    "EngineError",
    "FreeholdError",
    "InputError",
    "Interrupted",
    "PlanError",
    "PreflightError",
    "PrerequisiteError",
    "VerificationError",
]


class FreeholdError(Exception):
    """An error with its three parts and the raw facts behind them.

    Args:
        what: What happened, one clause, lower case, with numbers and units.
        why: The cause, as far as it is known.
        fix: The next thing to do, if possible a command to paste.
        facts: Raw values for programs; they go to ``--json`` output.
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str, fix: str, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.facts: dict[str, object] = dict(facts or {})


class InputError(FreeholdError):
    """What was asked makes no sense."""

    exit_code = 2


class CheckpointError(InputError):
    """A model file is truncated, contradicts itself, or is of a kind that is not read."""


class PrerequisiteError(FreeholdError):
    """Something on the machine or the network is missing."""

    exit_code = 3


class PlanError(FreeholdError):
    """The model does not fit, or no layout is legal."""


class PreflightError(FreeholdError):
    """A check on the machine said no before anything was started."""


class EngineError(FreeholdError):
    """The engine did not start, died, or answered something that is no answer."""


class VerificationError(FreeholdError):
    """The server's answers are not those of the checkpoint, so no speed is measured."""


class Interrupted(FreeholdError):
    """The user interrupted the work; what was finished is kept."""

    exit_code = 130

    def __init__(self, what: str = "interrupted", *, why: str = "", fix: str = "") -> None:
        super().__init__(
            what,
            why=why or "Ctrl-C was pressed",
            fix=fix or "run the same command again",
        )
