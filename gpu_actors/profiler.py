"""Where a decode step's time goes, measured in a process of its own."""

from pathlib import Path

from benchmarks import prompts
from gpu_actors.child import ENGINE, Child
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.jobs import EngineJob, Profile

PROMPT = 64
STEPS = 16


def profile(job: EngineJob, cache_dir: Path) -> Profile:
    """Raises ChildFailure."""
    context = job.facts.workload.max_context
    length = min(PROMPT, context // 2)
    (prompt,) = prompts.cut(Path(job.checkpoint), [length], seed=0)
    steps = min(STEPS, context - length - 1)
    with Child(ENGINE, confinement(job, cache_dir)) as child:
        open_tree(child, job, 60.0)
        arguments = {"checkpoint": job.checkpoint, "prompt": prompt, "steps": steps, "capacity": context}
        found = child.call("profile", 300.0, **arguments)
        return Profile(shares=found.value("shares", dict[str, float]), step_ms=found.value("step_ms", float))
