"""Standard faults of a decoder's mathematics, computed in float64: what each of them does to a checkpoint's logits.

A checkpoint on which a fault hardly shows can't tell a right engine from a wrong one. Random weights are such a
checkpoint unless care is taken: attention that averages over everything forgets positions, and inputs that are large
hide eps. gpu_actors.seeded writes checkpoints on which each of these shows, and its record says by how much.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks import prompts
from benchmarks.verification.found import Effect, Measures
from ckb.errors import UserError
from ckb.facts import Accelerator, Dtype, ModelFacts
from gpu_actors.child import DRIVERS, Child, ChildFailure, Reply
from gpu_actors.gates.acceptance import MARGIN
from gpu_actors.gates.decoder import refuse_unknown
from gpu_actors.reference import ReferenceFailure
from gpu_actors.sandbox import UNTIMED, Confinement

FAULTY = DRIVERS / "faulty.py"
"""Driver of the decoder that makes them, on the processor or on a device."""
MOST_ENTROPY = 0.5
"""Median entropy of attention, in units of its largest possible, above which positions hardly matter."""
MOST_REPEATS = 0.2
"""Share of positions that may say their own token again: greedy text that stays on one token shows no fault."""
LEAST_OUTSIDE = 0.7
"""Share of positions whose best token rounding alone must not be able to change."""
TEXTS = (96, 64, 40)
"""Tokens of the texts on which a checkpoint is measured."""


@dataclass(frozen=True)
class Mathematics:
    """What a decoder computes. At its defaults every field is right."""

    theta: float = 1.0
    """Factor on the rotary base."""
    eps: float = 1.0
    """Factor on the eps of every norm."""
    norm_weights: Literal["stored", "plus one", "ones"] = "stored"
    head_norms: bool = True
    """Whether heads of q and k are normalised, in a family that does so."""
    down: float = 1.0
    """Factor on the product of each down projection."""
    query_shift: int = 0
    """Positions by which queries are rotated too far; keys stay where they are."""
    groups: Literal["consecutive", "interleaved"] = "consecutive"
    """Which query heads share a head of keys."""
    residual: bool = True
    """Whether the input of attention is added to its output."""
    scores: float = 1.0
    """Factor on the scores before the softmax."""
    ahead: int = 0
    """Positions after its own that each query sees."""


def standard(facts: ModelFacts) -> dict[str, Mathematics]:
    """The ten faults that a checkpoint is measured by, in the variant that its family allows."""
    theta = 1e4 / facts.rope_theta if facts.rope_theta >= 2e5 else 0.01
    unit = Mathematics(head_norms=False) if facts.qk_norm else Mathematics(norm_weights="ones")
    return {
        f"theta {facts.rope_theta * theta:g}": Mathematics(theta=theta),
        "eps x 10": Mathematics(eps=10.0),
        "q_norm and k_norm missing" if facts.qk_norm else "norm weights of one": unit,
        "down projection 1% too large": Mathematics(down=1.01),
        "queries one position late": Mathematics(query_shift=1),
        "interleaved head groups": Mathematics(groups="interleaved"),
        "(1 + w) for w": Mathematics(norm_weights="plus one"),
        "residual of attention missing": Mathematics(residual=False),
        "scores over the root of twice the head": Mathematics(scores=2.0**-0.5),
        "causal mask one late": Mathematics(ahead=1),
    }


# --- what a checkpoint shows of them ----------------------------------------------------------------------------------


def texts(folder: Path, facts: ModelFacts) -> list[list[int]]:
    """Real text in the checkpoint's own tokens."""
    return prompts.cut(folder, [min(length, facts.max_positions) for length in TEXTS], seed=0)


def entropies(folder: Path, facts: ModelFacts, others: list[Mathematics], device: Accelerator = "cpu") -> list[float]:
    """Median over layers, heads and positions of attention's entropy, in units of the largest that each position
    allows: one for each of `others`, all in one pass. Raises ReferenceFailure."""
    copies = [asdict(other) | {"dtype": None} for other in others]
    return _asked("entropies", folder, facts, device, copies=copies).value("entropies", list[float])


def measured(folder: Path, facts: ModelFacts, device: Accelerator = "cpu") -> Measures:
    """What the decoder and the ten standard faults show on this checkpoint.

    Raises UserError if that is too little to tell a right engine by, ReferenceFailure if the decoder can't answer.
    """
    dtypes: tuple[Dtype, ...] = ("float32", "bfloat16")
    faults = standard(facts)
    right = asdict(Mathematics())
    copies = [right | {"dtype": dtype} for dtype in (None, *dtypes)]
    copies += [asdict(other) | {"dtype": None} for other in faults.values()]
    reply = _asked("measured", folder, facts, device, copies=copies, margin=MARGIN)
    by_copy = [reply.value(name, list[float]) for name in ("outside", "errors", "kl")]
    found = Measures(
        tokens=sum(map(len, texts(folder, facts))),
        entropy=reply.value("entropy", float),
        repeats=reply.value("repeats", float),
        outside=dict(zip(dtypes, by_copy[0], strict=False)),
        effects=tuple(
            Effect(fault=name, error=error, kl=kl)
            for name, error, kl in zip(faults, *(row[len(dtypes) :] for row in by_copy[1:]), strict=True)
        ),
    )
    refuse_unfit(folder, found)
    return found


def refuse_unfit(folder: Path, found: Measures) -> None:
    """Raises UserError for a checkpoint that can't tell a right engine from a wrong one."""
    if found.entropy > MOST_ENTROPY:
        raise UserError(f"{folder}: attention's entropy is {found.entropy:.2f} of its largest, at most {MOST_ENTROPY} "
                        "is wanted: give more sharpness")  # fmt: skip
    for dtype, share in found.outside.items():
        if share < LEAST_OUTSIDE:
            raise UserError(f"{folder}: {share:.0%} of the positions lie outside the tie band of {dtype}, at least "
                            f"{LEAST_OUTSIDE:.0%} must: use another seed, or less sharpness")  # fmt: skip
    if found.repeats > MOST_REPEATS:
        raise UserError(
            f"{folder}: {found.repeats:.0%} of the positions repeat their own token, at most {MOST_REPEATS:.0%} may"
        )


def _asked(op: str, folder: Path, facts: ModelFacts, device: Accelerator, **arguments: Any) -> Reply:
    refuse_unknown(facts)
    with Child(FAULTY, Confinement(mode="none", environment=UNTIMED), forbidden=()) as child:
        try:
            return child.call(
                op, 600.0, checkpoint=str(folder), facts=facts.model_dump(mode="json"), device=device,
                sequences=texts(folder, facts), **arguments,
            )  # fmt: skip
        except ChildFailure as failure:
            what = f"the float64 decoder of {folder} on {device}"
            raise ReferenceFailure(f"{what}: {failure}\n{failure.trace}") from failure
