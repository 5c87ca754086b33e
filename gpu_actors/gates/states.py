"""Every transition of a contract in force is made to happen: what is before and after is said in the contract's words.

An experiment is known by contract, subject and event. It gives back the words for the state before and after only where
it saw that state, and what it saw otherwise; states that have a name in Python (Request.state) are read from there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from ckb.records import Contract, Stage
from gpu_actors.gates.base import Finding, Subject, failed, for_each_stage, passed, read
from gpu_actors.gates.interface import evidence, rows_of
from gpu_actors.gates.states_experiments import EXPERIMENTS, States

Key = tuple[str, str, str]
Experiment = Callable[[Subject], States]


def states(subject: Subject, stage: Stage) -> Finding:
    """Each change of state that a contract names is made, and seen as it says."""
    rows = rows_of(subject, stage)
    ids = {row.id for row in rows}
    seen = {key: read(experiment, subject) for key, experiment in EXPERIMENTS.items() if key[0] in ids}
    found = list(faults(rows, seen))
    data = {"states": [[*key, *words] for key, words in seen.items()], **evidence(subject, rows)}
    if found:
        return failed(f"{len(found)} transition(s): {'; '.join(found[:4])}", deviations=found, **data)
    return passed(f"{len(seen)} transitions of {len(rows)} contracts happen as they say", **data)


def faults(rows: Sequence[Contract], seen: Mapping[Key, States]) -> Iterator[str]:
    """One sentence for each transition that isn't as its contract says."""
    stated = set()
    for row in rows:
        for transition in row.transitions:
            key = (row.id, transition.subject, transition.event)
            stated.add(key)
            if key not in seen:
                yield f"{row.id}: no experiment for {transition.subject!r} at {transition.event!r}"
                continue
            for when, wanted, found in zip(("before", "after"), (transition.before, transition.after), seen[key],
                                           strict=True):  # fmt: skip
                if found != wanted:
                    what = f"{transition.subject} {when} {transition.event}"
                    yield f"{row.id}: {what}: must be {wanted!r}, found {found!r}"
    for id, what, event in seen.keys() - stated:
        yield f"{id}: the contract says nothing of {what!r} at {event!r}, which happens"


GATES = for_each_stage("states", states)
