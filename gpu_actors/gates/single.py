"""A bfloat16 tree once more in float32, against the same formulas and the float64 decoder with float32's bounds.

Its one constant is replaced in a copy, which runs in a process of its own by the rules of any candidate's. In bfloat16
a scale that is 1% off, or ten times an epsilon, is hardly more than the noise of right engines.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ckb.facts import Facts
from ckb.hashing import tree_sha256
from gpu_actors import changed_checkpoint, single_precision
from gpu_actors.child import ENGINE, Child, ChildFailure
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates import execution, model, provenance
from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.evidence import InFloat32
from gpu_actors.jobs import EngineJob
from gpu_actors.sandbox import UNTIMED

FOLDER = "float32"


def in_bfloat16(facts: Facts) -> bool:
    return facts.workload.dtype == "bfloat16"


def in_float32(subject: Subject) -> Subject:
    """The tree in float32: what is judged itself where that is the Target's dtype."""
    return subject.once("in_float32", lambda: opened(subject)) if in_bfloat16(subject.facts) else subject


def started(subject: Subject) -> Subject:
    """Writes the copy and starts its process, in which nothing of the tree runs yet. Raises ChildFailure for a tree of
    which there can't be a copy."""
    copy = subject.copies / FOLDER / subject.tree_dir.name
    if not copy.exists():
        single_precision.written(subject.tree_dir, copy)
    engine = job(subject, copy)
    rules = confinement(engine, subject.reference.cache_dir, also_read=(subject.copies,), environment=UNTIMED)
    return subject.other_form(engine, subject.beside.enter_context(Child(ENGINE, rules)))


def prepare(subject: Subject) -> None:
    """Its process imports torch while the stage's other gates run."""
    subject.ahead("started", lambda: started(subject))


def opened(subject: Subject) -> Subject:
    """Raises ChildFailure."""
    other = subject.once("started", lambda: started(subject))
    engine = other.job.engine
    open_tree(other.child, engine, other.seconds_left)
    if engine.checkpoint == subject.job.engine.checkpoint:
        other.once("expected", lambda: model.expected(subject))  # one pass of the decoder serves both
    return other


def job(subject: Subject, copy: Path) -> EngineJob:
    """The tree in float32 over the values that its weights have in bfloat16: an engine may round float32 weights when
    it packs them, so a checkpoint of these is rounded beforehand."""
    facts = subject.facts
    workload = facts.workload.model_copy(update={"dtype": "float32"})
    weights = facts.model.model_copy(update={"weights": "bf16"})
    checkpoint = subject.checkpoint
    if facts.model.weights == "fp32":
        checkpoint = subject.copies / f"{FOLDER}-checkpoint"
        changed_checkpoint.changed(subject.checkpoint, checkpoint, changed_checkpoint.rounded_to_bfloat16)
    update = {
        "tree": tree_sha256(copy),
        "tree_dir": str(copy),
        "checkpoint": str(checkpoint),
        "facts": facts.model_copy(update={"workload": workload, "model": weights}),
        "max_memory_bytes": 2 * subject.job.engine.max_memory_bytes,  # the weights may take twice the memory
    }
    return subject.job.engine.model_copy(update=update)


EXECUTION = (
    execution.setup,
    execution.linear,
    execution.rms_norm,
    execution.rope,
    execution.silu_mul,
    execution.attention,
    execution.kv_cache,
)
MODEL = (model.forward, model.step)


def single(subject: Subject, checks: tuple[Callable[[Subject], Finding], ...]) -> Finding:
    """A bfloat16 Target's tree in a copy whose one dtype is float32: the checks of the stage, and what its process
    imported and tried."""
    try:
        other = in_float32(subject)
        for check in checks:
            finding = check(other)
            if finding.status != "PASS":
                return replace(finding, summary=f"in float32, {finding.summary}")
        if (finding := judged_by_the_rules(other)).status != "PASS":
            return finding
        other.drop()
    except ChildFailure as failure:
        if failure.kind != "RAISED":
            subject.forget("in_float32")
            subject.forget("started")
        return failed(
            f"in float32, {failure.kind}: {failure}. {single_precision.RULE}"[:1500], kind=failure.kind,
            trace=failure.trace,
        )  # fmt: skip
    names = ", ".join(check.__name__ for check in checks)
    return passed(f"with DTYPE = torch.float32 and float32's bounds: {names}", tree=other.job.engine.tree)


def judged_by_the_rules(other: Subject) -> Finding:
    """What the copy's process imported and tried, by the rules for any candidate's."""
    for gate in provenance.RUNTIME:
        if (finding := gate.check(other)).status != "PASS":
            return replace(finding, summary=f"in float32, {finding.summary}")
    return passed("nothing forbidden in float32")


GATES: dict[str, Gate] = {
    "execution": Gate(
        "float32_execution",
        "setup",
        "execution",
        partial(single, checks=EXECUTION),
        evidence=InFloat32,
        repeatable=False,
        applies=in_bfloat16,
        prepare=prepare,
    ),
    "model": Gate(
        "float32_model",
        "model",
        "model",
        partial(single, checks=MODEL),
        evidence=InFloat32,
        repeatable=False,
        applies=in_bfloat16,
    ),
}
