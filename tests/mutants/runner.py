"""Runs every gate on one tree, whatever the gates before it said: what each of them alone would have let through.

The verifier stops where a stage failed; here nothing stops. A tree that ends its process gets a new one for the next
gate. What the gates are, how they are called and in which sandbox is the verifier's.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.verification.edits import Files, edited
from ckb.facts import Facts
from ckb.hashing import sha256_json, tree_sha256
from ckb.records import STAGES, Contract
from gpu_actors import scratch
from gpu_actors.benchmark_jobs import Arm, BenchmarkJob, Scenario
from gpu_actors.benchmarker import Benchmarker
from gpu_actors.child import ENGINE, Child, ChildFailure
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates import provenance
from gpu_actors.gates.base import EVERY, Finding, Gate, Subject
from gpu_actors.gates.cases import Plan
from gpu_actors.gates.registry import STAGE_GATES
from gpu_actors.jobs import Acceptance, EngineJob, VerifyJob
from gpu_actors.reference import Reference
from gpu_actors.sandbox import UNTIMED
from gpu_actors.verifier import check, gates_of
from tests.mutants import bases
from tests.mutants.mutant import KNOWN_ENDS, Mutant, Variant

DEADLINE_S = 300.0
"""A machine that others use too must not make a right engine late."""
AGAIN_S = 150.0
"""For a tree that has ended its process once."""
MOST_STARTS = 4
"""A tree that ends its process again and again is asked no further: each start takes seconds."""
BENCHMARK = "benchmark"
TIMED = Scenario(prompt_tokens=24, new_tokens=20)


@dataclass
class Judged:
    """What was said of one tree."""

    failed: dict[str, str] = field(default_factory=dict)
    """Gate -> its summary; `benchmark` where the tree was timed too."""
    passed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Of the gates and their processes, without the reference and without the benchmark."""


def made_of(one: Mutant | Variant) -> bases.Composed:
    """Its tree, edited, and the contracts in force. Raises DoesNotApply."""
    base = bases.BASES[one.base]
    made = bases.right(one.base)
    if isinstance(one, Variant) and one.change:
        made = bases.composed(base.facts, {**base.change, **one.change})
    return bases.Composed(edited(made.files, one.edits), made.rows)


SEEN_LATE = frozenset({BENCHMARK, *(gate.id for gate in STAGE_GATES if gate.stage == "acceptance")})
"""Gates that need more time than the sample of `make test` has. What they should catch is judged by a full acceptance,
all else by a screen: the same gates, of fewer and shorter sequences."""


class Workshop:
    """A folder of checkpoints, compiled kernels and the reference's answers. Use it as a context manager: it holds a
    process of the reference for the checkpoint that was asked for last."""

    def __init__(self, work: Path, acceptance: Acceptance | None = None):
        """`acceptance`: of every tree; None: the one that it needs."""
        self.work = work
        self.acceptance = acceptance
        self._open = ExitStack()
        (work / "trees").mkdir(parents=True, exist_ok=True)
        self._trees = Path(tempfile.mkdtemp(dir=work / "trees"))  # another workshop may judge the same tree now
        self._held: dict[str, Reference] = {}

    def __enter__(self) -> "Workshop":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        shutil.rmtree(self._trees, ignore_errors=True)

    def judge(self, one: Mutant | Variant, seed: int) -> Judged:
        """Every gate on a mutant or variant. Raises DoesNotApply."""
        base, made = bases.BASES[one.base], made_of(one)
        known = Plan(bases.checkpoint(self.work, base), base.facts, "screen", 0).fixed()
        ends = repr([prompt[-2:] for prompt in known])
        files = {name: text.replace(KNOWN_ENDS, ends) for name, text in made.files.items()}
        timed = isinstance(one, Mutant) and one.timed
        incumbent = bases.right(one.base).files if timed else None
        late = isinstance(one, Variant) or one.gate in SEEN_LATE
        acceptance = self.acceptance or ("full" if late else "screen")
        checkpoint = bases.checkpoint(self.work, base)
        return self.judge_files(files, made.rows, base.facts, checkpoint, seed, acceptance, incumbent)

    def judge_files(
        self, files: Files, rows: tuple[Contract, ...], facts: Facts, checkpoint: Path, seed: int,
        acceptance: Acceptance, incumbent: Files | None = None,
    ) -> Judged:  # fmt: skip
        """Every gate on a tree; with an incumbent a small benchmark against it, too."""
        engine = self._written(files, facts, checkpoint)
        job = VerifyJob(
            candidate="mutant", engine=engine, stages=STAGES, levels=("L0", "L1", "L2", "L3"), rows=rows,
            contracts=tuple(bases.knowledge().contracts), acceptance=acceptance, seed=seed,
        )  # fmt: skip
        judged = Judged()
        reference = self._reference(facts, checkpoint)
        start, spent = time.monotonic(), reference.seconds
        with scratch.folder() as copies:
            for gate, finding in Run(job, reference, copies, self.work / "cache").findings():
                if finding.status == "PASS":
                    judged.passed.append(gate)
                else:
                    judged.failed[gate] = finding.summary
        judged.passed = [
            gate for gate in judged.passed if gate not in judged.failed
        ]  # the watch is asked of each process
        judged.seconds = time.monotonic() - start - (reference.seconds - spent)
        if "native_objects" not in judged.failed:  # what it built would be found with whoever comes next
            self._keep_kernels(engine)
        if incumbent is not None:
            self._time(judged, self._written(incumbent, facts, checkpoint), engine, facts)
        return judged

    def _written(self, files: Files, facts: Facts, checkpoint: Path) -> EngineJob:
        folder = self._trees / f"tree_{sha256_json(files)[:24]}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        tree = tree_sha256(folder)
        kernels = self.work / "cache" / "kernels" / tree / "compiled-engines"
        if (self.work / "compiled").exists() and not kernels.exists():
            # found by the hash of their source: only another one is built
            shutil.copytree(self.work / "compiled", kernels, ignore=lambda _, names: [n for n in names if ".so." in n])
        return EngineJob(tree=tree, tree_dir=str(folder), checkpoint=str(checkpoint), facts=facts)

    def _keep_kernels(self, engine: EngineJob) -> None:
        (self.work / "compiled").mkdir(exist_ok=True)
        for library in (self.work / "cache" / "kernels" / engine.tree).rglob("kernels_*.so"):
            kept = self.work / "compiled" / library.name
            if not kept.exists():
                part = kept.with_name(f"{kept.name}.{engine.tree[:16]}")
                shutil.copy(library, part)
                part.replace(kept)  # whole or not at all: others may copy it now

    def _reference(self, facts: Facts, checkpoint: Path) -> Reference:
        key = f"{checkpoint} {facts.workload.dtype}"
        if key not in self._held:
            self._open.close()
            self._held = {key: Reference(self.work / "cache", checkpoint, facts)}
            self._open.enter_context(self._held[key])
        return self._held[key]

    def _time(self, judged: Judged, incumbent: EngineJob, engine: EngineJob, facts: Facts) -> None:
        arms = (Arm(name="incumbent", engine=incumbent), Arm(name="mutant", engine=engine))
        job = BenchmarkJob(arms=arms, scenarios=(TIMED,), repeats=2, checkpoint=engine.checkpoint, facts=facts)
        found = Benchmarker(job, self.work / "cache").run()
        (result,) = (arm for arm in found.arms if arm.arm == "mutant")
        void = [row.void for row in found.rows if row.arm == "mutant" and row.void and not row.busy]
        if result.status != "OK" or void:
            judged.failed[BENCHMARK] = result.detail or str(void[0])
        else:
            judged.passed.append(BENCHMARK)


class Run:
    """One pass over all gates."""

    def __init__(self, job: VerifyJob, reference: Reference, copies: Path, cache: Path):
        self.job, self.reference, self.copies, self.cache = job, reference, copies, cache
        self._open = ExitStack()
        self._deadline_s = DEADLINE_S
        self._starts = 0
        self._cut: set[str] = set()
        """Stages whose recording was lost with a process: nothing can be said of their calls."""

    def findings(self) -> Iterator[tuple[str, Finding]]:
        with self._open:
            subject, failure = self._started()
            new = True
            for gate in self._gates():
                if not subject.child.alive:
                    if (told := check(subject, provenance.WATCHED)).violations:
                        yield provenance.WATCHED.id, told
                    if self._starts == MOST_STARTS:
                        return
                    self._cut.add(gate.stage)
                    subject, failure = self._started()
                    new = True
                if (gate.contract == EVERY and gate.stage in self._cut) or (gate in provenance.RUNTIME and new):
                    continue  # it looks at what was done in a process that is gone
                new = False
                yield gate.id, failure or check(subject, gate)

    def _gates(self) -> Iterator[Gate]:
        yield from provenance.STATIC
        for stage in STAGES:
            yield from gates_of(stage, self.job)
        yield from provenance.RUNTIME

    def _started(self) -> tuple[Subject, Finding | None]:
        """A process with the tree opened, and what it did if even that failed."""
        self._open.close()
        self._starts += 1
        rules = confinement(self.job.engine, self.cache, also_read=(self.copies,), environment=UNTIMED)
        child = self._open.enter_context(Child(ENGINE, rules))
        subject = Subject(self.job, child, self.reference, time.monotonic() + self._deadline_s, self.copies)
        self._open.enter_context(subject)  # the processes of other forms of the tree
        self._deadline_s = AGAIN_S
        try:
            open_tree(subject.child, self.job.engine, subject.seconds_left, served=True)
        except ChildFailure as failure:
            return subject, Finding("FAIL", f"{failure.kind}: {failure}")
        return subject, None
