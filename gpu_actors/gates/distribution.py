"""The whole engine's distribution against the oracle's: which token is the best one, and how much is lost by the rest.

Errors of logits say little where it counts: one large error in a rare token is allowed by the reference's own, and
would be a catastrophe in the token that is about to be chosen.
"""

from collections.abc import Sequence

import numpy as np

from gpu_actors.gates.acceptance import MARGIN, tie_bands
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.cases import Answer, answers
from gpu_actors.gates.compare import rms
from gpu_actors.gates.evidence import BestTokens, Divergence

SHARE = 1.0
"""By how much of the reference's own mean divergence an engine's may exceed it: other lawful orders of summation have
0.84 to 1.22 times a reference's error (docs/design/012), so up to 1.5 times its divergence, which is quadratic."""
FLOOR = 4 * 2.0**-24
"""Error of a logit that its own float32 explains, relative to the root mean square of the logits."""
RESAMPLES = 2000
CONFIDENCE = 0.95
FEWEST = 24
"""Positions that a bootstrap needs at least."""


def top1(subject: Subject) -> Finding:
    """At every position outside the tie band the engine's best token is the oracle's."""
    positions = outside = equal = 0
    wrong = []
    for one in answers(subject):
        held = one.case.evaluation
        same = one.best == held.oracle_best
        clear = held.top - held.second > tie_bands(held)
        positions, outside, equal = positions + len(same), outside + int(clear.sum()), equal + int(same.sum())
        wrong += [(len(one.case.prompt), int(at)) for at in np.flatnonzero(clear & ~same)]
    data = {"positions": positions, "outside": outside, "equal": equal, "wrong": wrong[:50]}
    summary = (
        f"the best token is the oracle's at {equal / positions:.2%} of {positions} positions, at all but {len(wrong)} "
        f"of the {outside / positions:.1%} outside the tie band ({MARGIN:.0f} times the {subject.reference.dtype} "
        f"reference's own error)"
    )
    if wrong:
        prompt, at = wrong[0]
        return failed(f"{summary}; first at position {at} of the sequence with a prompt of {prompt}", **data)
    return passed(summary, **data)


def divergence(subject: Subject) -> Finding:
    """KL(oracle || engine) is not larger than KL(oracle || reference): the upper end of the difference's interval."""
    given = answers(subject)
    pairs = [(one.divergence, one.case.evaluation.divergence[one.case.samples]) for one in given]
    ours, theirs = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    allowed = SHARE * float(theirs.mean()) + floor(given)
    upper = upper_bound([own - other for own, other in pairs], subject.draws("divergence"))
    data = {"engine": float(ours.mean()), "reference": float(theirs.mean()), "upper": upper, "allowed": allowed}
    summary = (
        f"KL(oracle || engine) {ours.mean():.3g} nats, of the {subject.reference.dtype} reference {theirs.mean():.3g}; "
        f"with {CONFIDENCE:.0%} confidence {upper:.3g} more, allowed {allowed:.3g}, over {len(ours)} positions"
    )
    return passed(summary, **data) if upper <= allowed else failed(summary, **data)


def floor(given: list[Answer]) -> float:
    """The divergence that logits in float32 can't avoid: half of the squared error of a logit, which is the largest
    variance that such errors have under any distribution."""
    return 0.5 * max((FLOOR * rms(one.case.evaluation.rows)) ** 2 for one in given)


def upper_bound(differences: Sequence[Array], rng: np.random.Generator) -> float:
    """The upper end of the one-sided bootstrap interval of the mean difference, given one array a sequence. Positions
    of one sequence share its context and are no independent draws: sequences are drawn, and positions in each."""
    if sum(map(len, differences)) < FEWEST:
        return float(max(part.max() for part in differences))
    means = []
    for _ in range(RESAMPLES):
        drawn = [differences[i] for i in rng.integers(len(differences), size=len(differences))]
        means.append(np.concatenate([part[rng.integers(len(part), size=len(part))] for part in drawn]).mean())
    return float(np.quantile(means, CONFIDENCE))


GATES = (
    Gate("acceptance_top1", "acceptance", "acceptance", top1, level="L3", evidence=BestTokens, repeatable=False),
    Gate(
        "acceptance_divergence",
        "acceptance",
        "acceptance",
        divergence,
        level="L3",
        evidence=Divergence,
        repeatable=False,
    ),
)
