"""`enginesmith bench`: a released engine against Hugging Face, in turn in one run, on fresh prompts."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from rich.table import Table

from benchmarks.stats import paired_ratio, summarise
from ckb.build import read_seed
from ckb.checkpoint import read_checkpoint
from ckb.errors import UserError
from ckb.facts import Facts
from ckb.schemas import ModelFamily
from gpu_actors.device import Device
from gpu_actors.jobs import Arm, Benchmark, BenchmarkJob, EngineJob, Row, Scenario
from swarm.feasibility import allowed_bytes, facts_of, scenarios_of
from swarm.paths import cache_dir
from swarm.platform import detect
from swarm.release import Manifest

FULL = (Scenario(prompt_tokens=11, new_tokens=128), Scenario(prompt_tokens=256, new_tokens=128))
"""What engines are compared by, whatever their Target measures."""
FULL_REPEATS = 5
ENGINE, REFERENCE = "engine", "huggingface"


def benchmark_engine(folder: Path, checkpoint: Path, *, full: bool) -> tuple[Benchmark, Facts]:
    """One paired run: the Target's own scenarios, or with `full` the standard ones and more repeats.

    Raises UserError for an engine whose context is too short for the scenarios, or whose files were changed.
    """
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    target = manifest.target
    families = [row for row in read_seed()["models"] if isinstance(row, ModelFamily)]
    platform = detect(target.hardware.accelerator, target.hardware.count)
    facts = facts_of(target, read_checkpoint(checkpoint, families).facts, platform)
    scenarios = FULL if full else scenarios_of(target)
    check_context(scenarios, facts.workload.max_context)
    engine = EngineJob(
        tree=manifest.tree,
        tree_dir=str(folder),
        checkpoint=str(checkpoint),
        facts=facts,
        operators=target.operators,
        sandbox=target.sandbox,
        max_memory_bytes=allowed_bytes(target, platform),
    )
    job = BenchmarkJob(
        arms=(Arm(name=ENGINE, engine=engine), Arm(name=REFERENCE)),
        scenarios=scenarios,
        repeats=FULL_REPEATS if full else 3,
        checkpoint=str(checkpoint),
        facts=facts,
    )
    return Device(target.hardware.accelerator, cache_dir()).benchmark(job), facts


def check_context(scenarios: Sequence[Scenario], room: int) -> None:
    longest = max(s.prompt_tokens + s.new_tokens for s in scenarios)
    if longest > room:
        raise UserError(
            f"the benchmark needs {longest} positions, this engine was made for {room} (the longest prompt_tokens and "
            "new_tokens of its Target): leave --full out, or generate an engine with a longer workload"
        )


def benchmark_parts(benchmark: Benchmark, facts: Facts) -> list[Table | str]:
    """What is printed: one table a scenario, and how it was measured."""
    cells = dict.fromkeys((row.prompt_tokens, row.new_tokens) for row in benchmark.rows)
    parts: list[Table | str] = []
    for prompt, new in cells:
        rows = [row for row in benchmark.rows if (row.prompt_tokens, row.new_tokens) == (prompt, new)]
        parts += [
            f"{prompt} prompt tokens, {new} new tokens; mean / median ± sd",
            cell_table(benchmark, rows, facts),
            "",
        ]
    voided = {f"{row.arm}: {row.void}" for row in benchmark.rows if row.void}
    parts += [f"void: {reason}" for reason in sorted(voided)]
    parts.append(
        f"{benchmark.device}; {benchmark.repeats} repeats after {benchmark.warmup} warm-up; read bandwidth "
        f"{benchmark.read_gb_s:.1f} GB/s measured in this run; {benchmark.prompts}"
    )
    return parts


def cell_table(benchmark: Benchmark, rows: Sequence[Row], facts: Facts) -> Table:
    """One row an arm, over one scenario."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "TTFT ms", "TPOT ms", "latency ms", "tok/s", "peak MiB", "of read bw", "speed"):
        table.add_column(column, justify="left" if not column else "right")
    valid = {arm.arm: [row for row in rows if row.arm == arm.arm and not row.void] for arm in benchmark.arms}
    for arm in benchmark.arms:
        mine = valid[arm.arm]
        if not mine:
            table.add_row(arm.arm, f"{arm.status} {arm.detail}".strip())
            continue
        context = mine[0].prompt_tokens + mine[0].new_tokens // 2
        floor_ms = facts.model.decode_bytes(context, facts.workload.dtype) / benchmark.read_gb_s / 1e6
        table.add_row(
            arm.arm,
            spread([row.ttft_ms for row in mine]),
            spread([row.tpot_ms for row in mine]),
            spread([row.latency_ms for row in mine]),
            f"{mean(row.decode_tok_s for row in mine):.1f}",
            f"{arm.peak_rss_bytes / 2**20:.0f}",
            f"{floor_ms / mean(row.tpot_ms for row in mine):.0%}",
            speed(mine, valid[REFERENCE]) if arm.arm != REFERENCE else "1.00x",
        )
    return table


def spread(values: Sequence[float]) -> str:
    found = summarise(values)
    return f"{found.mean:.1f} / {found.median:.1f} ± {found.sd:.1f}"


def speed(mine: Sequence[Row], reference: Sequence[Row]) -> str:
    """Decode speed over the reference's, from the repeats that both have, with its bootstrap interval."""
    theirs = {row.repeat: row.tpot_ms for row in reference}
    pairs = [(theirs[row.repeat], row.tpot_ms) for row in mine if row.repeat in theirs]
    if not pairs:
        return "no pair"
    ratio = paired_ratio([a for a, _ in pairs], [b for _, b in pairs])
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"
