"""From the rows of a paired benchmark to the objective, and to the effect of a candidate on the incumbent."""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, mean, median
from typing import Generic, Literal, TypeVar

from benchmarks.metrics import GOODPUT, USER_METRIC
from benchmarks.stats import WIDEST, log_ratio, percentile
from gpu_actors.benchmark_jobs import ArmResult, Benchmark, Row
from swarm.gains import Measured
from swarm.plan import Plan

DECODE_METRICS = ("tpot", "decode")
"""Metrics that look at nothing before the first token."""
RESAMPLES = 2000
TAIL = 0.025
"""What is left out on each side of an interval."""
REPEATS = 3
MIDDLE_PAIRS = 5
"""Pairs over all cells for the middle of a distribution: of three, a t-interval is twice as wide as of five."""
SHOWN = 3
"""Repeats of each cell on inputs of their own, for the figures that authors see of a round that another one follows."""
TAIL_PAIRS = 8
"""Pairs over all cells for a percentile or goodput: an exact swap test of fewer than 6 can't be below 2.5%."""
S = TypeVar("S")
Cell = tuple[int, int]
"""(prompt tokens, new tokens)."""
Cells = Mapping[Cell, Mapping[int, S]]
"""Cell -> repeat -> what was measured."""
Score = Callable[[str, Sequence[Sequence[S]]], float]
"""(arm, what was measured of it in each cell) -> the objective."""
WHOLE: Cell = (0, 0)
"""The one cell of a user's benchmark: what it runs is its own affair."""


def by_cell(benchmark: Benchmark, arm: str, *, shown: bool = False) -> dict[Cell, dict[int, Row]]:
    """The rows of an arm that count: cell -> repeat -> row. Rows of one repeat are of one group, whatever the arm.

    `shown`: of the part of the inputs whose figures authors may see, in place of the part that decides. The two share
    no prompt."""
    cells: dict[Cell, dict[int, Row]] = defaultdict(dict)
    for row in benchmark.counted:
        if row.arm == arm and row.shown == shown:
            cells[row.prompt_tokens, row.new_tokens][row.repeat] = row
    return cells


def by_repeat(benchmark: Benchmark, arm: str, metric: str, *, shown: bool = False) -> dict[Cell, dict[int, float]]:
    """What the user's benchmark printed of an arm as `metric` (its whole name: user.NAME)."""
    name = metric.removeprefix(USER_METRIC)
    counted = (row for row in benchmark.counted_user_rows if row.arm == arm and row.shown == shown)
    rows = [row for row in counted if name in row.metrics]
    return {WHOLE: {row.repeat: row.metrics[name] for row in rows}} if rows else {}


def cells_of(plan: Plan) -> list[Cell]:
    """The cells of a timed metric: one that was not measured must be missed."""
    return [(scenario.prompt_tokens, scenario.new_tokens) for scenario in plan.scenarios]


def objective_of(benchmark: Benchmark, arm: str, plan: Plan, *, shown: bool = False) -> float | None:
    """An arm's objective over all cells of the plan, None unless it has a valid measurement in each."""
    if plan.metric.startswith(USER_METRIC):
        values = by_repeat(benchmark, arm, plan.metric, shown=shown)
        return user_score(arm, [list(values[WHOLE].values())]) if values else None
    rows = by_cell(benchmark, arm, shown=shown)
    cells = [list(rows[cell].values()) for cell in cells_of(plan) if cell in rows]
    return row_score(benchmark, plan)(arm, cells) if len(cells) == len(plan.scenarios) else None


def compare(
    benchmark: Benchmark, plan: Plan, against: str = "incumbent", *, shown: bool = False
) -> dict[str, Measured]:
    """Effect of each arm on `against` in the plan's objective, from the repeats that both have; arms without a valid
    pair in every cell of the plan are left out. Both sides of a pair are of one group: one prompt, minutes apart.

    The interval, 95%, depends on what the metric is a function of:

    - The middle of single generations or runs (medians, means, rates, the user's own numbers above 0): a t-interval on
      the log of the ratio of each pair, and the effect is the geometric mean ratio. Cells weigh the same, each with a
      spread of its own, and the degrees of freedom are Welch and Satterthwaite's (`benchmarks.stats.log_ratio`).
    - A tail or a count (95th and 99th percentiles, goodput, numbers of the user's that are not above 0): a seeded
      bootstrap of the pairs within each cell, stretched to 0 unless swapping the sides of pairs at random would give as
      much in under 2.5% of all cases. That test is exact, and no effect passes it with fewer than 6 pairs in all.
    - The process (peak memory, startup): measured once an arm, so nothing is known of its spread. The interval is as
      wide as there is, and by itself it never shows a gain.
    """
    arms = [result.arm for result in benchmark.arms]
    if plan.metric.startswith(USER_METRIC):
        values = {arm: by_repeat(benchmark, arm, plan.metric, shown=shown) for arm in arms}
        return effects(values, [WHOLE], user_score, plan, against)
    rows = {arm: by_cell(benchmark, arm, shown=shown) for arm in arms}
    found = effects(rows, cells_of(plan), row_score(benchmark, plan), plan, against)
    if not plan.metric.startswith(DECODE_METRICS):
        return found
    base = rows.get(against, {})
    cells = {arm: [pairs(base[cell], rows[arm][cell]) for cell in cells_of(plan)] for arm in found}
    return {arm: replace(measured, moved=moved_to_first_token(cells[arm])) for arm, measured in found.items()}


def moved_to_first_token(cells: Sequence[Sequence[tuple[Row, Row]]]) -> str:
    """Why a gain in decoding is none: the first token came later, by more than half of what the others saved. Whoever
    holds tokens back and lets them go at a higher pace has done the same work in the same time."""
    later = log_ratio([[math.log(mine.ttft_ms / base.ttft_ms) for base, mine in cell] for cell in cells])
    every = [pair for cell in cells for pair in cell]
    waited = mean(mine.ttft_ms - base.ttft_ms for base, mine in every)
    saved = mean((base.tpot_ms - mine.tpot_ms) * (mine.new_tokens - 1) for base, mine in every)
    if later.low <= 1 or not 0 < saved < 2 * waited:
        return ""
    return f"the first token came {waited:.1f} ms later, and all others together {saved:.1f} ms sooner after it"


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


def effects(
    arms: Mapping[str, Cells[S]], wanted: Sequence[Cell], score: Score[S], plan: Plan, against: str
) -> dict[str, Measured]:
    base = arms.get(against, {})
    found: dict[str, Measured] = {}
    for arm, cells in arms.items():
        measured = [pairs(base.get(cell, {}), cells.get(cell, {})) for cell in wanted]
        if arm != against and all(measured):
            found[arm] = Comparison(arm, against, measured, score, plan.direction).measured(plan)
    return found


def pairs(base: Mapping[int, S], arm: Mapping[int, S]) -> list[tuple[S, S]]:
    """What was measured of (base, arm) in each repeat that both have."""
    return [(base[repeat], arm[repeat]) for repeat in sorted(base.keys() & arm.keys())]


@dataclass(frozen=True)
class Comparison(Generic[S]):
    """An arm against another, from the pairs of each cell; no cell is without one."""

    arm: str
    against: str
    cells: Sequence[Sequence[tuple[S, S]]]
    """Per cell, what was measured of (against, arm)."""
    score: Score[S]
    direction: Literal["min", "max"]

    def measured(self, plan: Plan) -> Measured:
        _, objective = self._scores(self.cells)
        if plan.definition.of_process:
            effect = self._gain(self.cells)
            return Measured(self.arm, effect, 1 / WIDEST - 1, max(WIDEST - 1, effect), objective)
        ratios = None if of_tail(plan.metric) else self._log_ratios()
        if ratios:
            found = log_ratio(ratios)
            return Measured(self.arm, found.value - 1, found.low - 1, found.high - 1, objective)
        return Measured(self.arm, self._gain(self.cells), *self._resampled(), objective)

    def _scores(self, cells: Sequence[Sequence[tuple[S, S]]]) -> tuple[float, float]:
        """The objectives of (against, arm)."""
        theirs = self.score(self.against, [[base for base, _ in cell] for cell in cells])
        return theirs, self.score(self.arm, [[mine for _, mine in cell] for cell in cells])

    def _gain(self, cells: Sequence[Sequence[tuple[S, S]]]) -> float:
        return gain(*self._scores(cells), self.direction)

    def _log_ratios(self) -> list[list[float]] | None:
        """The log of each pair's ratio, above 0 where the arm is better; None where a value has no log."""
        values = [[self._scores([[pair]]) for pair in cell] for cell in self.cells]
        if any(min(pair) <= 0 for cell in values for pair in cell):
            return None
        sign = -1 if self.direction == "min" else 1
        return [[sign * math.log(mine / theirs) for theirs, mine in cell] for cell in values]

    def _resampled(self) -> tuple[float, float]:
        """The bootstrap's interval, stretched to 0 where an exact test sees no effect."""
        rng = random.Random(0)
        draws = [self._gain([rng.choices(cell, k=len(cell)) for cell in self.cells]) for _ in range(RESAMPLES)]
        low, high = percentile(draws, TAIL), percentile(draws, 1 - TAIL)
        seen = self._gain(self.cells)
        chance = [self._gain(swapped) for swapped in self._swaps()]
        if sum(other >= seen for other in chance) >= TAIL * len(chance):
            low = min(low, 0.0)
        if sum(other <= seen for other in chance) >= TAIL * len(chance):
            high = max(high, 0.0)
        return low, high

    def _swaps(self) -> Iterator[list[list[tuple[S, S]]]]:
        """The pairs with sides exchanged in every way, or in many where there are too many; as they are, first."""
        count = sum(map(len, self.cells))
        rng = random.Random(1)
        exact = 2**count <= RESAMPLES
        masks = range(2**count) if exact else [0, *(rng.getrandbits(count) for _ in range(RESAMPLES))]
        for mask in masks:
            bits = iter(range(count))
            yield [[(b, a) if mask >> next(bits) & 1 else (a, b) for a, b in cell] for cell in self.cells]


def repeats_for(plan: Plan, *, decides: bool = True) -> int:
    """Repeats of each cell: three, and where a benchmark decides over candidates as many as its test needs."""
    pairs = TAIL_PAIRS if of_tail(plan.metric) else MIDDLE_PAIRS
    return max(REPEATS, -(-pairs // len(plan.scenarios))) if decides else REPEATS


def of_tail(metric: str) -> bool:
    """Whether a metric says something of several generations that no single one of them has."""
    return metric == GOODPUT or metric.endswith(("_p95_ms", "_p99_ms"))


def gain(theirs: float, mine: float, direction: Literal["min", "max"]) -> float:
    """Relative improvement: +1 is twice as fast. From or to nothing (a goodput of 0, say) counts as 1 in size, since
    a ratio to 0 is no number."""
    better, size = (theirs - mine, abs(mine)) if direction == "min" else (mine - theirs, abs(theirs))
    return better / size if size else float((better > 0) - (better < 0))
