"""Whether what was said while the clock ran is right, judged afterwards by somebody else."""

import random
import time
from collections.abc import Sequence

from gpu_actors.arms import CHECKED_POSITIONS, fault
from gpu_actors.benchmark_jobs import BenchmarkJob
from gpu_actors.child import ChildFailure
from gpu_actors.entrants import Entrant
from gpu_actors.gates.model import BOUND


class Answers:
    """Judges the words of a benchmark's arms.

    They must be what somebody else holds to be most likely: Hugging Face where it takes part, else the first arm, which
    is the incumbent and has passed its acceptance. A process that judged its own words could forge both. The judge
    itself, if it is an engine, is held against its own logits.

    Only some positions of each generation are looked at, drawn now: rounding sets the band, and exact equality is the
    matter of the acceptance.
    """

    def __init__(self, job: BenchmarkJob, deadline: float):
        """`deadline`: of the benchmark, monotonic seconds; a judge has a minute even past it."""
        self._job = job
        self._deadline = deadline

    def check(self, entrants: Sequence[Entrant]) -> None:
        """Marks each arm that said something wrong."""
        active = [entrant for entrant in entrants if entrant.status == "OK"]
        able = [entrant for entrant in active if entrant.runner.judges]
        judges = [*(e for e in able if not e.engine), *able]
        if not judges:
            return
        judge = judges[0]
        for entrant in active:
            if judge.status != "OK":  # then nobody is left who could say
                return
            if entrant is judge and not judge.engine:
                continue
            try:
                self._check(entrant, judge)
            except ChildFailure as failure:
                judge.drop(failure)

    def _check(self, entrant: Entrant, judge: Entrant) -> None:
        """Raises ChildFailure when the judge can't say. Who said the judge's own words on the same prompt is right
        without a further question: the judge has been held against its own logits before anybody else."""
        own = {} if entrant is judge else {group: tokens for group, _, tokens in judge.said}
        band = (2 if entrant is judge else 8) * BOUND[self._job.facts.workload.dtype]
        for group, prompt, tokens in entrant.said:
            if tokens == own.get(group):
                continue
            predicting = range(len(prompt) - 1, len(prompt) + len(tokens) - 1)
            draw = random.Random(f"{self._job.seed} {group} checked positions")
            positions = sorted(draw.sample(predicting, min(CHECKED_POSITIONS, len(predicting))))
            left = max(60.0, self._deadline - time.monotonic())
            rows = judge.runner.logits(prompt + tokens, positions, left)
            if found := fault(prompt + tokens, positions, rows, band):
                entrant.status, entrant.detail = "WRONG", f"by the logits of {judge.name}: {found}"
                return
