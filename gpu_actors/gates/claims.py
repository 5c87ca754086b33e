"""What a choice claims of a running engine, and the check that shows it at work: a mechanism that is compiled, mapped
and never run is a name. One row of CLAIMS a choice; `applies` says where the check can be made at all.

A cache in pages and parallel ranks are drafts of the knowledge base: no author can choose them, so none is claimed.
What is spread over several devices shows in the record of each benchmark: it has a series for each (gpu_actors.usage).
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import prompts
from ckb.records import Choice
from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.evidence import Claims
from gpu_actors.gates.honesty import lengths
from gpu_actors.observed import executed, forget_references

OPERATORS_A_LAYER = 2
"""Most torch operators of a step by layer that one compiled program may leave: five products a layer are the least that
a step of single operators needs."""
Shown = tuple[bool, str]
"""Whether the mechanism is at work, and what was seen."""


@dataclass(frozen=True)
class Claim:
    """One choice, what it says happens in every step, and how that is seen."""

    decision: str
    option: Choice
    what: str
    shown: Callable[[Subject], Shown]
    accelerators: tuple[str, ...] = ("cpu", "cuda")
    """Where the check can be made."""


def own_code_runs(subject: Subject) -> Shown:
    """Code that the engine built is touched while it answers: the kernel notes which pages are."""
    child, (length, new) = subject.child, lengths(subject)
    (prompt,) = prompts.cut(subject.checkpoint, [length], int(subject.draws("own code").integers(1 << 30)))
    places = (*child.writable, subject.tree_dir)
    if not forget_references(child.sandbox.pid):
        return True, "not shown: this kernel keeps no record of touched pages"
    subject.stream(prompt, new)
    touched = executed(child.sandbox.pid, places)
    ran = {name: size for name, size in touched.items() if size}
    if not touched:
        return False, "no shared object of its own is loaded"
    if not ran:
        return False, f"none of {len(touched)} shared object(s) of its own ran"
    return True, f"{sum(ran.values()) // 1024} KiB of its own code ran"


def one_program(subject: Subject) -> Shown:
    """A decode step is one call: next to no torch operator is left of it."""
    runs, seen = own_code_runs(subject)
    if not runs:
        return runs, seen
    (prompt,) = prompts.cut(subject.checkpoint, [lengths(subject)[0]], 0)
    count = subject.call("operators_of_step", prompt=prompt).value("operators", int)
    most = OPERATORS_A_LAYER * subject.facts.model.layers
    return (
        count <= most,
        f"{seen}; a step takes {count} torch operators (at most {most} of {subject.facts.model.layers} layers)",
    )


def graphs_are_replayed(subject: Subject) -> Shown:
    """A profiler of the device sees a launch of a captured graph for every decoded token."""
    length, new = lengths(subject)
    (prompt,) = prompts.cut(subject.checkpoint, [length], 0)
    events = subject.call("device_events", prompt=prompt, max_new_tokens=new).value("events", dict[str, int])
    launches = sum(count for name, count in events.items() if "GraphLaunch" in name)
    return launches >= new - 1, f"{launches} graph launches for {new} tokens"


CLAIMS = (
    Claim("step", "compiled", "a decode step is one call of a compiled program", one_program),
    Claim("linear", "native", "products run in the engine's own code", own_code_runs),
    Claim("attention", "native", "attention runs in the engine's own code", own_code_runs),
    Claim("step_program", "graph", "a decode step replays a captured graph", graphs_are_replayed, ("cuda",)),
)


def mechanism(subject: Subject) -> Finding:
    """Each mechanism that the candidate's choices claim is at work while it answers."""
    subject.load_engine()
    told, wrong = list[str](), list[str]()
    for claim in CLAIMS:
        if subject.job.choices.get(claim.decision) != claim.option:
            continue
        name = f"{claim.decision}={claim.option}"
        if subject.facts.platform.accelerator not in claim.accelerators:
            told.append(f"{name} can't be shown on {subject.facts.platform.accelerator}")
            continue
        at_work, seen = claim.shown(subject)
        (told if at_work else wrong).append(f"{name}: {seen}" if at_work else f"{name}: {claim.what}, but {seen}")
    if wrong:
        return failed("; ".join(wrong), claims=told + wrong)
    return passed("; ".join(told) or "its choices claim no mechanism that a check knows", claims=told)


GATES = (Gate("mechanism", "engine", "integration", mechanism, evidence=Claims),)
