"""From rows to the objective and to effects: timed metrics, goodput under its objective, and the user's own."""

import math
import random
from collections.abc import Sequence
from statistics import mean

import pytest

from benchmarks.metrics import METRICS
from gpu_actors.benchmark_jobs import ArmResult, Benchmark, Row, Scenario, UserRow
from swarm.gains import Measured, gains, why_no_gain
from swarm.measure import by_cell, compare, gain, objective_of, repeats_for
from swarm.merge_queue import why_void
from swarm.plan import Plan
from swarm.report.page import reference_levels
from swarm.report.tables import user_metrics
from swarm.state import RunState
from swarm.tables import plan_text
from tests.unit.swarm.example_run import example_plan

ARMS = ("incumbent", "r1-1-c0", "r1-2-c0", "huggingface")


def row(arm: str, repeat: int, tpot: float, prompt: int = 8) -> Row:
    times = {"ttft_ms": 5.0, "tpot_ms": tpot, "latency_ms": 5 + 9 * tpot, "decode_tok_s": 1000 / tpot}
    place = {"prompt_tokens": prompt, "new_tokens": 10, "repeat": repeat, "order": repeat}
    return Row(arm=arm, **place, **times, foreign_cpu=0.0)  # type: ignore[arg-type]


def user_row(arm: str, repeat: int, void: str | None = None, **metrics: float) -> UserRow:
    return UserRow(arm=arm, repeat=repeat, order=repeat, metrics=metrics, void=void)


def benchmark(rows: list[Row], user_rows: list[UserRow] | None = None) -> Benchmark:
    arms = tuple(ArmResult(arm=name, status="OK", load_s=1.0, peak_rss_bytes=1 << 30) for name in ARMS)
    return Benchmark(
        rows=tuple(rows), arms=arms, user_rows=tuple(user_rows or ()), read_gb_s=20.0, repeats=3, warmup=1,
        prompts="words", device="cpu", seconds=1.0,
    )  # fmt: skip


def scenarios(*prompts: int) -> tuple[Scenario, ...]:
    return tuple(Scenario(prompt_tokens=prompt, new_tokens=10) for prompt in prompts)


def plan(**fields: object) -> Plan:
    """In tpot_ms on the one scenario that `row` has unless told otherwise."""
    return example_plan().model_copy(update={"metric": "tpot_ms", "scenarios": scenarios(8), **fields})


SPEED = plan(metric="user.speed", direction="max", unit="", bound=None)


def test_a_metric_of_the_users_benchmark_ranks_the_arms_against_what_the_clock_says() -> None:
    timed = [row(arm, i, tpot) for i in range(3) for arm, tpot in zip(ARMS, (10.0, 5.0, 20.0, 30.0), strict=True)]
    printed = [user_row("incumbent", i, speed=10.0 + i, size=3.0) for i in range(3)]
    printed += [user_row("r1-1-c0", i, speed=(10.0 + i) / 2, size=1.0) for i in range(3)]
    printed += [user_row("r1-2-c0", i, speed=(10.0 + i) * 2, size=9.0) for i in range(3)]
    found = compare(benchmark(timed, printed), SPEED)
    assert found.keys() == {"r1-1-c0", "r1-2-c0"}, "Hugging Face has no engine folder and no row"
    assert (found["r1-2-c0"].low, found["r1-2-c0"].effect, found["r1-2-c0"].high) == pytest.approx((1.0, 1.0, 1.0))
    assert found["r1-1-c0"].effect == pytest.approx(-0.5)
    assert found["r1-2-c0"].objective == 22.0
    assert objective_of(benchmark(timed, printed), "incumbent", SPEED) == 11.0
    assert objective_of(benchmark(timed, printed), "huggingface", SPEED) is None
    smaller = compare(benchmark(timed, printed), plan(metric="user.size", direction="min", unit="", bound=None))
    assert smaller["r1-1-c0"].effect == pytest.approx(2.0)


def test_void_runs_and_runs_without_the_metric_do_not_count_and_say_why() -> None:
    printed = [user_row("incumbent", i, speed=10.0) for i in range(3)]
    printed += [user_row("r1-1-c0", 0, void="the user's benchmark: FAIL: exit status 3")]
    printed += [user_row("r1-2-c0", 0, speed=11.0), user_row("r1-2-c0", 2, speed=99.0, void="foreign load")]
    printed += [user_row("r1-2-c0", 1, other=1.0)]
    found = compare(benchmark([], printed), SPEED)
    assert found.keys() == {"r1-2-c0"}
    assert found["r1-2-c0"].effect == pytest.approx(0.1)
    assert "exit status 3" in why_void(benchmark([], printed), "r1-1-c0")
    shown = {
        (line.label, line.name): (line.median, line.valid, line.why) for line in user_metrics(benchmark([], printed))
    }
    assert shown["r1-2-c0", "speed"] == (11.0, 1, "foreign load")
    assert shown["r1-1-c0", "–"] == (None, 0, "the user's benchmark: FAIL: exit status 3")


def test_goodput_is_compared_under_the_plans_own_objective() -> None:
    rows = [row("incumbent", i, tpot) for i, tpot in enumerate((10.0, 30.0, 10.0))]
    rows += [row("r1-1-c0", i, 10.0) for i in range(3)] + [row("r1-2-c0", i, 9.0 if i else 40.0) for i in range(3)]
    goodput = {"metric": "goodput_requests_s", "direction": "max", "unit": "requests/s"}
    loose, tight = plan(**goodput, slo={"tpot_ms": 20.0}), plan(**goodput, slo={"tpot_ms": 9.5})
    assert objective_of(benchmark(rows), "incumbent", loose) == pytest.approx(2000 / (95 + 275 + 95))
    assert compare(benchmark(rows), loose)["r1-1-c0"].effect > 1
    assert objective_of(benchmark(rows), "incumbent", tight) == 0
    found = compare(benchmark(rows), tight)
    assert found["r1-1-c0"].effect == 0, "from nothing to nothing"
    assert found["r1-2-c0"].effect == 1, "from nothing to something is no ratio, and finite"


def test_a_cell_of_nothing_makes_the_mean_over_cells_nothing() -> None:
    rows = [row("incumbent", 0, 10.0), row("incumbent", 0, 30.0, prompt=64)]
    both = plan(scenarios=scenarios(8, 64))
    goodput = {"metric": "goodput_requests_s", "direction": "max", "unit": "requests/s", "slo": {"tpot_ms": 20.0}}
    assert objective_of(benchmark(rows), "incumbent", both.model_copy(update=goodput)) == 0
    assert objective_of(benchmark(rows), "incumbent", both) == pytest.approx(300**0.5)


@pytest.mark.parametrize(
    ("theirs", "mine", "direction", "expected"),
    [
        (20.0, 10.0, "min", 1.0),
        (10.0, 20.0, "max", 1.0),
        (-4.0, -2.0, "max", 0.5),
        (0.0, 3.0, "max", 1.0),
        (0.0, 3.0, "min", -1.0),
        (3.0, 0.0, "min", 1.0),
        (0.0, 0.0, "max", 0.0),
    ],
)
def test_a_gain_is_positive_when_better_and_always_a_number(
    theirs: float, mine: float, direction: str, expected: float
) -> None:
    assert gain(theirs, mine, "min" if direction == "min" else "max") == pytest.approx(expected)


def test_without_a_bound_no_floor_is_drawn_and_none_is_printed() -> None:
    assert [level.name for level in reference_levels(RunState(), plan())] == ["roofline"]
    assert reference_levels(RunState(), SPEED) == ()
    assert "bound: none for user.speed" in plan_text(SPEED)
    assert Plan.model_validate_json(SPEED.model_dump_json()).bound is None
    assert SPEED.definition.direction == "max"
    assert "'speed'" in SPEED.definition.definition


CELLS = (8, 64)


def noisy(rng: random.Random, repeats: int, gain: float, prompts: Sequence[int] = CELLS) -> Benchmark:
    """Rows with 2% noise on a drift that both arms of a group share; the second cell is three times as noisy."""
    rows = []
    for place, prompt in enumerate(prompts):
        for i in range(repeats):
            drift = 10.0 * rng.uniform(1, 1.5)
            theirs, mine = (drift * math.exp(rng.gauss(0, 0.02 * (1 + 2 * place))) for _ in range(2))
            rows += [row("incumbent", i, theirs, prompt), row("r1-1-c0", i, mine / (1 + gain), prompt)]
    return benchmark(rows)


def share_of_gains(metric: str, repeats: int, gain: float, runs: int, prompts: Sequence[int] = CELLS) -> float:
    rng = random.Random(7)
    asked = plan(metric=metric, direction=METRICS[metric].direction, scenarios=scenarios(*prompts))
    return mean(compare(noisy(rng, repeats, gain, prompts), asked)["r1-1-c0"].low > 0 for _ in range(runs))


@pytest.mark.parametrize(("metric", "prompts"), [("tpot_ms", (8,)), ("tpot_ms", CELLS), ("output_tok_s", CELLS)])
def test_no_effect_clears_zero_in_about_one_case_of_forty(metric: str, prompts: Sequence[int]) -> None:
    assert 0.002 < share_of_gains(metric, 3, 0.0, 1000, prompts) < 0.033


def test_a_gain_of_a_tenth_clears_zero_with_three_pairs() -> None:
    assert share_of_gains("tpot_ms", 3, 0.10, 200, prompts=(8,)) > 0.75


def test_a_tail_needs_six_pairs_to_show_a_gain() -> None:
    def low(repeats: int) -> float:
        rows = [
            row(arm, i, tpot + 0.01 * i) for i in range(repeats) for arm, tpot in (("incumbent", 20.0), (ARMS[1], 10.0))
        ]
        return compare(benchmark(rows), plan(metric="tpot_p99_ms"))[ARMS[1]].low

    assert low(5) == 0
    assert low(6) == pytest.approx(1, rel=0.02)


def test_what_was_measured_once_an_arm_is_no_gain_by_itself() -> None:
    rows = [row(arm, i, 10.0) for i in range(3) for arm in ARMS]
    measured = benchmark(rows)
    small = measured.arms[1].model_copy(update={"peak_rss_bytes": 1 << 29})
    measured = measured.model_copy(update={"arms": (measured.arms[0], small)})
    found = compare(measured, plan(metric="peak_memory_bytes", unit="bytes"))[ARMS[1]]
    assert (found.effect, found.objective) == pytest.approx((1.0, 1 << 29))
    assert -1 < found.low < 0 < found.high < 1000, "finite, since it is stored"
    assert not gains([found])


def test_a_cell_of_the_plan_without_a_pair_or_a_row_is_missed() -> None:
    rows = [row(arm, i, 10.0) for i in range(3) for arm in ARMS[:2]]
    both = plan(scenarios=scenarios(8, 64))
    assert compare(benchmark(rows), both) == {}
    assert objective_of(benchmark(rows), "incumbent", both) is None
    other = [row("incumbent", 0, 10.0, prompt=64), row(ARMS[1], 1, 10.0, prompt=64)]
    assert compare(benchmark(rows + other), both) == {}, "rows, but of no repeat that both have"
    assert objective_of(benchmark(rows + other), "incumbent", both) == pytest.approx(10.0)


def test_of_a_repeat_only_its_last_group_counts_whatever_the_arm() -> None:
    spoiled = [row("incumbent", 0, 1.0), row(ARMS[1], 0, 9.0).model_copy(update={"void": "foreign load"})]
    again = [row("incumbent", 0, 20.0), row(ARMS[1], 0, 10.0)]
    lost = [row("incumbent", 1, 30.0), row(ARMS[1], 1, 10.0)]
    last = [row("incumbent", 1, 7.0).model_copy(update={"void": "foreign load"}), row(ARMS[1], 1, 5.0)]
    groups = [spoiled, again, lost, last]
    rows = [row.model_copy(update={"group": i}) for i, group in enumerate(groups) for row in group]
    assert {
        cell: {i: r.tpot_ms for i, r in found.items()} for cell, found in by_cell(benchmark(rows), ARMS[0]).items()
    } == {(8, 10): {0: 20.0}}
    assert compare(benchmark(rows), plan())[ARMS[1]].effect == pytest.approx(1.0)
    runs = [
        [user_row("incumbent", 0, speed=100.0), user_row(ARMS[1], 0, "foreign load", speed=1.0)],
        [user_row("incumbent", 0, speed=10.0), user_row(ARMS[1], 0, speed=11.0)],
        [user_row("incumbent", 1, speed=100.0), user_row(ARMS[1], 1, speed=1.0)],
        [user_row("incumbent", 1, "foreign load", speed=10.0), user_row(ARMS[1], 1, speed=11.0)],
    ]
    printed = [run.model_copy(update={"group": i}) for i, group in enumerate(runs) for run in group]
    assert compare(benchmark([], printed), SPEED)[ARMS[1]].effect == pytest.approx(0.1)


def test_a_tail_is_measured_often_enough_to_show_a_gain_at_all() -> None:
    assert repeats_for(plan()) == 5
    assert repeats_for(plan(scenarios=scenarios(8, 16))) == 3
    assert repeats_for(plan(metric="tpot_p99_ms"), decides=False) == 3
    assert repeats_for(plan(metric="tpot_p99_ms")) == 8
    assert repeats_for(plan(metric="tpot_p99_ms", scenarios=scenarios(8, 16, 32))) == 3


def test_tokens_that_are_held_back_save_nothing() -> None:
    """The same work, the first token later and the rest at a higher pace: what a batching stream would show."""

    def timed(ttft: float, tpot: float, arm: str, repeat: int) -> Row:
        latency = ttft + 9 * tpot
        update = {"ttft_ms": ttft + repeat / 100, "tpot_ms": tpot + repeat / 100, "latency_ms": latency}
        return row(arm, repeat, tpot).model_copy(update=update)

    def found(ttft: float, tpot: float) -> Measured:
        rows = [timed(*times, arm, i) for i in range(3) for arm, times in ((ARMS[0], (5, 10)), (ARMS[1], (ttft, tpot)))]
        return compare(benchmark(rows), plan())[ARMS[1]]

    held = found(ttft=5 + 9 * 2, tpot=8)
    assert held.low > 0
    assert not gains([held])
    assert "the first token came 18.0 ms later, and all others together 18.0 ms sooner" in why_no_gain(held)
    for ttft, tpot, why in ((5, 8, "honest"), (4, 8, "faster in both"), (8, 8, "most of it was saved")):
        assert gains([found(ttft, tpot)]), why
    assert "slower" in why_no_gain(found(ttft=9, tpot=12)), "slower in both is simply slower"
