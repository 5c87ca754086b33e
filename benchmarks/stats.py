"""Means, spreads, percentiles, and the ratio of what was measured in pairs with an interval that holds for few."""

import math
from collections.abc import Sequence
from statistics import mean, median, stdev, variance

from ckb.facts import Frozen

WIDEST = 1000.0
"""Largest ratio, and its inverse the smallest, that an interval reaches to: what is stored must be a finite number."""
# fmt: off
T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
# fmt: on
"""97.5% quantiles of Student's t for 1, 2, ... degrees of freedom."""


class Summary(Frozen):
    """What is said of one series of repeats."""

    mean: float
    median: float
    sd: float
    """Sample standard deviation; 0 for a single value."""
    count: int


class Ratio(Frozen):
    """Geometric mean of paired ratios, with its 95% interval."""

    value: float
    low: float
    high: float


def summarise(values: Sequence[float]) -> Summary:
    """Raises ValueError for no values."""
    if not values:
        raise ValueError("no values to summarise")
    spread = stdev(values) if len(values) > 1 else 0.0
    return Summary(mean=mean(values), median=median(values), sd=spread, count=len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the closest ranks (numpy's default). `share` from 0 to 1."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values to take a percentile of")
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Ratio of two positive series that were measured in pairs: `log_ratio` of one cell. Raises ValueError for none."""
    return log_ratio([[math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]])


def log_ratio(cells: Sequence[Sequence[float]]) -> Ratio:
    """Geometric mean over the cells of each cell's geometric mean ratio, with its 95% t-interval.

    `cells`: the log of the ratio of every pair, by cell; pairs are independent, and a cell's spread is its own. The
    degrees of freedom are Welch and Satterthwaite's, rounded down: 2 for three pairs of one cell. Where some cell has a
    single pair nothing is known of its spread, and the interval is all that this module calls a ratio: 1/1000 to 1000.
    Raises ValueError for a cell without a pair.
    """
    if not cells or not all(cells):
        raise ValueError("no pairs to compare")
    centre = mean(mean(cell) for cell in cells)
    half = math.inf
    if all(len(cell) > 1 for cell in cells):
        parts = [variance(cell) / len(cell) for cell in cells]
        uncertain = sum(part**2 / (len(cell) - 1) for part, cell in zip(parts, cells, strict=True))
        freedom = sum(parts) ** 2 / uncertain if uncertain else 1.0
        half = t_quantile(freedom) * math.sqrt(sum(parts)) / len(cells)
    value, widest = math.exp(centre), math.log(WIDEST)
    low, high = (math.exp(max(-widest, min(widest, end))) for end in (centre - half, centre + half))
    return Ratio(value=value, low=min(low, value), high=max(high, value))


def t_quantile(freedom: float) -> float:
    """97.5% quantile of Student's t for `freedom` >= 1, rounded down to what the table has: never too small."""
    return T_QUANTILES[min(int(freedom + 1e-9), len(T_QUANTILES)) - 1]
