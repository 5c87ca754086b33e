"""What the loop itself costs beside its authors: real outer and inner loop, journal and git; authors that take a fixed
time, a device that answers at once.

`python -m tests.unit.swarm.scaling` prints 8 implementers at 64 issues of 5 s each. Ideal is issues / width * delay.
"""

import argparse
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from gpu_actors.benchmark_jobs import Row
from roles.author import Answer, AnyBrief, NoAnswer, Usage
from roles.briefs import (
    EvaluatorAnswer,
    EvaluatorBrief,
    Hypothesis,
    ImplementerAnswer,
    ImplementerBrief,
    OrchestratorAnswer,
    OrchestratorBrief,
    ReviewerAnswer,
    ReviewerBrief,
)
from roles.settings import SingleAuthor
from swarm.context import Context
from tests.unit.swarm.rehearsal import Rehearsal, prepare, rehearse

FREE = {"change": {}, "expected_effect": 0.05, "acceptance": "it is faster", "falsification": "it is not"}


class Delayed(Rehearsal):
    """Implementers of the rounds take `delay` seconds, and each adds a line of its own; nothing gains."""

    def __init__(self, store: Path, width: int, delay: float):
        super().__init__(store)
        self.width, self.delay = width, delay
        self.most = 0
        """Implementers that were at work at once."""
        self._working = 0
        self._counting = threading.Lock()

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        usage = Usage(author="delayed")
        match brief:
            case EvaluatorBrief():
                ideas = tuple(Hypothesis.model_validate(FREE | {"title": f"idea {n}"}) for n in range(self.width))
                return EvaluatorAnswer(hypotheses=ideas), usage
            case OrchestratorBrief():
                return OrchestratorAnswer(dispatch=tuple(range(self.width)), memory="", stop=False), usage
            case ReviewerBrief():
                return ReviewerAnswer(findings=()), usage
            case ImplementerBrief(free=True):
                return self._written(brief), usage
            case ImplementerBrief() if brief.seed:
                raise NoAnswer("one engine is enough to start from", usage)
        return super().answer(brief, author)

    def _row(self, arm: str, tree: str, scenario: object, repeat: int, order: int) -> Row:
        return super()._row(arm, "0" * 64 if tree else "", scenario, repeat, order)

    def _written(self, brief: ImplementerBrief) -> ImplementerAnswer:
        with self._counting:
            self._working += 1
            self.most = max(self.most, self._working)
        time.sleep(self.delay)
        with self._counting:
            self._working -= 1
        files = {**brief.files, "engine.py": f"# {brief.issue}\n{brief.files['engine.py']}"}
        return ImplementerAnswer(files=files, choices=brief.choices, summary="a line of its own")


@dataclass(frozen=True)
class Cost:
    """What a scaled run took."""

    issues: int
    most: int
    """Implementers at work at once, at most."""
    wall: float
    """Seconds from the first round to the end of the last one."""
    ideal: float
    """Seconds of the authors alone."""

    @property
    def own(self) -> float:
        """Seconds that the loop adds to each issue."""
        return (self.wall - self.ideal) / self.issues


def measure(home: Path, width: int, issues: int, delay: float) -> tuple[Cost, Context]:
    """`issues` in rounds of `width`. ENGINESMITH_HOME is `home`."""
    rounds = issues // width
    crew = Delayed(home / "store", width, delay)
    context = rehearse(home, prepare(home, rounds=rounds, parallel=width), crew=crew)
    state = context.state
    wall = state.rounds[rounds - 1].at - state.opened[1].at
    done = [c for c in state.candidates.values() if state.round_of(c.id)]
    return Cost(len(done), crew.most, wall, rounds * delay), context


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--issues", type=int, default=64)
    parser.add_argument("--delay", type=float, default=5.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ENGINESMITH_HOME"] = folder
        cost, _ = measure(Path(folder), asked.width, asked.issues, asked.delay)
    print("implementers  issues  wall s  ideal s  over ideal  own ms an issue")
    over = cost.wall / cost.ideal - 1
    print(
        f"{cost.most:12d}  {cost.issues:6d}  {cost.wall:6.1f}  {cost.ideal:7.1f}  {over:10.1%}  {cost.own * 1e3:15.0f}"
    )


if __name__ == "__main__":
    main()
