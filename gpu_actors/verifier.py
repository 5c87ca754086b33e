"""Runs the gates on a candidate: their order, when to stop, and the record. The only place that makes a Verdict.

Order: the static checks of the tree (L0), the stages from the first to the last (L2, then L1), the acceptance as the
last of them (L3), what was imported (L0), the issue's own criteria, one passed check once more, and the user's checker.
A stage is run to its end, so that its implementer sees every failure; the next one starts only if it passed. Whatever a
candidate does, it becomes a FAIL in the record; an exception that leaves this module is a fault of ours.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ckb.hashing import tree_files
from ckb.records import STAGES, Stage
from gpu_actors import criteria, engine_process, scratch
from gpu_actors.blocked import Blocked
from gpu_actors.child import ENGINE, Child, ChildFailure
from gpu_actors.gate_record import Record
from gpu_actors.gates import provenance
from gpu_actors.gates.base import EVERY, Finding, Gate, Subject, failed, passed, read
from gpu_actors.gates.evidence import Stated, UserChecked, checked
from gpu_actors.gates.registry import STAGE_GATES
from gpu_actors.jobs import Level, Verdict, VerifyJob
from gpu_actors.readability import Readability, readability
from gpu_actors.reference import Reference
from gpu_actors.sandbox import UNTIMED
from gpu_actors.say import Say, silent
from gpu_actors.user import changed_since, run_user_checker


class Verifier:
    """Judges one candidate at a time."""

    def __init__(self, cache_dir: Path, say: Say = silent):
        self._cache_dir = cache_dir
        self._say = say

    def verify(self, job: VerifyJob) -> Verdict:
        deadline = time.monotonic() + job.deadline_s
        engine = job.engine
        with (
            scratch.folder() as copies,
            Reference(self._cache_dir, Path(engine.checkpoint), engine.facts, self._say) as reference,
            Child(
                ENGINE,
                engine_process.confinement(engine, self._cache_dir, also_read=(copies,), environment=UNTIMED),
            ) as child,
        ):
            if "L3" in job.levels and job.acceptance != "screen":
                reference.start()
            subject = Subject(job, child, reference, deadline, copies)
            record = Record(job)
            with subject:
                run_all(subject, record, self._cache_dir)
            look_at_the_watch(subject, record)
            reads = how_it_reads(subject) if record.passed and traced(job) else None
            if job.checker and "L3" in job.levels and record.passed:
                run_user_gate(job, record, self._cache_dir, subject.seconds_left)
            return Verdict(
                candidate=job.candidate,
                tree=engine.tree,
                stages=job.stages,
                levels=asked(job) if record.passed else tuple(sorted(record.levels)),
                acceptance=job.acceptance if "L3" in record.levels else "none",
                gates=tuple(record.results),
                sandbox=child.sandbox.isolation,
                readability=reads,
            )


def run_all(subject: Subject, record: Record, cache_dir: Path) -> None:
    job = subject.job
    run(subject, record, provenance.STATIC)  # cheap, and nothing is run of a tree that is not the one asked about
    if not record.passed or not open_tree(subject, record):
        return
    stages = sorted(job.stages, key=STAGES.index)
    prepare(subject, gates_of(stages[0], job))
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        if following:
            prepare(subject, gates_of(following, job))
        run(subject, record, gates_of(stage, job))
        if not record.passed:
            return
    if "L0" in job.levels:
        run(subject, record, provenance.RUNTIME)
    if record.passed:
        run_criteria(subject, record, cache_dir)
    if record.passed:
        run_again(subject, record)


def prepare(subject: Subject, gates: Iterable[Gate]) -> None:
    """Begins what these gates will need and no candidate gives, beside those before them."""
    for gate in gates:
        if gate.prepare:
            gate.prepare(subject)


def run_criteria(subject: Subject, record: Record, cache_dir: Path) -> None:
    """What the issue itself states, on a tree that passed the gates: each criterion is a gate of its own."""
    for command, stated in criteria.in_verdict(subject.job.criteria).items():
        start = time.monotonic()
        try:
            found = criteria.findings(subject, command, stated, cache_dir)
        except ChildFailure as failure:
            found = [outcome(failure)] * len(stated)
        except Blocked as short:
            found = [undecided(short)] * len(stated)
        seconds = (time.monotonic() - start) / len(stated)
        for criterion, finding in zip(stated, found, strict=True):
            record.add(f"{criterion.part}_of_issue", "L1", "acceptance", finding, seconds, Stated)


def look_at_the_watch(subject: Subject, record: Record) -> None:
    """Whatever level was asked for and however the gates ended: a violation is a row, and fails the verdict."""
    start = time.monotonic()
    finding = check(subject, provenance.WATCHED)
    if finding.violations and not any(
        result.gate == provenance.WATCHED.id for result in record.results if result.violations
    ):
        watch, seconds = provenance.WATCHED, time.monotonic() - start
        record.add(watch.id, "L0", watch.contract, finding, seconds, watch.evidence)


def asked(job: VerifyJob) -> tuple[Level, ...]:
    """The levels of which a verdict that passes must hold a gate: a first stage has no earlier one to regress."""
    built = [stage for stage in job.stages if stage != "acceptance"]
    none = {"L1": not built, "L2": len(built) < 2}
    return tuple(level for level in job.levels if not none.get(level, False))


def traced(job: VerifyJob) -> bool:
    """Whether the tests of every stage that builds something run: only then do idle lines say something of a tree."""
    return set(job.stages) >= set(STAGES) - {"acceptance"} and {"L1", "L2"} <= set(job.levels)


def how_it_reads(subject: Subject) -> Readability | None:
    """None for a tree whose process can't say any more which of its lines ran."""
    files = {p.relative_to(subject.tree_dir).as_posix(): p for p in tree_files(subject.tree_dir)}
    try:
        lines = subject.call("traced").value("lines", dict[str, list[int]])
    except ChildFailure:
        return None
    return readability({name: path.read_text(encoding="utf-8") for name, path in files.items()}, lines)


def run_user_gate(job: VerifyJob, record: Record, cache_dir: Path, seconds_left: float) -> None:
    """The user's checker on a tree that passed everything of ours. Its files must be those of the frozen plan."""
    start = time.monotonic()
    files = tuple(Path(name) for name in job.checker_files)
    if changed := changed_since(job.checker_files):
        finding = failed(changed)
    else:
        # a package is found only where its parent folder can be listed
        readable = (*files, Path(job.engine.tree_dir).parent)
        found = run_user_checker(job.checker, readable, job.engine, cache_dir, max(1.0, seconds_left))
        rows = tuple(
            row.model_copy(update={"candidate": job.candidate, "gate": "user_checker"}) for row in found.violations
        )
        summary = f"{found.status}: {found.summary}"
        data = {"watched": found.watched}
        finding = Finding("PASS" if found.status == "PASS" else "FAIL", summary, data, violations=rows)
    record.add("user_checker", "L3", "acceptance", finding, time.monotonic() - start, UserChecked)


def gates_of(stage: Stage, job: VerifyJob) -> list[Gate]:
    """The gates of one stage whose level is asked for and whose contract the plan holds, and those that execute the
    contracts in force, where the job carries them. A stage whose gates would all fall away must not pass in silence."""
    asked = [gate for gate in STAGE_GATES if gate.stage == stage and level(gate, job) in job.levels]
    asked = [gate for gate in asked if gate.applies(job.engine.facts)]
    own = [gate for gate in asked if gate.contract != EVERY]
    chosen = [gate for gate in own if gate.contract in job.contracts]
    if own and not chosen:
        wanted = ", ".join(dict.fromkeys(gate.contract for gate in own))
        raise ValueError(f"stage {stage} has gates for the contracts {wanted}; the job names none of them")
    executed = any(row.stage == stage and row.module for row in job.rows)
    return [gate for gate in asked if gate in chosen or (executed and gate.contract == EVERY)]


def level(gate: Gate, job: VerifyJob) -> Level:
    return gate.level or ("L1" if gate.stage == last_stage(job) else "L2")


def last_stage(job: VerifyJob) -> str:
    """The stage whose tests are L1: acceptance has none of its own."""
    built = [stage for stage in STAGES if stage in job.stages and stage != "acceptance"]
    return built[-1] if built else "acceptance"


def open_tree(subject: Subject, record: Record) -> bool:
    """Makes the tree importable in its process. A process that can't even do that is a failure of the tree."""
    try:
        served = "integration" in subject.job.stages
        engine_process.open_tree(subject.child, subject.job.engine, subject.seconds_left, served=served)
        if traced(subject.job):
            subject.call("trace", tree_dir=str(subject.tree_dir))
    except ChildFailure as failure:
        record.add("open", "L0", "provenance", outcome(failure), 0.0)
    return subject.child.alive


def run(subject: Subject, record: Record, gates: Iterable[Gate]) -> None:
    """Runs gates in order. After a crash or a hang the process is gone, and so is the rest."""
    for gate in gates:
        start = time.monotonic()
        before = subject.reference.seconds
        finding = check(subject, gate)
        own = time.monotonic() - start - (subject.reference.seconds - before)
        record.add(gate.id, level(gate, subject.job), gate.contract, finding, own, gate.evidence)
        if not subject.child.alive:
            return


def check(subject: Subject, gate: Gate) -> Finding:
    """The one boundary where whatever a candidate did becomes a finding."""
    try:
        return read(gate.check, subject)
    except ChildFailure as failure:
        return outcome(failure)
    except Blocked as short:
        return undecided(short)


def outcome(failure: ChildFailure) -> Finding:
    return failed(f"{failure.kind}: {failure}"[:1500], kind=failure.kind, trace=failure.trace)


def undecided(short: Blocked) -> Finding:
    return Finding("BLOCKED_BY_HARDWARE", str(short), short.shortage.model_dump(), blocked=short.shortage)


def run_again(subject: Subject, record: Record) -> None:
    """One passed check once more, on the same inputs: what it finds must not depend on having been asked before."""
    choices = comparable(record.found)
    if not choices:
        return
    gate = choices[int(subject.draws("run_again").integers(len(choices)))]
    subject.forget_answers()
    start = time.monotonic()
    finding = compared(gate, record.found[gate.id], check(subject, gate))
    seconds = time.monotonic() - start
    record.add("run_again", level(gate, subject.job), gate.contract, finding, seconds, gate.evidence)


def comparable(found: Mapping[str, Finding]) -> list[Gate]:
    """The gates among these that may be asked again and left evidence to compare."""
    ran = [gate for gate in STAGE_GATES if gate.repeatable and gate.id in found]
    return [gate for gate in ran if checked(gate.evidence, found[gate.id].data)]


def compared(gate: Gate, first: Finding, second: Finding) -> Finding:
    """The second finding of a gate that passed, as the row `run_again` says it."""
    if second.status != "PASS":
        return replace(second, summary=f"{gate.id} passed at first and not the second time: {second.summary}")
    before, after = (checked(gate.evidence, finding.data) for finding in (first, second))
    if before != after:
        differ = ", ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
        return failed(f"{gate.id} passed twice on the same inputs, with other numbers: {differ}", **second.data)
    return passed(f"{gate.id} once more, to the same numbers: {second.summary}", **second.data)
