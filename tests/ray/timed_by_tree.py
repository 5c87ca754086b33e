"""A driver whose device times are a pure function of the tree's hash; planning, gates, git and Ray are all real.

`python -m tests.ray.timed_by_tree plan TARGET.yaml RUN`, then `drive RUN`, as often as it takes to the end.
"""

import sys
from pathlib import Path

from gpu_actors.benchmark_jobs import Benchmark, BenchmarkJob, Profile, Row
from gpu_actors.device import Device
from gpu_actors.jobs import EngineJob

HUGGINGFACE_MS = 80.0


class TimedByTree(Device):
    """The engines run and their answers are checked; only what the clock said is replaced."""

    def benchmark(self, job: BenchmarkJob) -> Benchmark:
        found = super().benchmark(job)
        times = {arm.name: step_ms(arm.engine.tree) if arm.engine else HUGGINGFACE_MS for arm in job.arms}
        return found.model_copy(update={"rows": tuple(timed(row, times[row.arm]) for row in found.rows)})

    def profile(self, job: EngineJob) -> Profile:
        """What to try next follows from it, so it is a pure function too."""
        return Profile(shares={"linear": 0.7, "attention": 0.2, "rest": 0.1}, step_ms=step_ms(job.tree))


def step_ms(tree: str) -> float:
    """Between 20 and 40 ms a token."""
    return 20 + int(tree[8:12], 16) / 65536 * 20


def timed(row: Row, step: float) -> Row:
    """The row with a time of a tree that differs by 0.1% from repeat to repeat. A busy machine spoils none of them."""
    tpot = step * (1 + 0.001 * row.repeat)
    figures = {"ttft_ms": 5.0, "tpot_ms": tpot, "latency_ms": 5 + tpot * (row.new_tokens - 1)}
    calm = {"void": None, "busy": False, "foreign_cpu": 0.0} if row.busy else {}
    return row.model_copy(update=figures | {"decode_tok_s": 1000 / tpot} | calm)


def plan(target_file: Path, run: Path) -> None:
    from ckb.build import ensure_store
    from swarm.ceilings import measure
    from swarm.context import RunFiles
    from swarm.paths import store_dir
    from swarm.plan import make_plan
    from swarm.platform import detect
    from swarm.target import load_target

    target = load_target(target_file)
    platform = detect(target.hardware.accelerator, target.hardware.count)
    RunFiles(run).write(target_file.stem, target, make_plan(target, ensure_store(store_dir()), platform, measure))


def drive(run: Path) -> None:
    from swarm import ray_environment

    ray_environment.prepare()
    from swarm.run import resume

    print(resume(run, TimedByTree).outcome)


if __name__ == "__main__":
    from tests.ray import timed_by_tree  # by which name, and not as __main__, the actors find the class

    match sys.argv[1:]:
        case "plan", target_file, run:
            timed_by_tree.plan(Path(target_file), Path(run))
        case "drive", run:
            timed_by_tree.drive(Path(run))
        case _:
            sys.exit(__doc__)
