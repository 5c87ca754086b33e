"""Means, spreads, percentiles and paired bootstrap intervals. Seeded: the same rows give the same interval."""

import math
import random
from collections.abc import Sequence
from statistics import geometric_mean, mean, median, stdev

from ckb.facts import Frozen


class Summary(Frozen):
    """What is said of one series of repeats."""

    mean: float
    median: float
    sd: float
    """Sample standard deviation; 0 for a single value."""
    count: int


class Ratio(Frozen):
    """Geometric mean of paired ratios, with its bootstrap interval."""

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


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, confidence: float = 0.95, resamples: int = 2000
) -> Ratio:
    """Ratio of two series that were measured in pairs. Pairs are drawn with replacement; raises ValueError for none."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    if not ratios:
        raise ValueError("no pairs to compare")
    draw = random.Random(0)
    means = [geometric_mean(draw.choices(ratios, k=len(ratios))) for _ in range(resamples)]
    tail = (1 - confidence) / 2
    return Ratio(value=geometric_mean(ratios), low=percentile(means, tail), high=percentile(means, 1 - tail))
