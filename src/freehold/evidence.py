"""Says how far a number can be trusted: where it comes from, when, over how many samples.

An :class:`Evidence` is a value that cannot be separated from its origin. A value nobody measured has no number at
all, only a reason, so no renderer can print it as 0 or as an estimate. Read :class:`Evidence`, then :func:`calculate`.

Does not do: statistics (``bench/statistics.py``) or formatting beyond :meth:`Evidence.text`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from freehold.units import format_number

__all__ = ["DASH", "Evidence", "Interval", "Kind", "calculate", "weakest"]

DASH = "—"

Value = float | int | str | bool


class Kind(StrEnum):
    """Origins in the order of trust, the strongest first."""

    MEASURED = "measured"
    """By us, in this run."""
    VERIFIED = "verified"
    """A current owner or platform source."""
    CALCULATED = "calculated"
    VENDOR = "vendor"
    COMMUNITY = "community"
    ASSUMED = "assumed"
    NOT_MEASURED = "not_measured"

    @property
    def rank(self) -> int:
        """0 for the most trusted kind."""
        return _ORDER[self]


_ORDER = {kind: position for position, kind in enumerate(Kind)}


def weakest(*kinds: Kind) -> Kind:
    """The least trusted of some kinds.

    Raises:
        ValueError: No kind is given.
    """
    return max(kinds, key=lambda kind: kind.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval.

    Args:
        low: Lower bound, in the unit of the value.
        high: Upper bound.
        level: Confidence level (0–1).
        method: Name of the method.
    """

    low: float
    high: float
    level: float = 0.95
    method: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"not an interval: {self.low} … {self.high}")
        if not 0 < self.level < 1:
            raise ValueError(f"a confidence level lies between 0 and 1, not at {self.level}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A number or fact with its kind, unit, source and date, and n, interval, reason, inputs where they apply.

    Args:
        value: The value itself; None exactly when the kind is ``not_measured``.
        kind: Where it comes from.
        unit: A unit name ``units.format_number`` knows (``bytes``, ``s``, ``tok/s``, ``share`` …), "" for none.
        source: How it was obtained: a command, a file, a formula, an address. Required for every value.
        date: ISO date or time of the observation.
        n: Number of samples.
        interval: Confidence interval.
        reason: Why there is no value; required for ``not_measured``.
        inputs: For a calculation, what went into it, by name.
    """

    value: Value | None
    kind: Kind
    unit: str = ""
    source: str = ""
    date: str | None = None
    n: int | None = None
    interval: Interval | None = None
    reason: str | None = None
    inputs: Mapping[str, Evidence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.value is None) != (self.kind is Kind.NOT_MEASURED):
            raise ValueError("a value is missing exactly when its kind is not_measured")
        if self.kind is Kind.NOT_MEASURED:
            if not self.reason:
                raise ValueError("a value that was not measured needs its reason")
        elif not self.source:
            raise ValueError(f"a {self.kind} value needs its source")
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise ValueError(f"not a value: {self.value}; record it as not measured")
        if self.kind is Kind.CALCULATED and any(e.value is None for e in self.inputs.values()):
            raise ValueError("a calculation cannot use an input that was not measured")
        if self.n is not None and self.n < 1:
            raise ValueError(f"n is at least 1, not {self.n}")

    @property
    def trust(self) -> Kind:
        """The kind to believe it as: for a calculation, the weakest of it and its inputs."""
        return weakest(self.kind, *(e.trust for e in self.inputs.values()))

    @property
    def is_missing(self) -> bool:
        """Whether there is no value."""
        return self.value is None

    @property
    def number(self) -> float | int | None:
        """The value if it is a number, else None."""
        if isinstance(self.value, bool | str):
            return None
        return self.value

    @property
    def text(self) -> str:
        """The value with its unit, or a dash where there is none."""
        if self.value is None:
            return DASH
        return format_number(self.value, self.unit)

    @property
    def origin(self) -> str:
        """The kind in words, with the weakest input named: ``calculated from assumed inputs``."""
        if self.value is None:
            return f"not measured: {self.reason}"
        if self.trust is not self.kind:
            return f"{self.kind} from {self.trust} inputs"
        return str(self.kind)

    @staticmethod
    def measured(
        value: Value,
        unit: str = "",
        *,
        source: str,
        date: str | None = None,
        n: int | None = None,
        interval: Interval | None = None,
    ) -> Evidence:
        """A value measured by us in this run; ``source`` says how."""
        return Evidence(value=value, kind=Kind.MEASURED, unit=unit, source=source, date=date, n=n, interval=interval)

    @staticmethod
    def assumed(value: Value, unit: str = "", *, source: str) -> Evidence:
        """A value taken on trust; ``source`` says why this one."""
        return Evidence(value=value, kind=Kind.ASSUMED, unit=unit, source=source)

    @staticmethod
    def verified(value: Value, unit: str = "", *, source: str, date: str | None = None) -> Evidence:
        """A value stated by a current owner or platform source, such as a checkpoint's own header."""
        return Evidence(value=value, kind=Kind.VERIFIED, unit=unit, source=source, date=date)

    @staticmethod
    def not_measured(reason: str, unit: str = "") -> Evidence:
        """No value, and why."""
        return Evidence(value=None, kind=Kind.NOT_MEASURED, unit=unit, reason=reason)


def calculate(unit: str, formula: str, function: Callable[..., Value], **inputs: Evidence) -> Evidence:
    """Apply a function to evidence and keep the lineage.

    Args:
        unit: Unit of the result.
        formula: The formula in words or symbols; it becomes the source.
        function: Called with the inputs' plain values under the same names.
        inputs: The evidence that goes in.

    Returns:
        A calculated value, or ``not_measured`` naming the first input that is missing.
    """
    for name, evidence in inputs.items():
        if evidence.value is None:
            return Evidence.not_measured(f"needs {name.replace('_', ' ')}: {evidence.reason}", unit)
    values = {name: evidence.value for name, evidence in inputs.items()}
    return Evidence(value=function(**values), kind=Kind.CALCULATED, unit=unit, source=formula, inputs=inputs)
