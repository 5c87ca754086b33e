"""Where a decode step's time goes, measured in a process of its own."""

from pathlib import Path

from benchmarks import prompts
from gpu_actors.child import ENGINE, Child
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.jobs import EngineJob, Profile
from gpu_actors.machine import Ceiling, no_floor, under_floor

PROMPT = 64
STEPS = 16
MARGIN = 4.0
"""Over the ceiling, before a step is disbelieved. That is measured once, afterwards, and gates of other candidates may
use the machine meanwhile: what they take of it they need not have taken of the step."""


def profile(job: EngineJob, cache_dir: Path) -> Profile:
    """The step's time is the engine's own word: one below the floor of the memory that it reads, by MARGIN, is no
    profile but a failure. Raises ChildFailure, and CeilingFailure."""
    context = job.facts.workload.max_context
    length = min(PROMPT, context // 2)
    (prompt,) = prompts.cut(Path(job.checkpoint), [length], seed=0)
    steps = min(STEPS, context - length - 1)
    with Child(ENGINE, confinement(job, cache_dir)) as child:
        open_tree(child, job, 60.0)
        arguments = {"checkpoint": job.checkpoint, "prompt": prompt, "steps": steps, "capacity": context}
        found = child.call("profile", 300.0, **arguments)
        shares, step_ms = found.value("shares", dict[str, float]), found.value("step_ms", float)
    with Ceiling(job.facts.platform) as ceiling:
        ceiling.measure()
    reads = ceiling.reads
    told = {"read_gb_s": reads.gb_s, "no_floor": no_floor(length, steps, job.facts, reads)}
    if why := under_floor(step_ms, length, steps, job.facts, reads, MARGIN):
        return Profile(shares={}, step_ms=0.0, failure=f"WRONG: {why}", **told)
    return Profile(shares=shares, step_ms=step_ms, **told)
