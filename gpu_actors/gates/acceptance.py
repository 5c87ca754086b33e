"""The whole engine against Hugging Face on the same weights: teacher-forced logits, and greedy tokens.

Rounding decides which of two nearly equal logits is larger, and another order of summation rounds differently; so a
token counts as right when the oracle's logit of it is within twice the reference's own largest error of the best one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import prompts
from ckb.errors import UserError
from ckb.facts import Facts
from gpu_actors.child import ChildFailure
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.compare import rms
from gpu_actors.gates.evidence import Distances, Tokens
from gpu_actors.jobs import Acceptance
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
    """One prompt, what was said to it, and what the reference and its oracle think of that, teacher-forced."""

    prompt: list[int]
    continuation: list[int]
    """The reference's own greedy tokens; for a prompt that is fresh, the engine's."""
    positions: list[int]
    """Of the sequence, evaluated: the samples and every position that predicts a new token."""
    samples: list[int]
    """Positions whose whole row of logits is compared: spread over the prompt and the continuation."""
    evaluation: Evaluation

    @property
    def sequence(self) -> list[int]:
        return self.prompt + self.continuation

    @property
    def sampled(self) -> list[int]:
        """Where the samples stand among the evaluated positions."""
        return [self.positions.index(p) for p in self.samples]

    @property
    def predicting(self) -> list[int]:
        """Where the positions that predict a new token stand among the evaluated ones."""
        return [i for i, p in enumerate(self.positions) if p >= len(self.prompt) - 1]


@dataclass(frozen=True)
class Plan:
    """Which prompts are asked, of one checkpoint."""

    checkpoint: Path
    facts: Facts
    which: Acceptance
    seed: int

    @property
    def new_tokens(self) -> int:
        """64, or two thirds of the context where the Target's is too short for that."""
        return min(NEW_TOKENS, self.facts.workload.max_context * 2 // 3)

    @property
    def lengths(self) -> list[int]:
        """Prompt lengths, growing by a constant factor up to what the level and the Target allow."""
        context = min(self.facts.workload.max_context, self.facts.model.max_positions)
        longest = (min(context, SCREEN_CONTEXT) if self.which == "screen" else context) - self.new_tokens
        if longest < 1:
            raise UserError(
                f"a context of {context} tokens leaves no room for a prompt and {self.new_tokens} new tokens"
            )
        return [max(1, round(n)) for n in np.geomspace(min(3, longest), longest, COUNT)]

    def fixed(self) -> list[list[int]]:
        """Prompts that depend on the checkpoint alone, so that the reference answers them once."""
        return prompts.cut(self.checkpoint, self.lengths, seed=0) if self.which != "fresh" else []

    def fresh(self) -> list[list[int]]:
        """As many, which nobody has seen before this verdict."""
        return prompts.cut(self.checkpoint, self.lengths, seed=1 + self.seed) if self.which != "screen" else []


def evaluated(reference: Reference, prompt: list[int], continuation: list[int], *, keep: bool) -> Case:
    sequence = prompt + continuation
    predicting = range(len(prompt) - 1, len(sequence) - 1)
    half = SAMPLES // 2
    spread = np.linspace(0, len(prompt) - 1, half, dtype=int).tolist()
    samples = sorted({*spread, *predicting[:: len(predicting) // half or 1]})
    positions = sorted({*samples, *predicting})
    return Case(prompt, continuation, positions, samples, reference.evaluate(sequence, positions, samples, keep=keep))


def plan(subject: Subject) -> Plan:
    return Plan(subject.checkpoint, subject.facts, subject.job.acceptance, subject.job.seed)


def fixed_cases(subject: Subject) -> list[Case]:
    """The reference's own `generate` on the fixed prompts."""
    asked, reference = plan(subject), subject.reference
    return [evaluated(reference, p, reference.greedy(p, asked.new_tokens), keep=True) for p in asked.fixed()]


def fresh_cases(subject: Subject) -> list[Case]:
    """The engine's own words on the fresh prompts. To judge each of its tokens by what the reference holds to be best
    at that position asks the same as to compare with the reference's `generate`, without its slow steps."""

    def make() -> list[Case]:
        asked = plan(subject)
        return [evaluated(subject.reference, p, said(subject, p, asked.new_tokens), keep=False) for p in asked.fresh()]

    return subject.once("fresh_cases", make)


def said(subject: Subject, prompt: list[int], count: int) -> list[int]:
    """The engine's greedy tokens. Raises ChildFailure unless they are as many as were asked for."""
    found = subject.continuation(prompt, count, ignore_eos=True)
    if len(found) != count:
        raise ChildFailure("PROTOCOL", f"asked for {count} tokens after {len(prompt)}, generate gave {len(found)}")
    return found


def logits(subject: Subject) -> Finding:
    """Largest and mean square error against the oracle, each at most twice the reference's own in that sequence."""
    subject.load_engine()
    rows, worst, agreed, positions = [], 0.0, 0, 0
    for item in [*fixed_cases(subject), *fresh_cases(subject)]:
        found = subject.logits(item.sequence, item.samples)
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
    """Every new token is the reference's, or one that the oracle puts within the tie band of its best."""
    subject.load_engine()
    walk = Walk()
    fixed, fresh = fixed_cases(subject), fresh_cases(subject)
    for item in fixed:
        follow(subject, walk, item, said(subject, item.prompt, len(item.continuation)))
    for item in fresh:
        judge(walk, len(item.prompt), 0, item.continuation, item.evaluation, item.predicting)
    count = len(fixed) + len(fresh)
    data = {"equal": walk.equal, "in_band": walk.in_band, "out_of_band": walk.out_of_band, "sequences": count}
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
    evaluation = subject.reference.evaluate(item.prompt + tokens, positions)
    judge(walk, start, same, tokens[same:], evaluation, range(len(positions)))


def judge(
    walk: Walk, start: int, first: int, tokens: Sequence[int], evaluation: Evaluation, where: Sequence[int]
) -> None:
    """Counts tokens from the `first` new one on; `where` each of them is predicted among the evaluated positions."""
    for i, (token, at) in enumerate(zip(tokens, where, strict=True)):
        gap = float(evaluation.top[at] - evaluation.following[at])
        band = MARGIN * float(evaluation.error_max[at])
        if token == evaluation.best[at]:
            walk.equal += 1
        elif gap <= band:
            walk.in_band += 1
        else:
            walk.out_of_band += 1
            walk.first = walk.first or (
                f"prompt of {start}, new token {first + i}: {token} lies {gap:.3g} below the best, band {band:.3g}"
            )


GATES = (
    Gate("acceptance_logits", "acceptance", "acceptance", logits, level="L3", evidence=Distances, repeatable=False),
    Gate("acceptance_greedy", "acceptance", "acceptance", greedy, level="L3", evidence=Tokens, repeatable=False),
)
