"""Stage tests of the weights and the decoder on the Target's own checkpoint."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks import prompts
from ckb.facts import Dtype
from ckb.hashing import sha256
from gpu_actors import checkpoint
from gpu_actors.gates import decoder
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.compare import Comparison, compare, judged, rms
from gpu_actors.gates.decoder import Expected
from gpu_actors.gates.evidence import Compared, Counted, Faults

BOUND = {"float32": 5e-5, "bfloat16": 0.1}
"""Error that rounding explains, relative to the root mean square of the logits. L3 bounds it far more closely."""
AMPLIFIED = {"float32": 16.0, "bfloat16": 2.0}
"""Where a sequence amplifies rounding beyond that: how many times the error of rounded activations an engine's may be.
In float32 most of an engine's rounding is inside of sums, which that error does not see."""
LENGTH = 28
"""Of the longest sequence."""


def weights(subject: Subject) -> Finding:
    """Every tensor of the checkpoint is consumed exactly once, or ignored for a reason that we know."""
    subject.load_model()
    reply = subject.call("consumption")
    consumed, ignored = Counter(reply.value("consumed", list[str])), set(reply.value("ignored", list[str]))
    stored = set(checkpoint.Checkpoint(subject.checkpoint).names)
    may_ignore = {name for name in stored if name.endswith("rotary_emb.inv_freq")}
    if subject.facts.model.tied_head:
        may_ignore.add("lm_head.weight")
    faults = {
        "never consumed": sorted(stored - consumed.keys() - ignored),
        "consumed more than once": sorted(name for name, count in consumed.items() if count > 1),
        "both consumed and ignored": sorted(consumed.keys() & ignored),
        "ignored without a reason": sorted(ignored - may_ignore),
        "not in the checkpoint": sorted((consumed.keys() | ignored) - stored),
    }
    found = [f"{len(names)} {what} ({names[0]}, ...)" for what, names in faults.items() if names]
    if found:
        return failed(f"of {len(stored)} tensors {'; '.join(found)}", faults=faults)
    return passed(f"{len(consumed)} of {len(stored)} tensors consumed once, {len(ignored)} ignored: {sorted(ignored)}")


def broken_checkpoint(subject: Subject) -> Finding:
    """A weight file that ends early is refused, and one that lacks a tensor, by a ValueError with the tensor's name."""
    folder = subject.copies
    cut, lacking = folder / "truncated", folder / "lacking"
    if not cut.exists():
        checkpoint.truncated(subject.checkpoint, cut)
    if subject.raised("load_weights", checkpoint=str(cut)) is None:
        return failed("load_weights accepted a checkpoint whose weight file is truncated")
    layer = int(subject.draws("broken_checkpoint").integers(subject.facts.model.layers))
    tensor = f"model.layers.{layer}.mlp.up_proj.weight"
    if not lacking.exists():
        checkpoint.renamed(subject.checkpoint, lacking, tensor)
    failure = subject.raised("load_weights", checkpoint=str(lacking))
    named = failure is not None and failure.error_type == "ValueError" and tensor[:-1] in str(failure)
    if not named:
        what = str(failure)[:200] if failure else "no error"
        return failed(f"a checkpoint without {tensor} must raise a ValueError that names it; found {what}")
    return passed(f"truncated weights and a missing {tensor} are refused")


def capacity(subject: Subject) -> int:
    return subject.facts.workload.max_context


def texts(subject: Subject) -> list[list[int]]:
    """Fresh pieces of real text. Drawn tokens would not do: they can be so ill-conditioned that the reference itself
    differs from its oracle by as much as the logits are large."""
    longest = min(LENGTH, capacity(subject))
    few = int(subject.draws("texts").integers(2, 17))
    return prompts.cut(subject.checkpoint, [longest, 1, min(few, longest)], subject.job.seed)


def expected(subject: Subject) -> list[Expected]:
    """The float64 decoder's word on these texts; for a tree in bfloat16 also how far float32 takes them."""
    return subject.once("expected", lambda: decoded(subject), ours=True)


def decoded(subject: Subject) -> list[Expected]:
    dtypes: dict[Dtype, None] = dict.fromkeys([subject.facts.workload.dtype, "float32"])
    return decoder.expected(subject.facts, subject.checkpoint, texts(subject), tuple(dtypes))


def prepare(subject: Subject) -> None:
    subject.ahead("expected", lambda: decoded(subject))


def prefill(subject: Subject, chunks: Sequence[int] = (), *, reuse: bool = True) -> Array:
    """Logits of every position of the texts."""
    options = {"chunks": list(chunks), "capacity": capacity(subject), "reuse": reuse}
    drawn = texts(subject)
    shape = sum(map(len, drawn)), subject.facts.model.vocab
    return subject.call("forward", sequences=drawn, **options).array("logits", shape)


def close(subject: Subject, case: str, found: Array, wanted: Expected, rows: slice = slice(None)) -> Comparison:
    """Some positions of one sequence."""
    dtype, exact = subject.facts.workload.dtype, wanted.logits[rows]
    bound = max(BOUND[dtype] * rms(exact), AMPLIFIED[dtype] * wanted.roundings[dtype])
    return compare(case, found, exact, 8 * bound, bound)


def forward(subject: Subject) -> Finding:
    """Logits of fresh texts against the float64 decoder: whole in one cache, of which each text finds what the ones
    before it left there, and in chunks in a cache of their own."""
    subject.load_model()
    drawn, wanted = texts(subject), expected(subject)
    ends = np.cumsum([len(sequence) for sequence in drawn])
    done = []
    for case, found in (
        ("whole", subject.once("logits", lambda: prefill(subject))),
        ("in chunks of 3 and 5", prefill(subject, chunks=[3, 5], reuse=False)),
    ):
        for part, one in zip(np.split(found, ends[:-1]), wanted, strict=True):
            done.append(close(subject, f"{len(part)} tokens {case}", part, one))
    return judged("forward and head against float64", done)


def step(subject: Subject) -> Finding:
    """Decoding token by token gives the float64 decoder's logits too, along the whole length."""
    subject.load_model()
    tokens, wanted = texts(subject)[0], expected(subject)[0]
    length = len(tokens)
    done = []
    for prompt in (1, int(subject.draws("step").integers(2, max(3, length - 1)))):
        shape = length - prompt + 1, subject.facts.model.vocab
        found = subject.call("steps", sequence=tokens, prompt=prompt, capacity=length).array("logits", shape)
        done.append(close(subject, f"steps after {prompt} tokens", found, wanted, slice(prompt - 1, None)))
    return judged("step against float64", done)


def determinism(subject: Subject) -> Finding:
    """The same call gives the same bits, whatever was asked in between."""
    subject.load_model()
    first, second = subject.once("logits", lambda: prefill(subject)), prefill(subject)
    if different := int((first != second).sum()):
        return failed(
            f"two equal calls of forward differ in {different:,} of {first.size:,} logits", different=different
        )
    digest = sha256(first.tobytes())
    return passed(f"two equal calls of forward agree in all {first.size:,} bits of their logits", digest=digest)


GATES = (
    Gate("weights", "weights", "model", weights, evidence=Faults),
    Gate("broken_checkpoint", "weights", "model", broken_checkpoint),
    Gate("forward", "model", "model", forward, evidence=Compared, prepare=prepare),
    Gate("step", "model", "model", step, evidence=Compared),
    Gate("determinism", "model", "model", determinism, evidence=Counted),
)
