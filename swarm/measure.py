"""From the rows of a paired benchmark to the objective, and to the effect of a candidate on the incumbent."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from benchmarks.metrics import METRICS
from gpu_actors.jobs import Benchmark, Row
from swarm.plan import Plan
from swarm.policies.issue_tracker import Measured

RESAMPLES = 2000
Cell = tuple[int, int]
"""(prompt tokens, new tokens)."""


def by_cell(benchmark: Benchmark, arm: str) -> dict[Cell, dict[int, Row]]:
    """The valid rows of an arm: cell -> repeat -> row."""
    cells: dict[Cell, dict[int, Row]] = defaultdict(dict)
    for row in benchmark.rows:
        if row.arm == arm and row.void is None:
            cells[row.prompt_tokens, row.new_tokens][row.repeat] = row
    return cells


def objective_of(rows: Sequence[Sequence[Row]], metric: str) -> float:
    """The metric of each cell, and over the cells their geometric mean, so that no cell outweighs the others."""
    return geometric_mean([METRICS[metric].value(cell) for cell in rows])


def compare(benchmark: Benchmark, plan: Plan, against: str = "incumbent") -> dict[str, Measured]:
    """Effect of each arm on `against` in the plan's objective, from the repeats that both have; arms without a valid
    pair in every cell are left out.

    The interval is a paired bootstrap: repeats are drawn with replacement within each cell, the same for both arms,
    and the metric of both is computed anew; 95%, seeded.
    """
    base = by_cell(benchmark, against)
    effects: dict[str, Measured] = {}
    for arm in dict.fromkeys(row.arm for row in benchmark.rows):
        if arm != against and (pairs := _pairs(base, by_cell(benchmark, arm))):
            effects[arm] = _effect(arm, pairs, plan)
    return effects


Pairs = list[list[tuple[Row, Row]]]
"""Per cell, the (base, arm) rows of each repeat."""


def _pairs(base: Mapping[Cell, dict[int, Row]], arm: Mapping[Cell, dict[int, Row]]) -> Pairs:
    cells = [
        [(base[cell][repeat], arm[cell][repeat]) for repeat in sorted(base[cell].keys() & arm.get(cell, {}).keys())]
        for cell in sorted(base)
    ]
    return cells if all(cells) else []


def _effect(arm: str, pairs: Pairs, plan: Plan) -> Measured:
    rng = random.Random(0)
    draws = sorted(_gain([rng.choices(cell, k=len(cell)) for cell in pairs], plan) for _ in range(RESAMPLES))
    low, high = draws[int(0.025 * RESAMPLES)], draws[int(0.975 * RESAMPLES) - 1]
    objective = objective_of([[mine for _, mine in cell] for cell in pairs], plan.metric)
    return Measured(arm, _gain(pairs, plan), low, high, objective)


def _gain(pairs: Pairs, plan: Plan) -> float:
    theirs = objective_of([[base for base, _ in cell] for cell in pairs], plan.metric)
    mine = objective_of([[mine for _, mine in cell] for cell in pairs], plan.metric)
    return (theirs / mine if plan.direction == "min" else mine / theirs) - 1
