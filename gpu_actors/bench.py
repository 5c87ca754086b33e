"""`bench ENGINE`: an engine against Hugging Face in one paired run, and what to say of it on a terminal."""

from pathlib import Path

from rich.table import Table

from benchmarks.stats import Summary, paired_ratio, summarise
from ckb.errors import UserError
from ckb.facts import Facts
from ckb.hashing import tree_sha256
from gpu_actors.device import Device
from gpu_actors.jobs import Arm, Benchmark, BenchmarkJob, EngineJob, Row, Scenario

ENGINE, REFERENCE = "engine", "huggingface"
FULL = (Scenario(prompt_tokens=11, new_tokens=128), Scenario(prompt_tokens=256, new_tokens=128))
QUICK = (Scenario(prompt_tokens=64, new_tokens=32),)


def bench_engine(
    engine_dir: Path, checkpoint: Path, facts: Facts, cache_dir: Path, *, full: bool = False, seed: int = 0
) -> Benchmark:
    """Times an engine and Hugging Face `generate` in turn, on the same prompts, dtype and threads.

    `facts` are those that the engine was made for. Raises UserError if its context is too short for any scenario.
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
        arms=(Arm(name=ENGINE, engine=engine), Arm(name=REFERENCE)),
        scenarios=scenarios,
        repeats=5 if full else 3,
        startup=True,
        seed=seed,
        checkpoint=str(checkpoint),
        facts=facts,
        deadline_s=1800.0,
    )
    return Device(accelerator, cache_dir).benchmark(job)


def valid_rows(benchmark: Benchmark, arm: str, scenario: tuple[int, int]) -> list[Row]:
    return [row for row in benchmark.counted if row.arm == arm and (row.prompt_tokens, row.new_tokens) == scenario]


def scenarios_of(benchmark: Benchmark) -> list[tuple[int, int]]:
    return list(dict.fromkeys((row.prompt_tokens, row.new_tokens) for row in benchmark.rows))


def summary_table(benchmark: Benchmark, facts: Facts) -> Table:
    """Mean, median and deviation of each time, by scenario and arm; the ratio to Hugging Face with its interval."""
    title = f"{facts.workload.dtype}, {benchmark.repeats} repeats after {benchmark.warmup} warm-up, {benchmark.device}"
    table = Table(title=title, caption=f"prompts: {benchmark.prompts}; times in ms: mean / median / sd")
    for heading in ("prompt + new", "arm", "TTFT", "TPOT", "latency", "decode tok/s", "of read bandwidth", "x HF"):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for scenario in scenarios_of(benchmark):
        for result in benchmark.arms:
            rows = valid_rows(benchmark, result.arm, scenario)
            label = f"{scenario[0]} + {scenario[1]}"
            if rows:
                table.add_row(label, result.arm, *cells(benchmark, facts, rows, result.arm, scenario))
            else:
                table.add_row(label, result.arm, f"no valid row: {why_none(benchmark, result.arm, scenario)}")
        for loss in losses(benchmark, scenario):
            table.add_row("", ENGINE, loss)
        table.add_section()
    for result in benchmark.arms:
        gib = result.peak_rss_bytes / 1024**3
        table.add_row("", result.arm, f"peak memory {gib:.2f} GiB", f"ready in {result.load_s:.1f} s")
    return table


def cells(benchmark: Benchmark, facts: Facts, rows: list[Row], arm: str, scenario: tuple[int, int]) -> list[str]:
    times = [summarise([get(row) for row in rows]) for get in (ttft, tpot, latency)]
    moved = facts.model.decode_bytes(scenario[0] + scenario[1] // 2, facts.workload.dtype)
    share = moved / (times[1].median / 1000) / (benchmark.read_gb_s * 1e9)
    rate = 1000 / times[1].median
    return [*map(show, times), f"{rate:.1f}", f"{share:.0%}", ratio_text(benchmark, arm, scenario)]


def ratio_text(benchmark: Benchmark, arm: str, scenario: tuple[int, int]) -> str:
    """Decode speed over Hugging Face's, of the repeats that both have, with a 95% interval."""
    mine, theirs = ({r.repeat: r.tpot_ms for r in valid_rows(benchmark, a, scenario)} for a in (arm, REFERENCE))
    shared = sorted(mine.keys() & theirs.keys())
    if arm == REFERENCE or not shared:
        return ""
    ratio = paired_ratio([theirs[i] for i in shared], [mine[i] for i in shared])
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def losses(benchmark: Benchmark, scenario: tuple[int, int], arm: str = ENGINE) -> tuple[str, ...]:
    """In what an engine is behind Hugging Face on the same prompts, beyond noise, in words."""
    mine, theirs = ({r.repeat: r for r in valid_rows(benchmark, a, scenario)} for a in (arm, REFERENCE))
    shared = sorted(mine.keys() & theirs.keys())
    found = []
    for name, get in (("TTFT", ttft), ("TPOT", tpot), ("latency", latency)) if shared else ():
        ratio = paired_ratio([get(mine[i]) for i in shared], [get(theirs[i]) for i in shared])
        if ratio.low > 1:
            found.append(
                f"{name} is {ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times that of Hugging Face, which is "
                "faster there"
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
