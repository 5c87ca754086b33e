"""The sequences of the acceptance: what is asked, what the reference and its oracle think of it, what the engine says.

Every gate of the acceptance reads the same answers: the engine is asked once for each sequence.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks import prompts
from ckb.errors import UserError
from ckb.facts import Facts
from gpu_actors.child import ChildFailure
from gpu_actors.gates.base import Array, Subject, logits_of
from gpu_actors.jobs import SCREEN_CONTEXT, Acceptance
from gpu_actors.reference import Evaluation, Reference

NEW_TOKENS = {"screen": 32, "full": 64, "fresh": 64}
"""By level: half of a screen's time are its greedy tokens, and what goes wrong late is for `lasting` to find."""
COUNT = 8
SAMPLES = 16
"""Positions of each sequence whose whole row of logits is compared."""


@dataclass(frozen=True)
class Case:
    """One prompt, what was said to it, and what the reference and its oracle think of that, teacher-forced."""

    prompt: list[int]
    continuation: list[int]
    """The reference's own greedy tokens; for a prompt that is fresh, the engine's."""
    samples: list[int]
    """Positions whose whole row of logits is compared: spread over the prompt and the continuation."""
    evaluation: Evaluation

    @property
    def sequence(self) -> list[int]:
        return self.prompt + self.continuation

    @property
    def predicting(self) -> range:
        """The positions that predict a new token."""
        return range(len(self.prompt) - 1, len(self.prompt) + len(self.continuation) - 1)


@dataclass(frozen=True)
class Plan:
    """Which prompts are asked, of one checkpoint."""

    checkpoint: Path
    facts: Facts
    which: Acceptance
    seed: int

    @property
    def context(self) -> int:
        """The longest sequence of this level: `screen` ends at 1,024 tokens, the others where the Target does."""
        most = min(self.facts.workload.max_context, self.facts.model.max_positions)
        return min(most, SCREEN_CONTEXT) if self.which == "screen" else most

    @property
    def new_tokens(self) -> int:
        """NEW_TOKENS, or two thirds of the context where the Target's is too short for that."""
        return min(NEW_TOKENS[self.which], self.facts.workload.max_context * 2 // 3)

    @property
    def lengths(self) -> list[int]:
        """Prompt lengths, growing by a constant factor up to what leaves room for the new tokens; and the Target's
        longest prompt where that is longer."""
        longest = self.context - self.new_tokens
        if longest < 1:
            raise UserError(
                f"a context of {self.context} tokens leaves no room for a prompt and {self.new_tokens} new tokens"
            )
        lengths = [max(1, round(n)) for n in np.geomspace(min(3, longest), longest, COUNT)]
        whole = self.context - min(self.new_tokens, self.facts.workload.max_new)
        return [*lengths, *([whole] if whole > longest else [])]

    def count(self, prompt: list[int]) -> int:
        """How many tokens are asked for after a prompt."""
        return min(self.new_tokens, self.context - len(prompt))

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
    return Case(prompt, continuation, samples, reference.evaluate(sequence, samples, keep=keep))


def plan(subject: Subject) -> Plan:
    return Plan(subject.checkpoint, subject.facts, subject.job.acceptance, subject.job.seed)


def fixed_cases(subject: Subject) -> list[Case]:
    """The reference's own `generate` on the fixed prompts."""

    def make() -> list[Case]:
        asked, reference = plan(subject), subject.reference
        return [evaluated(reference, p, reference.greedy(p, asked.count(p)), keep=True) for p in asked.fixed()]

    return subject.once("fixed_cases", make)


def fresh_cases(subject: Subject) -> list[Case]:
    """The engine's own words on the fresh prompts. To judge each of its tokens by what the reference holds to be best
    at that position asks the same as to compare with the reference's `generate`, without its slow steps."""

    def make() -> list[Case]:
        asked = plan(subject)
        return [evaluated(subject.reference, p, said(subject, p, asked.count(p)), keep=False) for p in asked.fresh()]

    return subject.once("fresh_cases", make)


def said(subject: Subject, prompt: list[int], count: int) -> list[int]:
    """The engine's greedy tokens. Raises ChildFailure unless they are as many as were asked for."""
    found = subject.continuation(prompt, count, ignore_eos=True)
    if len(found) != count:
        raise ChildFailure("PROTOCOL", f"asked for {count} tokens after {len(prompt)}, generate gave {len(found)}")
    return found


@dataclass(frozen=True)
class Answer:
    """An engine's teacher-forced logits of one case."""

    case: Case
    rows: Array
    """Logits at the samples [S, VOCAB]."""
    best: Array
    """Arg max at every position [T]."""
    following: Array
    """Logarithm of the probability of the token that follows, at every position [T]; 0 at the last."""

    @cached_property
    def divergence(self) -> Array:
        """KL(oracle || engine) at the samples [S], in nats."""
        exact, found = log_softmax(self.case.evaluation.rows), log_softmax(self.rows)
        divergence: Array = (np.exp(exact) * (exact - found)).sum(-1)
        return divergence


def log_softmax(rows: Array) -> Array:
    shifted = rows.astype(np.float64) - rows.max(-1, keepdims=True)
    probabilities: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return probabilities


def answers(subject: Subject) -> list[Answer]:
    """What the engine says to all cases. Raises ChildFailure."""

    def make() -> list[Answer]:
        subject.load_engine()
        return [answer(subject, case) for case in [*fixed_cases(subject), *fresh_cases(subject)]]

    return subject.once("answers", make)


def answer(subject: Subject, case: Case) -> Answer:
    reply = subject.call("logits", tokens=case.sequence, positions=case.samples)
    rows = logits_of(reply, len(case.samples), subject.facts.model.vocab)
    best, following = reply.array("best"), reply.array("following")
    length = len(case.sequence)
    if best.shape != (length,) or following.shape != (length,) or not np.isfinite(following).all():
        raise ChildFailure("PROTOCOL", f"logits of {length} tokens answered for {best.shape}, {following.shape}")
    return Answer(case, rows, best, following)
