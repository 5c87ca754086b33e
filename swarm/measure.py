"""From the rows of a paired benchmark to the objective, and to the effect of a candidate on the incumbent."""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Literal, TypeVar

from benchmarks.metrics import USER_METRIC
from gpu_actors.jobs import ArmResult, Benchmark, Row
from swarm.plan import Plan
from swarm.policies.issue_tracker import Measured

RESAMPLES = 2000
S = TypeVar("S")
Cell = tuple[int, int]
"""(prompt tokens, new tokens)."""
Cells = Mapping[Cell, Mapping[int, S]]
"""Cell -> repeat -> what was measured."""
Score = Callable[[str, Sequence[Sequence[S]]], float]
"""(arm, what was measured of it in each cell) -> the objective."""
WHOLE: Cell = (0, 0)
"""The one cell of a user's benchmark: what it runs is its own affair."""


def by_cell(benchmark: Benchmark, arm: str) -> dict[Cell, dict[int, Row]]:
    """The valid rows of an arm: cell -> repeat -> row."""
    cells: dict[Cell, dict[int, Row]] = defaultdict(dict)
    for row in benchmark.rows:
        if row.arm == arm and row.void is None:
            cells[row.prompt_tokens, row.new_tokens][row.repeat] = row
    return cells


def by_repeat(benchmark: Benchmark, arm: str, metric: str) -> dict[Cell, dict[int, float]]:
    """What the user's benchmark printed of an arm as `metric` (its whole name: user.NAME)."""
    name = metric.removeprefix(USER_METRIC)
    rows = [row for row in benchmark.user_rows if row.arm == arm and row.void is None and name in row.metrics]
    return {WHOLE: {row.repeat: row.metrics[name] for row in rows}} if rows else {}


def objective_of(benchmark: Benchmark, arm: str, plan: Plan) -> float | None:
    """An arm's objective over all cells of a benchmark, None where it has no valid measurement."""
    if plan.metric.startswith(USER_METRIC):
        values = by_repeat(benchmark, arm, plan.metric)
        return user_score(arm, samples(values)) if values else None
    rows = by_cell(benchmark, arm)
    return row_score(benchmark, plan)(arm, samples(rows)) if rows else None


def compare(benchmark: Benchmark, plan: Plan, against: str = "incumbent") -> dict[str, Measured]:
    """Effect of each arm on `against` in the plan's objective, from the repeats that both have; arms without a valid
    pair in every cell are left out.

    The interval is a paired bootstrap: repeats are drawn with replacement within each cell, the same for both arms,
    and the metric of both is computed anew; 95%, seeded.
    """
    arms = [result.arm for result in benchmark.arms]
    if plan.metric.startswith(USER_METRIC):
        values = {arm: by_repeat(benchmark, arm, plan.metric) for arm in arms}
        return effects(values, user_score, plan.direction, against)
    rows = {arm: by_cell(benchmark, arm) for arm in arms}
    return effects(rows, row_score(benchmark, plan), plan.direction, against)


def user_score(_: str, cells: Sequence[Sequence[float]]) -> float:
    """The median over the repeats of a metric that the user's benchmark prints."""
    (values,) = cells
    return median(values)


def row_score(benchmark: Benchmark, plan: Plan) -> Score[Row]:
    """The metric of each cell, and over the cells their geometric mean, so that no cell outweighs the others."""
    processes: dict[str, ArmResult] = {result.arm: result for result in benchmark.arms}
    metric = plan.definition

    def score(arm: str, cells: Sequence[Sequence[Row]]) -> float:
        values = [metric.value(cell, processes.get(arm)) for cell in cells]
        return geometric_mean(values) if all(values) else 0.0

    return score


def samples(cells: Cells[S]) -> list[list[S]]:
    return [list(repeats.values()) for repeats in cells.values()]


def effects(
    arms: Mapping[str, Cells[S]], score: Score[S], direction: Literal["min", "max"], against: str
) -> dict[str, Measured]:
    base = arms.get(against, {})
    found: dict[str, Measured] = {}
    for arm, cells in arms.items():
        if arm != against and (drawn := pairs(base, cells)):
            found[arm] = effect(drawn, score, direction, against, arm)
    return found


Pairs = list[list[tuple[S, S]]]
"""Per cell, what was measured of (base, arm) in each repeat."""


def pairs(base: Cells[S], arm: Cells[S]) -> Pairs[S]:
    cells = [
        [(base[cell][repeat], arm[cell][repeat]) for repeat in sorted(base[cell].keys() & arm.get(cell, {}).keys())]
        for cell in sorted(base)
    ]
    return cells if all(cells) else []


def effect(measured: Pairs[S], score: Score[S], direction: Literal["min", "max"], against: str, arm: str) -> Measured:
    def gain_of(drawn: Pairs[S]) -> float:
        theirs = score(against, [[base for base, _ in cell] for cell in drawn])
        mine = score(arm, [[mine for _, mine in cell] for cell in drawn])
        return gain(theirs, mine, direction)

    rng = random.Random(0)
    draws = sorted(gain_of([rng.choices(cell, k=len(cell)) for cell in measured]) for _ in range(RESAMPLES))
    low, high = draws[int(0.025 * RESAMPLES)], draws[int(0.975 * RESAMPLES) - 1]
    objective = score(arm, [[mine for _, mine in cell] for cell in measured])
    return Measured(arm, gain_of(measured), low, high, objective)


def gain(theirs: float, mine: float, direction: Literal["min", "max"]) -> float:
    """Relative improvement: +1 is twice as fast. From or to nothing (a goodput of 0, say) counts as 1 in size, since
    a ratio to 0 is no number."""
    better, size = (theirs - mine, abs(mine)) if direction == "min" else (mine - theirs, abs(theirs))
    return better / size if size else float((better > 0) - (better < 0))
