"""The benchmark table of the page: one table a scenario, one row an engine, from the rows of one paired run."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from benchmarks.stats import Summary, summarise
from gpu_actors.bench import losses
from gpu_actors.benchmark_jobs import ArmResult, Benchmark, Row, Scenario
from swarm.measure import compare
from swarm.plan import Plan
from swarm.report.words import DASH, times

REFERENCE = "huggingface"
LABELS = {REFERENCE: "Hugging Face", "engine": "this engine"}


@dataclass(frozen=True)
class Timing:
    """What the valid rows of one engine say."""

    ttft: Summary
    tpot: Summary
    latency: Summary
    decode_tok_s: float
    read_share: float
    """Bytes that a token must read at least, over TPOT and the read bandwidth that was measured of the memory timed;
    more than 1 only where a cache holds them (Benchmark.no_floor)."""


@dataclass(frozen=True)
class ArmView:
    label: str
    ours: bool
    result: ArmResult
    timing: Timing | None
    """None: no valid row."""
    why: str
    """Why there is no timing."""
    speedup: str
    """Ratio to Hugging Face in the Target's metric, with its interval; empty for Hugging Face itself."""
    valid: int
    void: int


@dataclass(frozen=True)
class ScenarioTable:
    scenario: Scenario
    arms: tuple[ArmView, ...]
    losses: tuple[str, ...]
    """In what the engine is behind Hugging Face, in words."""


@dataclass(frozen=True)
class UserMetric:
    """What the user's benchmark printed of one engine under one name."""

    label: str
    name: str
    median: float | None
    """None: no run counts."""
    valid: int
    why: str
    """Why runs do not count, empty if all do."""


def user_metrics(benchmark: Benchmark) -> tuple[UserMetric, ...]:
    """The user's own metrics, by engine and name."""
    found = []
    for arm in dict.fromkeys(row.arm for row in benchmark.user_rows):
        rows = [row for row in benchmark.user_rows if row.arm == arm]
        why = "; ".join(sorted({row.void for row in rows if row.void}))
        for name in sorted({name for row in rows for name in row.metrics}) or [DASH]:
            values = [row.metrics[name] for row in rows if row.void is None and name in row.metrics]
            middle = median(values) if values else None
            found.append(UserMetric(LABELS.get(arm, arm), name, middle, len(values), why))
    return tuple(found)


def benchmark_tables(benchmark: Benchmark, plan: Plan) -> tuple[ScenarioTable, ...]:
    """One table for each scenario of the run, in the run's order."""
    cells = dict.fromkeys((row.prompt_tokens, row.new_tokens) for row in benchmark.rows)
    return tuple(scenario_table(benchmark, plan, Scenario(prompt_tokens=p, new_tokens=n)) for p, n in cells)


def scenario_table(benchmark: Benchmark, plan: Plan, scenario: Scenario) -> ScenarioTable:
    cell = (scenario.prompt_tokens, scenario.new_tokens)
    rows = tuple(row for row in benchmark.rows if (row.prompt_tokens, row.new_tokens) == cell)
    alone = plan.model_copy(update={"scenarios": (scenario,)})
    speeds = compare(benchmark.model_copy(update={"rows": rows}), alone, against=REFERENCE)
    arms = []
    for result in benchmark.arms:
        mine = [row for row in rows if row.arm == result.arm]
        valid = [row for row in mine if row.void is None]
        measured = speeds.get(result.arm)
        arms.append(
            ArmView(
                label=LABELS.get(result.arm, result.arm),
                ours=result.arm != REFERENCE,
                result=result,
                timing=timing(valid, scenario, benchmark.read_gb_s, plan) if valid else None,
                why=why_no_timing(result, mine),
                speedup=ratio(measured.effect, measured.low, measured.high) if measured else "",
                valid=len(valid),
                void=len(mine) - len(valid),
            )
        )
    return ScenarioTable(scenario, tuple(arms), losses(benchmark, cell))


def timing(rows: Sequence[Row], scenario: Scenario, read_gb_s: float, plan: Plan) -> Timing:
    tpot = summarise([row.tpot_ms for row in rows])
    context = scenario.prompt_tokens + scenario.new_tokens // 2
    least_ms = plan.facts.model.decode_bytes(context, plan.facts.workload.dtype) / (read_gb_s * 1e6)
    return Timing(
        ttft=summarise([row.ttft_ms for row in rows]),
        tpot=tpot,
        latency=summarise([row.latency_ms for row in rows]),
        decode_tok_s=mean(row.decode_tok_s for row in rows),
        read_share=least_ms / tpot.mean,
    )


def why_no_timing(result: ArmResult, rows: Sequence[Row]) -> str:
    if result.status != "OK":
        return f"{result.status}: {result.detail}"
    return "no valid row: " + "; ".join(sorted({row.void for row in rows if row.void}))


def ratio(effect: float, low: float, high: float) -> str:
    """A gain of +1.31 is a ratio of 2.31: `2.31× [2.25, 2.40]`."""
    return f"{times(1 + effect)} [{1 + low:.2f}, {1 + high:.2f}]"
