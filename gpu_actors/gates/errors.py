"""Every error case of a contract in force is provoked: the exception and the words of its message are the contract's.

An experiment is known by contract, function and condition, and says which texts stand for the contract's words ("the
prompt's length": 97). A condition that no experiment knows fails the gate, and so do words that one doesn't know, or
that the contract no longer asks for: a changed column is noticed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from ckb.records import Contract, ErrorCase, Stage
from gpu_actors.gates import errors_engine_experiments, errors_experiments
from gpu_actors.gates.base import Finding, Subject, failed, for_each_stage, passed, read
from gpu_actors.gates.errors_experiments import Refusal
from gpu_actors.gates.interface import evidence, rows_of

Key = tuple[str, str, str]
Experiment = Callable[[Subject], Refusal | None]
EXPERIMENTS: dict[Key, Experiment] = errors_experiments.EXPERIMENTS | errors_engine_experiments.EXPERIMENTS


def errors(subject: Subject, stage: Stage) -> Finding:
    """Each error that a contract names is provoked, and raised as it says."""
    rows = rows_of(subject, stage)
    ids = {row.id for row in rows}
    seen = {key: read(experiment, subject) for key, experiment in EXPERIMENTS.items() if key[0] in ids}
    found = list(faults(rows, seen))
    shown = [[*key, asdict(refusal) if refusal else None] for key, refusal in seen.items()]
    data = {"refusals": shown, **evidence(subject, rows)}
    if found:
        return failed(f"{len(found)} error case(s): {'; '.join(found[:4])}", deviations=found, **data)
    count = sum(refusal is not None for refusal in seen.values())
    return passed(f"{count} error cases of {len(rows)} contracts are refused as they say", **data)


def faults(rows: Sequence[Contract], seen: Mapping[Key, Refusal | None]) -> Iterator[str]:
    """One sentence for each error case that isn't as its contract says."""
    stated = {(row.id, case.function, case.condition) for row in rows for case in row.error_cases}
    for row in rows:
        for case in row.error_cases:
            key = (row.id, case.function, case.condition)
            if key not in seen:
                yield f"{row.id}: {case.function}: no experiment for {case.condition!r}"
            elif refusal := seen[key]:
                yield from (f"{row.id}: {case.function}: {case.condition}: {fault}" for fault in _faults(case, refusal))
    for id, function, condition in seen:
        if (id, function, condition) not in stated:
            yield f"{id}: {function}: the contract says nothing of {condition!r}, which is refused"


def _faults(case: ErrorCase, refusal: Refusal) -> Iterator[str]:
    if refusal.note:
        yield refusal.note
    kinds = case.exception.split(" or ")
    if refusal.what not in kinds and not (refusal.what and case.exception == "an exception of any class"):
        yield f"it must end in {case.exception}; found {refusal.what or 'no refusal'}: {refusal.message[:200]!r}"
        return
    if refusal.any_class != (case.exception == "an exception of any class"):
        yield f"the contract says {case.exception}; which exception it is depends on the file"
    for words in case.message:
        if words not in refusal.words:
            yield f"no experiment knows {words!r}"
        elif missing := [text for text in refusal.words[words] if text.lower() not in refusal.message.lower()]:
            yield f"the message must hold {words} ({missing[0]!r}); it is {refusal.message[:200]!r}"
    for words in refusal.words:
        if words not in case.message:
            yield f"the contract no longer asks for {words!r}"


GATES = for_each_stage("errors", errors)
