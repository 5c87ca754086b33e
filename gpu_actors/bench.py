"""`bench ENGINE`: an engine against baselines in one paired run, and what to say of it on a terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.baselines.presets import HUGGINGFACE_NAME, arm_names, parse
from benchmarks.baselines.records import Setting, differences
from benchmarks.metrics import STARTUP
from benchmarks.stats import Summary, paired_ratio, summarise
from ckb.errors import UserError
from ckb.facts import Facts
from ckb.hashing import tree_sha256
from gpu_actors.benchmark_jobs import Arm, ArmResult, Benchmark, BenchmarkJob, Row, Scenario
from gpu_actors.device import Device
from gpu_actors.jobs import EngineJob

ENGINE, REFERENCE = "engine", HUGGINGFACE_NAME
TITLES = {REFERENCE: "Hugging Face"}
NOT_GIVEN = "N/A"
FULL = (Scenario(prompt_tokens=11, new_tokens=128), Scenario(prompt_tokens=256, new_tokens=128))
QUICK = (Scenario(prompt_tokens=64, new_tokens=32),)


def baselines(against: Sequence[str], *, tensor_parallel: int = 1) -> tuple[Arm, ...]:
    """The arms that `--against` names, each once; Hugging Face where nothing is named. Raises UserError."""
    texts = list(dict.fromkeys(against)) or [REFERENCE]
    servers = [parse(text, tensor_parallel=tensor_parallel) for text in texts]
    named = arm_names(texts, taken=(ENGINE,))
    return tuple(Arm(name=name, baseline=server) for name, server in zip(named, servers, strict=True))


def bench_engine(
    engine_dir: Path,
    checkpoint: Path,
    facts: Facts,
    cache_dir: Path,
    *,
    against: Sequence[Arm] = (Arm(name=REFERENCE),),
    full: bool = False,
    seed: int = 0,
) -> Benchmark:
    """Times an engine and the arms of `against` (see `baselines`) in turn, on the same prompts.

    `facts` are those that the engine was made for. Raises UserError if its context is too short for any scenario, and
    for a server that can't be started or asked.
    """
    context = facts.workload.max_context
    scenarios = tuple(s for s in (FULL if full else QUICK) if s.prompt_tokens + s.new_tokens <= context)
    if not scenarios:
        wanted = min(s.prompt_tokens + s.new_tokens for s in (FULL if full else QUICK))
        raise UserError(
            f"the engine in {engine_dir} was made for {context} tokens in all; this benchmark needs {wanted}: "
            f"set workload.max_context in its Target to {wanted} or more and generate it again"
        )
    tree, accelerator = tree_sha256(engine_dir), facts.platform.accelerator
    engine = EngineJob(tree=tree, tree_dir=str(engine_dir), checkpoint=str(checkpoint), facts=facts)
    job = BenchmarkJob(
        arms=(Arm(name=ENGINE, engine=engine), *against),
        scenarios=scenarios,
        repeats=5 if full else 3,
        startup=True,
        seed=seed,
        checkpoint=str(checkpoint),
        facts=facts,
        deadline_s=1800.0 + sum(arm.baseline.ready_s for arm in against if arm.baseline),
    )
    return Device(accelerator, cache_dir).benchmark(job)


def valid_rows(benchmark: Benchmark, arm: str, scenario: tuple[int, int]) -> list[Row]:
    return [row for row in benchmark.counted if row.arm == arm and (row.prompt_tokens, row.new_tokens) == scenario]


def scenarios_of(benchmark: Benchmark) -> list[tuple[int, int]]:
    return list(dict.fromkeys((row.prompt_tokens, row.new_tokens) for row in benchmark.rows))


def summary_table(benchmark: Benchmark, facts: Facts) -> Table:
    """Mean, median and deviation of each time, by scenario and arm; the engine's decode speed over each baseline's
    with its interval. What an arm did otherwise than the engine stands under its name."""
    title = f"{facts.workload.dtype}, {benchmark.repeats} repeats after {benchmark.warmup} warm-up, {benchmark.device}"
    caption = f"prompts: {benchmark.prompts}; times in ms: mean / median / sd"
    unheld = "".join(f"\nheld to no floor of memory: {why}" for why in benchmark.no_floor)
    table = Table(title=title, caption=caption + unheld)
    headings = ("TTFT", "TPOT", "latency", "decode tok/s", "of read bandwidth", "engine's speed over it")
    for heading in ("prompt + new", "arm", *headings):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for scenario in scenarios_of(benchmark):
        for result in benchmark.arms:
            rows = valid_rows(benchmark, result.arm, scenario)
            first = (f"{scenario[0]} + {scenario[1]}", "\n".join([result.arm, *differing(benchmark, result)]))
            if rows:
                table.add_row(*first, *cells(benchmark, facts, rows, result.arm, scenario))
            else:
                table.add_row(*first, f"no valid row: {why_none(benchmark, result.arm, scenario)}")
        for other in others(benchmark):
            for loss in losses(benchmark, scenario, against=other):
                table.add_row("", ENGINE, loss)
        table.add_section()
    for result in benchmark.arms:
        table.add_row("", result.arm, f"peak memory {memory(result)}", f"ready in {startup(result)}")
        for why in result.not_judged:
            table.add_row("", result.arm, why)
    return table


def setting_table(benchmark: Benchmark) -> Table:
    """How each arm ran: version, dtype, parallelism, graph state, how it was asked and counted, flags, and what it
    can't give."""
    table = Table(title="how each arm ran")
    for heading in ("arm", "version", "dtype", "parallel", "graph", "tokens counted by", "flags and remarks"):
        table.add_column(heading, overflow="fold")
    for result in benchmark.arms:
        if setting := result.setting:
            values = (setting.dtype, setting.tensor_parallel, setting.graph)
            known = ("not known" if value is None else str(value) for value in values)
            table.add_row(result.arm, setting.version, *known, setting.counted, "\n".join(remarks(setting)))
    return table


def remarks(setting: Setting) -> list[str]:
    missing = [f"{name}: {NOT_GIVEN}, {why}" for name, why in setting.not_given.items()]
    return [*([setting.command] if setting.command else []), f"asked by {setting.asked}", *setting.notes, *missing]


def differing(benchmark: Benchmark, result: ArmResult) -> tuple[str, ...]:
    """In what an arm ran otherwise than the engine."""
    candidate = next((other.setting for other in benchmark.arms if other.arm == ENGINE), None)
    return differences(candidate, result.setting) if candidate and result.setting else ()


def others(benchmark: Benchmark) -> list[str]:
    return [result.arm for result in benchmark.arms if result.arm != ENGINE]


def not_given(result: ArmResult, metric: str) -> str:
    """Why an arm can't give a metric, or ""."""
    return result.setting.not_given.get(metric, "") if result.setting else ""


def memory(result: ArmResult) -> str:
    why = not_given(result, "peak_memory_bytes")
    return f"{NOT_GIVEN} ({why})" if why else f"{result.peak_rss_bytes / 1024**3:.2f} GiB"


def startup(result: ArmResult) -> str:
    why = not_given(result, STARTUP)
    return f"{NOT_GIVEN} ({why})" if why else f"{result.load_s:.1f} s"


def cells(benchmark: Benchmark, facts: Facts, rows: list[Row], arm: str, scenario: tuple[int, int]) -> list[str]:
    times = [summarise([get(row) for row in rows]) for get in (ttft, tpot, latency)]
    moved = facts.model.decode_bytes(scenario[0] + scenario[1] // 2, facts.workload.dtype)
    share = moved / (times[1].median / 1000) / (benchmark.read_gb_s * 1e9)
    result = next(other for other in benchmark.arms if other.arm == arm)
    told = NOT_GIVEN if not_given(result, "read_bandwidth") else f"{share:.0%}"
    return [*map(show, times), f"{1000 / times[1].median:.1f}", told, ratio_text(benchmark, arm, scenario)]


def ratio_text(benchmark: Benchmark, arm: str, scenario: tuple[int, int]) -> str:
    """The engine's decode speed over this arm's, of the repeats that both have, with a 95% interval."""
    mine, theirs = ({r.repeat: r.tpot_ms for r in valid_rows(benchmark, a, scenario)} for a in (ENGINE, arm))
    shared = sorted(mine.keys() & theirs.keys())
    if arm == ENGINE or not shared:
        return ""
    ratio = paired_ratio([theirs[i] for i in shared], [mine[i] for i in shared])
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def losses(
    benchmark: Benchmark, scenario: tuple[int, int], arm: str = ENGINE, against: str = REFERENCE
) -> tuple[str, ...]:
    """In what an engine is behind another arm on the same prompts, beyond noise, in words."""
    mine, theirs = ({r.repeat: r for r in valid_rows(benchmark, a, scenario)} for a in (arm, against))
    shared = sorted(mine.keys() & theirs.keys())
    found = []
    for name, get in (("TTFT", ttft), ("TPOT", tpot), ("latency", latency)) if shared else ():
        ratio = paired_ratio([get(mine[i]) for i in shared], [get(theirs[i]) for i in shared])
        if ratio.low > 1:
            found.append(
                f"{name} is {ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times that of "
                f"{TITLES.get(against, against)}, which is faster there"
            )
    return tuple(found)


def why_none(benchmark: Benchmark, arm: str, scenario: tuple[int, int]) -> str:
    """The reason of the last void row, or how the arm ended."""
    voids = [r.void for r in benchmark.rows if r.arm == arm and (r.prompt_tokens, r.new_tokens) == scenario and r.void]
    result = next(r for r in benchmark.arms if r.arm == arm)
    return voids[-1] if voids else f"{result.status} {result.detail}".strip()


def show(summary: Summary) -> str:
    return f"{summary.mean:.1f} / {summary.median:.1f} / {summary.sd:.1f}"


def ttft(row: Row) -> float:
    return row.ttft_ms


def tpot(row: Row) -> float:
    return row.tpot_ms


def latency(row: Row) -> float:
    return row.latency_ms
