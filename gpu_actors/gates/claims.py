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
from gpu_actors.gates.evidence import Claims, Outcome
from gpu_actors.gates.honesty import lengths
from gpu_actors.observed import executed, forget_references

OPERATORS_A_LAYER, OPERATORS_A_TOKEN = 2, 8
"""Most torch operators by layer that one compiled program may leave of a decoded token: five products a layer are the
least that a step of single operators needs. And those that stand round a step in any engine: its sampler's."""


@dataclass(frozen=True)
class Shown:
    """What was seen of one mechanism."""

    outcome: Outcome
    words: str
    """With what was measured: it is told and is no evidence, for it differs from run to run."""


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
        return Shown("not shown", "this kernel keeps no record of touched pages")
    subject.stream(prompt, new)
    touched = executed(child.sandbox.pid, places)
    ran = {name: size for name, size in touched.items() if size}
    if not touched:
        return Shown("not at work", "no shared object of its own is loaded")
    if not ran:
        return Shown("not at work", f"none of {len(touched)} shared object(s) of its own ran")
    return Shown("at work", f"{sum(ran.values()) // 1024} KiB of its own code ran")


def one_program(subject: Subject) -> Shown:
    """A decoded token is one call: next to no torch operator is left of it. They are counted over whole streams of one
    token and of several, whatever the engine calls its parts; the count is its process's own word."""
    own, (length, new) = own_code_runs(subject), lengths(subject)
    if own.outcome == "not at work":
        return own
    if new < 2:
        return Shown("not shown", f"a context of {subject.facts.workload.max_context} tokens has no room for a step")
    (prompt,) = prompts.cut(subject.checkpoint, [length], 0)
    _, one, several = (operators(subject, prompt, count) for count in (1, 1, new))  # the first warms up
    found, layers = (several - one) / (new - 1), subject.facts.model.layers
    most = OPERATORS_A_LAYER * layers + OPERATORS_A_TOKEN
    words = f"{own.words}; a token takes {found:g} torch operators (at most {most} of {layers} layers)"
    return Shown(own.outcome if found <= most else "not at work", words)


def operators(subject: Subject, prompt: list[int], count: int) -> int:
    """Torch operators of a stream of so many tokens. Raises ChildFailure."""
    return subject.call("operators_of_stream", prompt=prompt, max_new_tokens=count).value("operators", int)


def graphs_are_replayed(subject: Subject) -> Shown:
    """A profiler of the device sees a launch of a captured graph for every decoded token: in the engine's own process,
    for no other can see one. So this is its word too."""
    length, new = lengths(subject)
    (prompt,) = prompts.cut(subject.checkpoint, [length], 0)
    events = subject.call("device_events", prompt=prompt, max_new_tokens=new).value("events", dict[str, int])
    launches = sum(count for name, count in events.items() if "GraphLaunch" in name)
    return Shown("at work" if launches >= new - 1 else "not at work", f"{launches} graph launches for {new} tokens")


CLAIMS = (
    Claim("step", "compiled", "a decode step is one call of a compiled program", one_program),
    Claim("linear", "native", "products run in the engine's own code", own_code_runs),
    Claim("attention", "native", "attention runs in the engine's own code", own_code_runs),
    Claim("step_program", "graph", "a decode step replays a captured graph", graphs_are_replayed, ("cuda",)),
)


def mechanism(subject: Subject) -> Finding:
    """Each mechanism that the candidate's choices claim is at work while it answers. One that can't be shown here fails
    nobody; the evidence says that it wasn't."""
    subject.load_engine()
    outcomes, told, wrong = dict[str, Outcome](), list[str](), list[str]()
    for claim in CLAIMS:
        if subject.job.choices.get(claim.decision) != claim.option:
            continue
        name, accelerator = f"{claim.decision}={claim.option}", subject.facts.platform.accelerator
        can_be = accelerator in claim.accelerators
        seen = claim.shown(subject) if can_be else Shown("not shown", f"it can't be on {accelerator}")
        outcomes[name] = seen.outcome
        if seen.outcome == "not at work":
            wrong.append(f"{name}: {claim.what}, but {seen.words}")
        else:
            told.append(f"{name}: {'not shown: ' * (seen.outcome == 'not shown')}{seen.words}")
    if wrong:
        return failed("; ".join(wrong), claims=outcomes)
    return passed("; ".join(told) or "its choices claim no mechanism that a check knows", claims=outcomes)


GATES = (Gate("mechanism", "engine", "integration", mechanism, evidence=Claims),)
