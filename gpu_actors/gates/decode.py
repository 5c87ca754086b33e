"""Decoding against re-prefill of the same tokens, along the whole length. It takes no reference to see that a cache, a
position or a window goes wrong late: an engine's two ways to the same probabilities must meet.
"""

import numpy as np

from gpu_actors.child import ChildFailure
from gpu_actors.gates.acceptance import MARGIN
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.cases import Answer, answers, plan
from gpu_actors.gates.evidence import Walked

BURSTS = 12
STEPS = 8
"""Of a burst: `screen` decodes this many tokens at a time, and feeds what lies between by prefill."""


def pieces(length: int, rng: np.random.Generator | None) -> list[list[int]]:
    """[prefilled, decoded] in turn, until the length is reached. Without random numbers all is decoded but the first
    token; with them, bursts that are spread over the whole length and end where it ends."""
    if rng is None or length <= BURSTS * STEPS:
        return [[1, length - 1]]
    room = length - BURSTS * STEPS
    cuts = np.sort(rng.choice(np.arange(1, room), BURSTS - 1, replace=False))
    return [[int(gap), STEPS] for gap in np.diff([0, *cuts, room])]


def k3(ratios: Array) -> float:
    """The mean of exp(r) - 1 - r, r the logarithm of the ratio of two probabilities of one token: never negative, and
    about half of the squared error (Schulman 2020, Approximating KL divergence)."""
    return float(np.mean(np.expm1(ratios) - ratios))


def decode_prefill(subject: Subject) -> Finding:
    """The longest sequence token by token, against the same tokens at once."""
    one = max(answers(subject), key=lambda answer: len(answer.case.sequence))
    whole = plan(subject).which != "screen"
    sequence = one.case.sequence
    asked = pieces(len(sequence), None if whole else subject.draws("decode_prefill"))
    subject.load_model()
    reply = subject.call("walk", sequence=sequence, pieces=asked)
    positions, found = reply.value("positions", list[int]), reply.array("following")
    wanted = [at for at in decoded(asked) if at + 1 < len(sequence)]  # nobody knows what follows the last one
    if positions != wanted or found.shape != (len(positions),) or not np.isfinite(found).all():
        raise ChildFailure("PROTOCOL", f"{len(asked)} pieces, {len(positions)} positions, logarithms {found.shape}")
    return judge(subject, one, positions, found)


def decoded(asked: list[list[int]]) -> list[int]:
    """The positions that a walk decodes, in order."""
    found: list[int] = []
    at = 0
    for fed, steps in asked:
        found += range(at + fed, at + fed + steps)
        at += fed + steps
    return found


def judge(subject: Subject, one: Answer, positions: list[int], found: Array) -> Finding:
    """Each of the two may differ from the oracle by twice the reference's own error: their difference has twice that,
    in the token's logit and in the sum over all alike. How large that error is among the tokens that are likely, the
    reference's own divergence says: half of the error's variance there."""
    ratios = one.following[positions] - found
    own = one.case.evaluation
    spread, largest = own.error_rms[positions], float(own.error_max.max())
    floor = 8 * 2.0**-24 * float(np.abs(own.top).max())
    likely = (2 * MARGIN) ** 2 * float(np.mean(own.divergence[positions]))
    allowed = max(float(np.mean(0.5 * (2 * MARGIN * spread + floor) ** 2)), likely)
    each = 2 * MARGIN * largest + floor
    at = int(np.abs(ratios).argmax())
    mean, worst = k3(ratios), float(np.abs(ratios[at]))
    data = {"k3": mean, "allowed": allowed, "largest": worst, "allowed_each": each, "positions": len(positions)}
    summary = (
        f"{len(positions)} tokens decoded to position {positions[-1]} against prefill: k3 {mean:.3g} (allowed "
        f"{allowed:.3g}), largest difference {worst:.3g} nats at position {positions[at]} (allowed {each:.3g})"
    )
    return passed(summary, **data) if mean <= allowed and worst <= each else failed(summary, **data)


GATES = (
    Gate("decode_prefill", "acceptance", "acceptance", decode_prefill, level="L3", evidence=Walked, repeatable=False),
)
