"""python -m benchmarks.policies.run_landscape [--seeds N] [--starts N]

How many trees does a policy have measured until one of the best decile is among them? On NK landscapes, where the
truth is known: the real policy objects, with the composer's own rules for the evaluator and the orchestrator, and with
the merge queue's rules for what is kept. An implementer makes what it is asked for and every gate passes.

A measurement is the worth of an assignment with a relative noise; candidate and incumbent are measured in pairs, as
many as a round's benchmark has. Everything is a function of the seeds. Writes its table into docs/policies.md.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Annotated

import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.policies.landscape import Landscape, Point
from benchmarks.stats import log_ratio
from ckb.facts import Facts, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.records import Choice
from roles.authors.composer.evaluator import evaluate
from roles.authors.composer.orchestrator import orchestrate
from roles.briefs import (
    EvaluatorBrief,
    Hypothesis,
    Lesson,
    OrchestratorAnswer,
    OrchestratorBrief,
    PolicyTool,
    RoleName,
)
from swarm.events import Issue
from swarm.gains import MINIMUM_EFFECT, Measured, gains, independent
from swarm.issues import performance_issue
from swarm.measure import MIDDLE_PAIRS, SHOWN
from swarm.policies import POLICIES
from swarm.policies.base import Assignment, Counsel, Known, Next, Policy, Tree

N, K, NOISE, WIDTH = 12, 3, 0.05, 4
DECILE = 0.1
LONGEST = 300
"""Rounds after which a search ends without."""
STARTS = {"any design": 1.0, "a design of the better half": 0.5}
"""What a search starts from, in words -> the best share of all that it is drawn from. A first engine takes the
defaults, which the knowledge holds to be best: it is hardly any design."""
METRIC = "worth"
NAMES = tuple(f"x{i:02}" for i in range(N))
PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
HEADING = "## On landscapes whose truth is known\n\n"
FACTS = Facts(
    model=ModelFacts(
        model_type="llama", architecture="LlamaForCausalLM", layers=2, hidden=64, intermediate=128, heads=4, kv_heads=2,
        head_dim=16, vocab=512, max_positions=256, norm_eps=1e-5, rope_theta=1e4, rope_type="default", qk_norm=False,
        attention_bias=False, mlp_bias=False, activation="silu", sliding_window=None, tied_head=True, weights="bf16",
        parameters=100_000, bos_token=1, eos_tokens=(2,),
    ),
    platform=PlatformFacts(
        accelerator="cpu", name="none", count=1, cores=2, isa=(), memory_bytes=1 << 30, compiler=None
    ),
    workload=WorkloadFacts(
        kind="single_stream", batch=1, max_prompt=64, max_new=32, dtype="float32", step="graph", serve="offline",
        decoding="greedy",
    ),
)  # fmt: skip
"""Briefs name a model and a machine; the composer's rules for these two roles don't look at them."""


class RandomChoice:
    """What the policies are compared with: whole assignments at random, none twice."""

    tools: Mapping[PolicyTool, tuple[RoleName, ...]] = {}

    def next(self, known: Known, counsel: Counsel) -> Next:
        rng = random.Random(f"{known.seed} {known.round}")
        tried = [dict(one) for one in known.asked]
        issues: list[Issue] = []
        while len(issues) < known.width:
            drawn: dict[str, Choice] = {name: rng.choice(values) for name, values in known.space.items()}
            if drawn not in tried:
                tried.append(drawn)
                change = {name: value for name, value in drawn.items() if known.incumbent.choices[name] != value}
                idea = Hypothesis(title="drawn", change=change, expected_effect=0, acceptance="", falsification="")
                issues.append(performance_issue(known.round, len(issues) + 1, idea, known.incumbent.commit))
        return Next(tuple(issues), known.memory)


SEARCHES: dict[str, Callable[[], Policy]] = {**POLICIES, "random": RandomChoice}
BASELINE = "random"


@dataclass
class Search:
    """One run on a landscape: what the outer loop and the merge queue do, without trees, gates or a device."""

    landscape: Landscape
    start: Point
    seed: int
    main: list[Tree] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    measured: list[Point] = field(default_factory=list)
    """Every assignment that was measured, in order, each once; the start isn't counted."""
    lessons: list[Lesson] = field(default_factory=list)
    asked: list[dict[str, Choice]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.noise = random.Random(f"noise {self.landscape.seed} {self.start} {self.seed}")
        choices = assignment(self.start)
        self.main = [Tree("start", code(choices), choices, "gain", objectives=(0.0,))]
        self.trees, self.asked = list(self.main), [choices]

    def until(self, policy: Policy, wanted: set[Point]) -> int | None:
        """How many trees were measured when one of `wanted` was among them; None if the policy ended without."""
        for number in range(1, LONGEST + 1):
            decided = policy.next(self.known(number), self)
            self.round(decided.issues)
            found = next((place for place, point in enumerate(self.measured, 1) if point in wanted), None)
            if found or decided.stop or not decided.issues:
                return found
        return None

    def known(self, number: int) -> Known:
        space: dict[str, tuple[Choice, ...]] = dict.fromkeys(NAMES, (0, 1))
        tip = self.main[-1]
        return Known(number, WIDTH, self.seed, METRIC, space, tip, tuple(self.trees), tuple(self.asked))

    # --- what a policy may ask ------------------------------------------------------------------------------------

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        brief = EvaluatorBrief(
            run="landscape", facts=FACTS, choices=dict(self.main[-1].choices), metric=METRIC, current=None, bound=None,
            shares={}, space=dict.fromkeys(NAMES, (0, 1)), affects={}, tried=tuple(self.asked),
            known=tuple(self.lessons), wanted=WIDTH,
        )  # fmt: skip
        return evaluate(brief).hypotheses

    def order(self, hypotheses: Sequence[Hypothesis]) -> OrchestratorAnswer:
        brief = OrchestratorBrief(
            run="landscape", facts=FACTS, hypotheses=tuple(hypotheses), parallel=WIDTH, memory="",
            minimum=MINIMUM_EFFECT,
        )  # fmt: skip
        return orchestrate(brief)

    def completed(self, change: Assignment, start: Assignment) -> dict[str, Choice]:
        return {**start, **change}

    # --- a round --------------------------------------------------------------------------------------------------

    def round(self, issues: Sequence[Issue]) -> None:
        """Measures every candidate in turn with the incumbent, then keeps what gained, best first."""
        tip = self.main[-1]
        tried = [self._candidate(issue) for issue in issues]
        self.trees += [self._learned(tree, tip) for tree in tried]
        effects = [self.compare(tree.candidate, tree.choices, tip.choices) for tree in tried]
        merged: list[dict[str, Choice]] = []
        by_name = {tree.candidate: tree for tree in tried}
        bases = {issue.id: issue.base for issue in issues}
        for won in gains(effects):
            tree = by_name[won.candidate]
            change = {name: value for name, value in tree.choices.items() if tip.choices[name] != value}
            if merged and (bases[tree.candidate] != tip.commit or not independent(change, merged)):
                continue  # another lineage, or the same decision, which gained less
            stacked = {**self.main[-1].choices, **change} if merged else dict(tree.choices)
            if gains([self.compare(tree.candidate, stacked, self.main[-1].choices)]):
                merged.append(change)
                self._merge(tree, stacked)

    def _candidate(self, issue: Issue) -> Tree:
        assert issue.hypothesis
        base = next(tree for tree in (*self.trees, *self.main) if tree.commit == issue.base)
        free = not issue.hypothesis.change  # Ralph: the composer changes one choice at random, by the issue's seed
        name = random.Random(f"{self.seed} {issue.seed}").choice(NAMES)
        change = {name: 1 - int(base.choices[name])} if free else issue.hypothesis.change
        choices = {**base.choices, **change}
        self.asked.append(choices)
        return Tree(issue.id, code(choices), choices, "no gain", issue.round, issue.island, issue.parents)

    def _learned(self, tree: Tree, tip: Tree) -> Tree:
        """A tree with what authors may see of it, which also becomes a lesson."""
        seen = self.compare(tree.candidate, tree.choices, tip.choices, SHOWN)
        change = {name: value for name, value in tree.choices.items() if tip.choices[name] != value}
        figures = {"effect": seen.effect, "interval": (seen.low, seen.high), "change": change}
        told = {"id": tree.candidate, "title": "", "kind": "optimisation", "applies_to": "", "signal": "tentative"}
        self.lessons.append(Lesson.model_validate({**told, **figures, "text": ""}))
        return replace(tree, objectives=(tip.objectives[0] + math.log1p(seen.effect),))

    def _merge(self, tree: Tree, choices: dict[str, Choice]) -> None:
        kept = next(t for t in self.trees if t.candidate == tree.candidate)
        if choices not in self.asked:
            self.asked.append(choices)
        gained = self.main[-1].objectives[0] + kept.objectives[0] - self._level
        made = replace(kept, commit=code(choices), choices=choices, standing="gain", objectives=(gained,))
        self.trees[self.trees.index(kept)] = made
        self.main.append(made)

    @property
    def _level(self) -> float:
        """The objective of the incumbent that this round's candidates were measured against."""
        number = self.trees[-1].round
        return next(tree for tree in reversed(self.main) if tree.round < number).objectives[0]

    def compare(self, name: str, mine: Assignment, theirs: Assignment, pairs: int = MIDDLE_PAIRS) -> Measured:
        """A paired benchmark of two assignments, as `swarm.measure.compare` has it of one cell."""
        for point in (bits(mine), bits(theirs)):
            if point != self.start and point not in self.measured:
                self.measured.append(point)
        found = log_ratio([[math.log(self._time(mine) / self._time(theirs)) for _ in range(pairs)]])
        return Measured(name, found.value - 1, found.low - 1, found.high - 1, self.landscape.worth[bits(mine)])

    def _time(self, choices: Assignment) -> float:
        return self.landscape.worth[bits(choices)] * math.exp(self.noise.gauss(0, NOISE))


def assignment(point: Point) -> dict[str, Choice]:
    return dict(zip(NAMES, point, strict=True))


def bits(choices: Assignment) -> Point:
    return tuple(int(choices[name]) for name in NAMES)


def code(choices: Assignment) -> str:
    return "".join(str(choices[name]) for name in NAMES)


# --- the comparison ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One kind of search over all landscapes."""

    name: str
    by_seed: tuple[float, ...]
    """Measured trees until the best decile, for each landscape the mean over its starting points."""
    median: float
    """Over all starting points of all landscapes."""
    begun_again: int
    """Searches that ended without, and were begun again elsewhere."""

    @property
    def mean(self) -> float:
        return mean(self.by_seed)

    def against(self, other: "Row") -> "SignTest":
        better = sum(a < b for a, b in zip(self.by_seed, other.by_seed, strict=True))
        worse = sum(a > b for a, b in zip(self.by_seed, other.by_seed, strict=True))
        untied = better + worse
        return SignTest(better, worse, sum(math.comb(untied, wins) for wins in range(better, untied + 1)) / 2**untied)


@dataclass(frozen=True)
class SignTest:
    better: int
    worse: int
    p: float
    """One-sided: that so many landscapes or more are better by chance."""


def compared(names: Sequence[str], seeds: Sequence[int], starts: int, worst: float) -> list[Row]:
    """Each kind of search on every landscape, from the same starting points: engines that are not of the best decile,
    and of the best share `worst`.

    A search that ends without having reached it is begun again from another point, as its user would, and all that it
    measured counts."""
    found: dict[str, list[list[int]]] = {name: [] for name in names}
    again = dict.fromkeys(names, 0)
    for seed in seeds:
        landscape = Landscape(N, K, seed)
        wanted = landscape.best(DECILE)
        outside = sorted(landscape.best(worst) - wanted)
        for name in names:
            found[name].append([])
            for number in range(starts):
                rng, count, reached = random.Random(f"start {seed} {number}"), 0, None
                while not reached:
                    search = Search(landscape, rng.choice(outside), rng.randrange(10**6))
                    reached = search.until(SEARCHES[name](), wanted)
                    count += reached or len(search.measured)
                    again[name] += not reached
                found[name][-1].append(count)
    return [row(name, counts, again[name]) for name, counts in found.items()]


def row(name: str, counts: Sequence[Sequence[int]], begun_again: int) -> Row:
    every = [count for one in counts for count in one]
    return Row(name, tuple(mean(one) for one in counts), median(every), begun_again)


def page_with(section: str, page: str) -> str:
    """The page with its section on landscapes replaced."""
    before, heading, _ = page.partition(HEADING)
    return f"{before}{heading}{section}"


def main(
    seeds: Annotated[int, typer.Option(help="landscapes")] = 20,
    starts: Annotated[int, typer.Option(help="starting points on each")] = 50,
    write: Annotated[bool, typer.Option(help="write the table into docs/policies.md")] = True,
) -> None:
    """Compares the policies with random choice."""
    tables = {words: compared(list(SEARCHES), range(seeds), starts, worst) for words, worst in STARTS.items()}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True
    )
    section = environment.get_template("landscape.md.jinja").render(
        tables=tables, baseline=BASELINE, n=N, k=K, noise=NOISE, width=WIDTH,
        seeds=seeds, starts=starts, pairs=MIDDLE_PAIRS, exact=(2**N - 1 + 1) / (round(DECILE * 2**N) + 1),
    )  # fmt: skip
    print(section)
    if write:
        PAGE.write_text(page_with(section, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
