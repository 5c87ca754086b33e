"""Stage tests of the weights and the decoder on the Target's own checkpoint."""

from collections import Counter

import numpy as np

from gpu_actors import checkpoint
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.compare import Comparison, compare, judged, rms
from gpu_actors.gates.decoder import Decoder

BOUND = {"float32": 5e-5, "bfloat16": 0.1}
"""Error that rounding explains, relative to the root mean square of the logits. L3 bounds it far more closely."""


def weights(subject: Subject) -> Finding:
    """Every tensor of the checkpoint is consumed exactly once, or ignored for a reason that we know."""
    reply = subject.call("load_model", checkpoint=str(subject.checkpoint))
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
    folder = subject.child.sandbox.private
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


def random_tokens(subject: Subject, rng: np.random.Generator, length: int) -> list[int]:
    return [int(t) for t in rng.integers(0, subject.facts.model.vocab, size=length)]


def capacity(subject: Subject) -> int:
    return subject.facts.workload.max_context


def sequences(subject: Subject, gate: str) -> list[list[int]]:
    rng = subject.draws(gate)
    longest = min(40, capacity(subject))
    return [random_tokens(subject, rng, n) for n in (longest, 1, int(rng.integers(2, 17)))]


def close(subject: Subject, case: str, found: Array, expected: Array) -> Comparison:
    bound = BOUND[subject.facts.workload.dtype] * rms(expected)
    return compare(case, found, expected, 8 * bound, bound)


def forward(subject: Subject) -> Finding:
    """Logits of drawn sequences against the float64 decoder: whole, in chunks, and in a cache that was used before."""
    drawn = sequences(subject, "forward")
    expected = Decoder(subject.facts.model, subject.checkpoint).logits(drawn)
    done = []
    for case, chunks, reuse in (
        ("whole", [], False),
        ("in chunks of 3 and 5", [3, 5], False),
        ("reused cache", [], True),
    ):
        options = {"chunks": chunks, "capacity": capacity(subject), "reuse": reuse}
        found = subject.call("forward", sequences=drawn, **options).array("logits")
        done.append(close(subject, case, found, expected))
    return judged("forward and head against float64", done)


def step(subject: Subject) -> Finding:
    """Decoding token by token gives the logits of one prefill of the same tokens, along the whole length."""
    rng = subject.draws("step")
    length = min(28, capacity(subject))
    tokens = random_tokens(subject, rng, length)
    whole = {"sequences": [tokens], "chunks": [], "capacity": length, "reuse": False}
    prefill = subject.call("forward", **whole).array("logits")
    done = []
    for prompt in (1, int(rng.integers(2, length - 1))):
        found = subject.call("steps", sequence=tokens, prompt=prompt, capacity=length).array("logits")
        done.append(close(subject, f"steps after {prompt} tokens", found, prefill[prompt - 1 :].astype(np.float64)))
    return judged("step against forward", done)


def determinism(subject: Subject) -> Finding:
    """The same call gives the same bits."""
    drawn = sequences(subject, "determinism")
    options = {"chunks": [], "capacity": capacity(subject), "reuse": False}
    first, second = (subject.call("forward", sequences=drawn, **options).array("logits") for _ in range(2))
    different = int((first != second).sum()) if first.shape == second.shape else first.size
    if different:
        return failed(
            f"two equal calls of forward differ in {different:,} of {first.size:,} logits", different=different
        )
    return passed(f"two equal calls of forward agree in all {first.size:,} bits of their logits")


GATES = (
    Gate("weights", "weights", "model", weights),
    Gate("broken_checkpoint", "weights", "model", broken_checkpoint),
    Gate("forward", "model", "model", forward),
    Gate("step", "model", "model", step),
    Gate("determinism", "model", "model", determinism),
)
