"""What may be said of some samples: mean with its interval, percentiles, the worst; nothing that they do not carry.

Read :func:`describe`. A percentile is stated only if there are samples on both sides of it: the median from 2 samples,
p10 and p90 from 10, p99 from 100. Below that the figure would be the largest sample under another name; that one is
stated anyway, as the worst.

Does not do: making the samples (``bench/metrics.py``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

from freehold.bench.student import t_quantile
from freehold.evidence import Evidence, Interval
from freehold.records.bench import Distribution

__all__ = ["INTERVAL_METHOD", "PERCENTILE_METHOD", "describe", "interval_of", "mean_of", "percentile", "percentile_of"]

INTERVAL_METHOD: Final = "Student's t, two-sided, over requests"
PERCENTILE_METHOD: Final = "linear interpolation between order statistics (Hyndman and Fan, type 7)"


def interval_of(samples: Sequence[float], level: float = 0.95) -> Interval | None:
    """Confidence interval of the mean of independent samples, None for less than two.

    Args:
        samples: Finite numbers.
        level: Between 0 and 1.
    """
    n = len(samples)
    if n < 2:
        return None
    mean = statistics.fmean(samples)
    half = t_quantile((1 + level) / 2, n - 1) * statistics.stdev(samples, mean) / math.sqrt(n)
    return Interval(low=mean - half, high=mean + half, level=level, method=INTERVAL_METHOD)


def mean_of(samples: Sequence[float], unit: str, *, source: str, date: str | None = None, empty: str = "") -> Evidence:
    """Mean with n and, from two samples on, the 95 % interval.

    Args:
        samples: One value per request.
        unit: Their unit.
        source: How they were obtained.
        date: When.
        empty: Why there are none, for the case that there are none.
    """
    values = _finite(samples)
    if not values:
        return Evidence.not_measured(empty or "no sample", unit)
    return Evidence.measured(
        statistics.fmean(values),
        unit,
        source=f"mean; {source}",
        date=date,
        n=len(values),
        interval=interval_of(values),
    )


def percentile(samples: Sequence[float], share: float) -> float:
    """The value below which a share of the samples lies, interpolated between its two neighbours.

    Args:
        samples: At least one finite number.
        share: 0 (smallest) to 1 (largest).

    Raises:
        ValueError: No sample, or the share is out of range.

    Source: Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50(4), 1996, type 7.
    """
    if not samples:
        raise ValueError("no sample has no percentile")
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    ordered = sorted(samples)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    fraction = position - below
    value = ordered[below] * (1 - fraction) + ordered[above] * fraction
    # Rounding must not carry it outside its two neighbours.
    return min(max(value, ordered[below]), ordered[above])


def percentile_of(
    samples: Sequence[float], share: float, unit: str, *, source: str, date: str | None = None, empty: str = ""
) -> Evidence:
    """A percentile, or why so few samples do not have it."""
    values = _finite(samples)
    if not values:
        return Evidence.not_measured(empty or "no sample", unit)
    needed = max(2, math.ceil(1 / min(share, 1 - share) - 1e-9))
    if len(values) < needed:
        return Evidence.not_measured(
            f"p{round(share * 100)} needs {needed} samples, there {'is' if len(values) == 1 else 'are'} {len(values)}",
            unit,
        )
    return Evidence.measured(
        percentile(values, share),
        unit,
        source=f"p{round(share * 100)}, {PERCENTILE_METHOD}; {source}",
        date=date,
        n=len(values),
    )


def describe(
    samples: Sequence[float],
    unit: str,
    *,
    is_rate: bool,
    source: str,
    date: str | None = None,
    means: Sequence[float] | None = None,
    empty: str = "",
) -> Distribution:
    """A metric over the requests of an arm.

    Args:
        samples: All values.
        unit: Their unit.
        is_rate: Whether more is better; the worst is then the smallest.
        source: How they were obtained.
        date: When.
        means: One value per request where a request has many samples, as gaps between chunks: gaps of one request
            are not independent, so the mean and its interval are taken over requests.
        empty: Why there are none, for the case that there are none.
    """
    values = _finite(samples)

    def share(part: float) -> Evidence:
        return percentile_of(values, part, unit, source=source, date=date, empty=empty)

    if values:
        worst = Evidence.measured(
            min(values) if is_rate else max(values),
            unit,
            source=f"{'smallest' if is_rate else 'largest'}; {source}",
            date=date,
            n=len(values),
        )
    else:
        worst = Evidence.not_measured(empty or "no sample", unit)
    return Distribution(
        mean=mean_of(values if means is None else means, unit, source=source, date=date, empty=empty),
        p10=share(0.1),
        p50=share(0.5),
        p90=share(0.9),
        p99=share(0.99),
        worst=worst,
    )


def _finite(samples: Sequence[float]) -> list[float]:
    """The samples, as a guard of our own invariant: a NaN never becomes a figure."""
    for value in samples:
        assert math.isfinite(value), f"not a sample: {value}"
    return list(samples)
