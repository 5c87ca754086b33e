"""From the rows of a paired benchmark to the objective, and to the effect of a candidate on the incumbent."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from benchmarks.metrics import METRICS
from gpu_actors.jobs import ArmResult, Benchmark, Row
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


def objective_of(benchmark: Benchmark, arm: str, metric: str) -> float:
    """An arm's metric over all cells of a benchmark."""
    return _over_cells(
        [list(rows.values()) for rows in by_cell(benchmark, arm).values()], _process(benchmark, arm), metric
    )


def _over_cells(cells: Sequence[Sequence[Row]], process: ArmResult | None, metric: str) -> float:
    """The metric of each cell, and over the cells their geometric mean, so that no cell outweighs the others."""
    return geometric_mean([METRICS[metric].value(cell, process) for cell in cells])


def _process(benchmark: Benchmark, arm: str) -> ArmResult | None:
    return next((result for result in benchmark.arms if result.arm == arm), None)


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
            effects[arm] = _effect(benchmark, against, arm, pairs, plan)
    return effects


Pairs = list[list[tuple[Row, Row]]]
"""Per cell, the (base, arm) rows of each repeat."""


def _pairs(base: Mapping[Cell, dict[int, Row]], arm: Mapping[Cell, dict[int, Row]]) -> Pairs:
    cells = [
        [(base[cell][repeat], arm[cell][repeat]) for repeat in sorted(base[cell].keys() & arm.get(cell, {}).keys())]
        for cell in sorted(base)
    ]
    return cells if all(cells) else []


def _effect(benchmark: Benchmark, against: str, arm: str, pairs: Pairs, plan: Plan) -> Measured:
    processes = _process(benchmark, against), _process(benchmark, arm)

    def gain(drawn: Pairs) -> float:
        theirs = _over_cells([[base for base, _ in cell] for cell in drawn], processes[0], plan.metric)
        mine = _over_cells([[mine for _, mine in cell] for cell in drawn], processes[1], plan.metric)
        return (theirs / mine if plan.direction == "min" else mine / theirs) - 1

    rng = random.Random(0)
    draws = sorted(gain([rng.choices(cell, k=len(cell)) for cell in pairs]) for _ in range(RESAMPLES))
    low, high = draws[int(0.025 * RESAMPLES)], draws[int(0.975 * RESAMPLES) - 1]
    objective = _over_cells([[mine for _, mine in cell] for cell in pairs], processes[1], plan.metric)
    return Measured(arm, gain(pairs), low, high, objective)
