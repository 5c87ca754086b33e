"""The trajectory of the objective over candidates, as coordinates. templates/chart.svg draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Fate = Literal["kept", "discarded", "open"]

LABEL_GAP = 15.0
"""Least distance of two labels' baselines, px."""
LOG_FROM = 12.0
"""Largest over smallest value from which the axis is logarithmic."""
STRIP = 26.0
"""Height of the strip below the plot that holds candidates without a measurement, px."""
LABELS = 158.0
"""Width of the margin for the names of the lines, where there is one, px."""
UNMEASURED = 0.45
"""Width of a candidate without a measurement, as a share of one with: the plot belongs to the measured ones."""
LETTER = 7.0
"""Width of a letter of a band's name, px."""


@dataclass(frozen=True)
class Shot:
    """One candidate, before it is drawn."""

    name: str
    group: str
    """Stage or round: candidates of one group stand together."""
    value: float | None
    """The objective as measured, None where the candidate never came that far."""
    fate: Fate
    merged: bool
    note: str


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with."""

    name: str
    value: float
    kind: Literal["floor", "huggingface"]


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    fate: Fate
    merged: bool
    measured: bool
    title: str


@dataclass(frozen=True)
class Rule:
    y: float
    label_y: float
    label: str
    kind: str


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Band:
    left: float
    right: float
    label: str
    shaded: bool


@dataclass(frozen=True)
class Chart:
    """Everything in px of a viewBox of width x height."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    """Lower edge of the plot; the strip lies below."""
    points: tuple[Point, ...]
    incumbent: str
    """Path of the step line, empty when nothing was merged with a measurement."""
    rules: tuple[Rule, ...]
    ticks: tuple[Tick, ...]
    bands: tuple[Band, ...]
    logarithmic: bool
    labels: bool
    """Whether the lines are named beside the plot; the legend names them in any case."""

    @property
    def strip_y(self) -> float:
        return self.bottom + STRIP / 2


@dataclass(frozen=True)
class Axis:
    """Maps values of the objective to y. Linear axes start at 0, so that heights compare."""

    low: float
    high: float
    top: float
    bottom: float
    logarithmic: bool

    @classmethod
    def over(cls, values: Sequence[float], top: float, bottom: float) -> "Axis":
        positive = [v for v in values if v > 0]
        if not positive:
            return cls(0.0, 1.0, top, bottom, False)
        low, high = min(positive), max(positive)
        if high / low > LOG_FROM:
            return cls(low / 1.25, high * 1.25, top, bottom, True)
        return cls(0.0, high * 1.08, top, bottom, False)

    def y(self, value: float) -> float:
        if self.logarithmic:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.bottom - share * (self.bottom - self.top), 1)

    def ticks(self) -> tuple[Tick, ...]:
        values = log_ticks(self.low, self.high) if self.logarithmic else linear_ticks(self.high)
        return tuple(Tick(self.y(v), f"{v:g}") for v in values)


def linear_ticks(high: float) -> list[float]:
    """0 and up to six round steps below `high`."""
    raw = high / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    return [round(i * step, 12) for i in range(int(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between the ends."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [m * 10.0**p for p in powers for m in (1, 2, 5)]
    return [v for v in values if low <= v <= high]


def spread_labels(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Baselines near the wanted ones, in their order, at least LABEL_GAP apart."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    floor = top
    for i in order:
        placed[i] = max(wanted[i], floor)
        floor = placed[i] + LABEL_GAP
    ceiling = bottom
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - LABEL_GAP
    return [round(y, 1) for y in placed]


def draw(shots: Sequence[Shot], levels: Sequence[Level], unit: str, width: float, height: float, labels: bool) -> Chart:
    """Lays the chart out. Shots come in the order of their x; `labels` leaves a margin for the names of the lines."""
    left, right, top, bottom = 46.0, width - (LABELS if labels else 6.0), 34.0, height - STRIP - 8.0
    values = [s.value for s in shots if s.value is not None] + [level.value for level in levels]
    axis = Axis.over(values, top, bottom)
    edges = slots(shots, left, right)
    xs = [round((a + b) / 2, 1) for a, b in pairwise(edges)]
    path, last = step_line(shots, xs, axis, right)
    lines: list[tuple[str, str, float]] = [(level.kind, level.name, level.value) for level in levels]
    if last is not None:
        lines.append(("incumbent", "incumbent", last))
    label_ys = spread_labels([axis.y(value) + 4 for _, _, value in lines], top, bottom)
    return Chart(
        width=width,
        height=height,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        points=tuple(
            Point(
                x,
                bottom + STRIP / 2 if shot.value is None else axis.y(shot.value),
                shot.fate,
                shot.merged,
                shot.value is not None,
                f"{shot.name}: {shot.note}",
            )
            for shot, x in zip(shots, xs, strict=True)
        ),
        incumbent=path,
        rules=tuple(
            Rule(axis.y(value), at, f"{name} {value:.3g} {unit}", kind)
            for (kind, name, value), at in zip(lines, label_ys, strict=True)
        ),
        ticks=axis.ticks(),
        bands=bands(shots, edges),
        logarithmic=axis.logarithmic,
        labels=labels,
    )


def slots(shots: Sequence[Shot], left: float, right: float) -> list[float]:
    """The edges of the candidates' columns: one more than there are candidates."""
    weights = [UNMEASURED if shot.value is None else 1.0 for shot in shots]
    unit = (right - left) / max(sum(weights), 1.0)
    return [round(left + unit * sum(weights[:i]), 1) for i in range(len(weights) + 1)]


def step_line(shots: Sequence[Shot], xs: Sequence[float], axis: Axis, right: float) -> tuple[str, float | None]:
    """Path of the incumbent's objective and its last value: level from each merge to the next."""
    corners = [(x, s.value) for s, x in zip(shots, xs, strict=True) if s.merged and s.value is not None]
    if not corners:
        return "", None
    parts = [f"M{corners[0][0]} {axis.y(corners[0][1])}"]
    parts += [f"H{x} V{axis.y(value)}" for _, (x, value) in pairwise(corners)]
    return " ".join([*parts, f"H{right}"]), corners[-1][1]


def bands(shots: Sequence[Shot], edges: Sequence[float]) -> tuple[Band, ...]:
    """One band for each run of candidates of the same group, named in full, by its last word, or not at all: as much
    as fits."""
    found: list[Band] = []
    start = 0
    for i in range(1, len(shots) + 1):
        if i == len(shots) or shots[i].group != shots[start].group:
            left, right, name = edges[start], edges[i], shots[start].group
            fitting = (text for text in (name, name.split()[-1]) if len(text) * LETTER < right - left)
            found.append(Band(left, right, next(fitting, ""), shaded=len(found) % 2 == 1))
            start = i
    return tuple(found)
