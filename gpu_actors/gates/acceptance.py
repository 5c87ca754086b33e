"""The whole engine against Hugging Face on the same weights: teacher-forced logits, and greedy tokens.

Rounding decides which of two nearly equal logits is larger, and another order of summation rounds differently; so a
token counts as right when the oracle's logit of it is within twice the reference's own largest error of the best one.
All logits of a position share one hidden state, so their errors are one draw: where the reference was lucky, its error
there says little of what a right engine may have, and that of the whole sequence stands for it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.cases import Case, answers, fixed_cases, fresh_cases, said
from gpu_actors.gates.compare import rms
from gpu_actors.gates.evidence import Distances, Tokens
from gpu_actors.reference import Evaluation

MARGIN = 2.0
"""How many times the reference's own error an engine's may be."""


def logits(subject: Subject) -> Finding:
    """Root mean square error of each sequence against the oracle, and the largest error of all, each at most twice the
    reference's own."""
    errors, rows, agreed, positions = [], [], 0, 0
    for one in answers(subject):
        item, exact = one.case, one.case.evaluation.rows
        own = (own[item.samples] for own in (item.evaluation.error_max, item.evaluation.error_rms))
        errors.append(measured := errors_of(one.rows, exact, *own))
        agreed += int((one.rows.argmax(-1) == exact.argmax(-1)).sum())
        positions += len(exact)
        rows.append({"prompt_tokens": len(item.prompt), **asdict(measured)})
    worst = worst_of(errors)
    data = {"sequences": rows, "top1_agreement": agreed / positions, "margin": MARGIN}
    summary = (
        f"error against the oracle at most {worst:.2f} times the {subject.reference.dtype} reference's own (allowed "
        f"{MARGIN:.0f}) over {len(rows)} sequences, {positions} positions, {agreed / positions:.1%} equal arg max"
    )
    return passed(summary, **data) if worst <= MARGIN else failed(summary, **data)


@dataclass(frozen=True)
class Errors:
    """Of one sequence, in units of the reference's own root mean square error there."""

    largest: float
    own_largest: float
    """The reference's."""
    spread: float
    """Root mean square."""


def errors_of(found: Array, exact: Array, own_max: Array, own_rms: Array) -> Errors:
    """`own_max` and `own_rms`: the reference's errors at the same positions."""
    error = found.astype(np.float64) - exact
    floor = 4 * 2.0**-24 * rms(exact)  # a few units in the last place of the float32 that logits travel in
    unit = rms(own_rms) + floor
    return Errors(float(np.abs(error).max()) / unit, (float(own_max.max()) + floor) / unit, rms(error) / unit)


def worst_of(errors: Sequence[Errors]) -> float:
    """How many times the reference's own error an engine's is. The largest single error is compared over all sequences:
    of the few positions of one, a right engine's may be two and a half times the reference's by chance (docs/design/
    012). Within one sequence it may be twice as much as over all."""
    largest = max(one.largest for one in errors) / max(one.own_largest for one in errors)
    within = max(one.largest / one.own_largest for one in errors) / 2
    return max(largest, within, *(one.spread for one in errors))


def tie_bands(evaluation: Evaluation) -> Array:
    """By position, how far the oracle's logits of two tokens may lie apart for rounding to exchange them [T]."""
    largest = evaluation.error_max
    bands: Array = MARGIN * np.maximum(largest, rms(largest))
    return bands


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
    evaluation = subject.reference.evaluate(item.prompt + tokens)
    judge(walk, start, same, tokens[same:], evaluation, range(start + same - 1, start + len(tokens) - 1))


def judge(
    walk: Walk, start: int, first: int, tokens: Sequence[int], evaluation: Evaluation, where: Sequence[int]
) -> None:
    """Counts tokens from the `first` new one on; `where` each of them is predicted."""
    bands = tie_bands(evaluation)
    for i, (token, at) in enumerate(zip(tokens, where, strict=True)):
        gap = float(evaluation.top[at] - evaluation.following[at])
        band = float(bands[at])
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
    Gate("acceptance_logits", "acceptance", "acceptance", logits, level="L3", evidence=Distances),
    Gate("acceptance_greedy", "acceptance", "acceptance", greedy, level="L3", evidence=Tokens, repeatable=False),
)
