"""How wide is a confidence interval of a few samples? Quantiles of Student's t, exact to machine precision.

Read :func:`t_quantile`.

Does not do: anything with samples (``bench/statistics.py``).

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8 (incomplete beta as a continued fraction) and
26.7.1 (Student's t through it).
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["t_probability", "t_quantile"]

_TINY = 1e-300


def t_probability(t: float, freedom: int) -> float:
    """Probability that Student's t with so many degrees of freedom is at most ``t``.

    Raises:
        ValueError: Less than one degree of freedom.
    """
    if freedom < 1:
        raise ValueError(f"at least one degree of freedom, not {freedom}")
    tail = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return 1 - tail if t > 0 else tail


@lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t stays below with this probability.

    Args:
        probability: Between 0 and 1, both excluded; 0.975 for a two-sided interval of 95 %.
        freedom: Degrees of freedom (>= 1): samples minus one.

    Raises:
        ValueError: An argument is out of range.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1, not at {probability}")
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        low, high = high, 2 * high
    # Halving needs no derivative and cannot leave the bracket; 200 halvings are below one step of a float.
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_probability(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), 0 <= x <= 1."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        # The fraction converges fast only below its turning point.
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Lentz's method on the fraction 26.5.8."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + factor * d)
            c = _away_from_zero(1 + factor / c)
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
