"""That the output follows the weights: other weights, another output, the one that the float64 decoder expects.

An engine that holds a tensor, a table or an answer from somewhere else than the checkpoint is right on that checkpoint
alone. In one copy half of all elements of every tensor are others, so one comparison speaks for all of them; what fails
is bisected until the tensor has a name.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import prompts
from gpu_actors import changed_checkpoint
from gpu_actors.changed_checkpoint import Bits, Stored
from gpu_actors.checkpoint import Checkpoint, files
from gpu_actors.gates import decoder
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.cases import plan, said
from gpu_actors.gates.compare import judged, rms
from gpu_actors.gates.decoder import TABLE, Expected
from gpu_actors.gates.evidence import Followed
from gpu_actors.gates.integration import outside_the_band
from gpu_actors.gates.model import close
from gpu_actors.gates.single import in_bfloat16, in_float32, judged_by_the_rules

LENGTH = 12
SCREEN_BYTES = 2 << 30
"""Of the tensors that `screen` changes."""
MOST_GROUPS = 6
"""That are changed alone: each is a copy of the checkpoint and an engine that is loaded anew."""
BISECT_S = 12.0
"""How long a fault is looked for, so that a wrong engine is rejected soon."""


def tensors(subject: Subject) -> list[str]:
    """Every tensor of the checkpoint that an engine must consume."""
    ignored = (".rotary_emb.inv_freq", *(("lm_head.weight",) if subject.facts.model.tied_head else ()))
    return [name for name in Checkpoint(subject.checkpoint).names if not name.endswith(ignored)]


def groups(names: Sequence[str]) -> list[list[str]]:
    """By layer; what is in none is a group of its own."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(".".join(name.split(".")[:3]) if ".layers." in name else name, []).append(name)
    return list(found.values())


def dealt(parts: list[list[str]]) -> list[list[str]]:
    """The groups in at most MOST_GROUPS larger ones, neighbours apart: layers that take each other's weights show."""
    return [[name for part in parts[i::MOST_GROUPS] for name in part] for i in range(min(MOST_GROUPS, len(parts)))]


def changed_weights(subject: Subject) -> Finding:
    """All tensors changed at once; in `full` also in up to six groups, one after the other, by which each shows
    that it matters."""
    finding = all_followed(subject)
    other = in_float32(subject)
    if finding.status != "PASS" or other is subject:
        return finding
    ruled = judged_by_the_rules(other)
    return finding if ruled.status == "PASS" else ruled


def all_followed(subject: Subject) -> Finding:
    """The comparisons themselves, of whatever process the weights are loaded in."""
    names = chosen(subject)
    finding, _ = followed(subject, names)
    if finding.status != "PASS":
        culprits = bisected(subject, names)
        return failed(
            f"{finding.summary}; the fault is among {len(culprits)}: {', '.join(culprits[:3])}", **finding.data
        )
    if plan(subject).which == "screen":
        return passed(f"{len(names)} tensors changed at once: logits as float64 has them", **finding.data)
    effects = {}
    for part in dealt(groups(names)):
        finding, found = followed(subject, part)
        if finding.status != "PASS":
            return failed(f"{finding.summary}; changed were {len(part)} tensors, {part[0]}, ...", **finding.data)
        effects[part[0]] = rms(found - unchanged(subject))
    if unfelt := [name for name, effect in effects.items() if not effect > 0]:
        return failed(f"changing {unfelt[0]} and its group changes no logit", effects=effects)
    return passed(
        f"{len(names)} tensors changed at once, and each of {len(effects)} groups alone: logits as float64 has them",
        effects=effects,
    )


def chosen(subject: Subject) -> list[str]:
    """Those that are changed at once."""
    return drawn(subject, tensors(subject)) if plan(subject).which == "screen" else tensors(subject)


def prepare(subject: Subject) -> None:
    if not in_bfloat16(subject.facts) or subject.made("in_float32"):  # whose checkpoint it is that is copied
        subject.ahead("changed", lambda: changed(subject, chosen(subject)))


def drawn(subject: Subject, names: list[str]) -> list[str]:
    """All tensors of a small checkpoint; of a large one some groups, others in each verdict: their files are copied."""
    sizes = {t.name: t.end - t.start for path in files(subject.checkpoint) for t in changed_checkpoint.stored(path)}
    found: list[str] = []
    every = groups(names)
    for i in subject.draws("drawn groups").permutation(len(every)):
        if found and sum(sizes[name] for name in (*found, *every[i])) > SCREEN_BYTES:
            break
        found += every[i]
    return sorted(found)


def text(subject: Subject) -> list[int]:
    """A piece of text, and at drawn places in it the first and the last word of the vocabulary: the ends of a table are
    where it is cut short."""
    length = min(LENGTH, subject.facts.workload.max_context)
    (drawn,) = prompts.cut(subject.checkpoint, [length], subject.job.seed + 2)
    places = subject.draws("ends of the table").permutation(length)[:2]
    for place, word in zip(places, (0, subject.facts.model.vocab - 1), strict=False):
        drawn[place] = word
    return drawn


def prefilled(other: Subject, tokens: list[int]) -> Array:
    options = {"sequences": [tokens], "chunks": [], "capacity": len(tokens), "reuse": False}
    return other.call("forward", **options).array("logits", (len(tokens), other.facts.model.vocab))


@dataclass(frozen=True)
class Changed:
    """A copy of the checkpoint in which some tensors are others."""

    names: frozenset[str]
    folder: Path
    wanted: Expected
    """Of `text`, with float64 in the place of an engine."""


def changed(subject: Subject, names: Sequence[str]) -> Changed:
    """Writes the copy anew."""
    source = in_float32(subject)
    folder = subject.copies / "changed"
    changed_checkpoint.changed(source.checkpoint, folder, edit_of(subject, frozenset(names)))
    (wanted,) = decoder.expected(source.facts, folder, [text(subject)], (source.facts.workload.dtype,))
    return Changed(frozenset(names), folder, wanted)


def followed(subject: Subject, names: Sequence[str]) -> tuple[Finding, Array]:
    """Forward and steps on a copy in which the named tensors are others, and the logits of the first."""
    other = in_float32(subject)
    subject.drop()
    other.drop()

    def make() -> Changed:
        return changed(subject, names)

    if subject.once("changed", make, ours=True).names != frozenset(names):
        subject.forget("changed")
    copy = subject.once("changed", make, ours=True)
    tokens, prompt = text(subject), 2
    other.load_model(copy.folder)
    try:
        whole = prefilled(other, tokens)
        options = {"sequence": tokens, "prompt": prompt, "capacity": len(tokens)}
        shape = len(tokens) - prompt + 1, other.facts.model.vocab
        stepped = other.call("steps", **options).array("logits", shape)
    finally:
        if other.child.alive:
            other.drop()
    what = f"{len(names)} tensors changed"
    done = [
        close(other, f"{len(tokens)} tokens, {what}", whole, copy.wanted),
        close(other, f"steps, {what}", stepped, copy.wanted, slice(prompt - 1, None)),
    ]
    return judged("changed weights against float64", done), whole


def unchanged(subject: Subject) -> Array:
    """The logits of the checkpoint as it is."""

    def make() -> Array:
        other = in_float32(subject)
        other.load_model()
        return prefilled(other, text(subject))

    return subject.once("unchanged", make)


def edit_of(subject: Subject, names: frozenset[str]) -> changed_checkpoint.Edit:
    """Drawn noise; and an embedding so small that the first norm's epsilon decides."""
    noise = changed_checkpoint.noise(subject.draws("changed_weights"))
    halvings = small(subject) if TABLE in names else 0

    def edit(tensor: Stored, bits: Bits) -> Bits | None:
        if tensor.name not in names:
            return None
        other = noise(tensor, bits)
        if tensor.name == TABLE and tensor.dtype in ("BF16", "F32", "F64"):
            other = changed_checkpoint.scaled(tensor, other, halvings)
        return other

    return edit


def small(subject: Subject) -> int:
    """How often the embedding is halved until its mean square is the norms' epsilon."""
    rows = Checkpoint(subject.checkpoint).rows(TABLE, slice(0, 256))
    return max(0, round(float(np.log2(rms(rows) / np.sqrt(subject.facts.model.norm_eps)))))


def bisected(subject: Subject, names: list[str]) -> list[str]:
    """The tensors among which the fault lies, as few as the time allows. A fault that needs both halves stays whole."""
    end = time.monotonic() + BISECT_S
    while len(names) > 1 and time.monotonic() < end:
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        half = next((half for half in halves if followed(subject, half)[0].status != "PASS"), None)
        if half is None:
            return names
        names = half
    return names


def permuted_weights(subject: Subject) -> Finding:
    """Two words of the vocabulary change places: an end token and one that the engine is about to say. It must say the
    same with the other number, and end there, in a batch in which the others go on."""
    subject.load_engine()
    asked = plan(subject)
    count = max(2, min(12, asked.context // 4))
    drawn = prompts.cut(subject.checkpoint, [min(n, asked.context - count) for n in (5, 2, 17)], subject.job.seed + 3)
    free = [said(subject, prompt, count) for prompt in drawn]
    return relabelled(subject, drawn, free, swap(subject, free))


def swap(subject: Subject, free: list[list[int]]) -> tuple[int, int]:
    """An end token (any word, for a model without one), and one that is said at a drawn place."""
    rng, ends = subject.draws("permuted_weights"), subject.facts.model.eos_tokens
    end = min(ends) if ends else int(rng.integers(subject.facts.model.vocab))
    words = [token for tokens in free for token in tokens if token not in (*ends, end)]
    return end, words[int(rng.integers(len(words)))] if words else (end + 1) % subject.facts.model.vocab


def relabelled(subject: Subject, drawn: list[list[int]], free: list[list[int]], words: tuple[int, int]) -> Finding:
    end, token = words
    other = {end: token, token: end}
    folder = subject.copies / "permuted"
    subject.drop()

    def edit(tensor: Stored, bits: Bits) -> Bits | None:
        if tensor.name not in (TABLE, "lm_head.weight"):
            return None
        rows = np.array(bits)
        rows[[end, token]] = rows[[token, end]]
        return rows

    changed_checkpoint.changed(subject.checkpoint, folder, edit)
    subject.load_engine(folder)
    try:
        batch = [[other.get(t, t) for t in prompt] for prompt in drawn]
        found = subject.generate(batch, len(free[0]), ignore_eos=False)
        return compared(subject, batch, [[other.get(t, t) for t in tokens] for tokens in free], found)
    finally:
        if subject.child.alive:
            subject.drop()


def compared(subject: Subject, batch: list[list[int]], wanted: list[list[int]], found: list[list[int]]) -> Finding:
    ends = set(subject.facts.model.eos_tokens)
    if len(found) != len(batch):
        return failed(f"{len(batch)} prompts were answered with {len(found)} lists of tokens")
    ended = 0
    for prompt, expected, tokens in zip(batch, wanted, found, strict=True):
        stop = next((i + 1 for i, token in enumerate(tokens) if token in ends), len(expected))
        if len(tokens) != stop:
            return failed(
                f"after {len(prompt)} tokens it said {tokens}, where {sorted(ends)} end a text or {len(expected)}"
            )
        first = next((i for i, pair in enumerate(zip(tokens, expected, strict=False)) if pair[0] != pair[1]), stop)
        if first < stop and (fault := outside_the_band(subject, prompt, tokens)):
            return failed(f"with two words swapped, {tokens} in place of {expected[:stop]}: {fault}")
        ended += stop < len(expected)
    return passed(f"{len(batch)} prompts with two words of the vocabulary swapped, {ended} ended early by one of them")


GATES = (
    Gate(
        "changed_weights",
        "weights",
        "acceptance",
        changed_weights,
        level="L3",
        evidence=Followed,
        repeatable=False,
        prepare=prepare,
    ),
    Gate("permuted_weights", "engine", "acceptance", permuted_weights, level="L3", repeatable=False),
)
