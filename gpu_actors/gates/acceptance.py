"""The whole engine against Hugging Face on the same weights: teacher-forced logits, and greedy tokens.

Rounding decides which of two nearly equal logits is larger, and another order of summation rounds differently; so a
token counts as right when the oracle's logit of it is within twice the reference's own largest error of the best one.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import prompts
from ckb.errors import UserError
from ckb.facts import Facts
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.compare import rms
from gpu_actors.reference import Evaluation, Reference

NEW_TOKENS = 64
COUNT = 8
SCREEN_CONTEXT = 1024
MARGIN = 2.0
"""How many times the reference's own error an engine's may be."""
SAMPLES = 16
"""Positions of each sequence whose whole row of logits is compared."""


@dataclass(frozen=True)
class Case:
    """One prompt with what the reference said to it."""

    prompt: list[int]
    continuation: list[int]
    samples: list[int]
    """Positions whose whole row of logits is compared: spread over the prompt and the continuation."""
    sampled: list[int]
    """Where these stand among the evaluated positions."""
    evaluation: Evaluation
    """At these and at every position that predicts a new token."""


@dataclass(frozen=True)
class Plan:
    """Which prompts are asked, of one checkpoint."""

    checkpoint: Path
    facts: Facts
    full: bool
    seed: int

    @property
    def new_tokens(self) -> int:
        """64, or two thirds of the context where the Target's is too short for that."""
        return min(NEW_TOKENS, self.facts.workload.max_context * 2 // 3)

    @property
    def lengths(self) -> list[int]:
        """Prompt lengths, growing by a constant factor up to what the level and the Target allow."""
        context = min(self.facts.workload.max_context, self.facts.model.max_positions)
        longest = (context if self.full else min(context, SCREEN_CONTEXT)) - self.new_tokens
        if longest < 1:
            raise UserError(
                f"a context of {context} tokens leaves no room for a prompt and {self.new_tokens} new tokens"
            )
        return [max(1, round(n)) for n in np.geomspace(min(3, longest), longest, COUNT)]

    def prompts(self) -> list[list[int]]:
        """Those of `screen` depend on the checkpoint alone, so that the reference answers them once; `full` adds as
        many that are drawn for this verdict."""
        drawn = prompts.cut(self.checkpoint, self.lengths, seed=0)
        return drawn + (prompts.cut(self.checkpoint, self.lengths, seed=1 + self.seed) if self.full else [])

    def cases(self, reference: Reference) -> list[Case]:
        return [self._case(reference, prompt) for prompt in self.prompts()]

    def _case(self, reference: Reference, prompt: list[int]) -> Case:
        continuation = reference.greedy(prompt, self.new_tokens)
        sequence = prompt + continuation
        generating = list(range(len(prompt) - 1, len(sequence) - 1))
        half = SAMPLES // 2
        samples = sorted(
            {*np.linspace(0, len(prompt) - 1, half, dtype=int).tolist(), *generating[:: len(generating) // half or 1]}
        )
        positions = sorted({*samples, *generating})
        evaluation = reference.evaluate(sequence, positions, samples)
        return Case(prompt, continuation, samples, [positions.index(p) for p in samples], evaluation)


def plan(subject: Subject) -> Plan:
    return Plan(subject.checkpoint, subject.facts, subject.job.acceptance == "full", subject.job.seed)


def logits(subject: Subject) -> Finding:
    """Largest and mean square error against the oracle, each at most twice the reference's own in that sequence."""
    subject.load_engine()
    rows, worst, agreed, positions = [], 0.0, 0, 0
    for item in plan(subject).cases(subject.reference):
        found = subject.logits(item.prompt + item.continuation, item.samples)
        exact = item.evaluation.rows
        own = (errors[item.sampled] for errors in (item.evaluation.error_max, item.evaluation.error_rms))
        largest, spread = error_ratios(found, exact, *own)
        agreed += int((found.argmax(-1) == exact.argmax(-1)).sum())
        worst, positions = max(worst, largest, spread), positions + len(found)
        rows.append({"prompt_tokens": len(item.prompt), "max_ratio": largest, "rms_ratio": spread})
    data = {"sequences": rows, "top1_agreement": agreed / positions, "margin": MARGIN}
    summary = (
        f"error against the oracle at most {worst:.2f} times the {subject.reference.dtype} reference's own (allowed "
        f"{MARGIN:.0f}) over {len(rows)} sequences, {positions} positions, {agreed / positions:.1%} equal arg max"
    )
    return passed(summary, **data) if worst <= MARGIN else failed(summary, **data)


def error_ratios(found: Array, exact: Array, own_max: Array, own_rms: Array) -> tuple[float, float]:
    """Largest and root mean square error, each over the reference's own at the same positions of one sequence."""
    error = found.astype(np.float64) - exact
    floor = 4 * 2.0**-24 * rms(exact)  # a few units in the last place of the float32 that logits travel in
    return float(np.abs(error).max() / (own_max.max() + floor)), rms(error) / (rms(own_rms) + floor)


@dataclass
class Walk:
    """Greedy tokens compared position by position."""

    equal: int = 0
    in_band: int = 0
    out_of_band: int = 0
    first: str = ""
    """The first difference outside the band, in words."""


def greedy(subject: Subject) -> Finding:
    subject.load_engine()
    walk = Walk()
    items = plan(subject).cases(subject.reference)
    for item in items:
        wanted = len(item.continuation)
        found = subject.continuation(item.prompt, wanted, ignore_eos=True)
        if len(found) != wanted:
            return failed(f"asked for {wanted} new tokens after {len(item.prompt)}, generate gave {len(found)}")
        follow(subject, walk, item, found)
    data = {"equal": walk.equal, "in_band": walk.in_band, "out_of_band": walk.out_of_band, "sequences": len(items)}
    total = walk.equal + walk.in_band + walk.out_of_band
    summary = (
        f"{walk.equal} of {total} greedy tokens equal, {walk.in_band} inside the tie band, {walk.out_of_band} outside"
    )
    if walk.out_of_band:
        return failed(f"{summary}; {walk.first}", **data)
    return passed(summary, **data)


def follow(subject: Subject, walk: Walk, item: Case, tokens: list[int]) -> None:
    """Counts one sequence. After the first difference the reference judges the engine's own tokens, teacher-forced."""
    same = 0
    while same < len(tokens) and tokens[same] == item.continuation[same]:
        same += 1
    walk.equal += same
    if same == len(tokens):
        return
    start = len(item.prompt)
    positions = list(range(start + same - 1, start + len(tokens) - 1))
    judge = subject.reference.evaluate(item.prompt + tokens, positions)
    for i, token in enumerate(tokens[same:]):
        gap, band = float(judge.top[i] - judge.following[i]), MARGIN * float(judge.error_max[i])
        if token == judge.best[i]:
            walk.equal += 1
        elif gap <= band:
            walk.in_band += 1
        else:
            walk.out_of_band += 1
            walk.first = walk.first or (
                f"prompt of {start}, new token {same + i}: {token} lies {gap:.3g} below the best, band {band:.3g}"
            )


GATES = (
    Gate("acceptance_logits", "acceptance", "acceptance", logits, level="L3", repeatable=False),
    Gate("acceptance_greedy", "acceptance", "acceptance", greedy, level="L3", repeatable=False),
)
