"""python -m benchmarks.verification.run_h200 WORK OUT [--only checkpoint|reference|gates|mutants] [--shape tiny]

The whole gate set on a model of Qwen3-8B's shape with random weights, on one device: how long an engine takes once the
reference's outputs are stored, and whether six wrong ones are rejected. In four steps, each to be started again by
itself, since a machine that is lent may end a call: what a step made and found is kept in WORK, for the next one, and
everything that was found so far is copied to OUT. Needs no Ray, no network and no store.

    checkpoint  random weights in WORK/model
    reference   the first verdict: Hugging Face answers the acceptance prompts, and its outputs are stored
    gates       the same with stored outputs, on other draws: the time that an engine takes
    mutants     the six wrong engines, one verdict each; those that have theirs already are passed over
"""

import platform as host
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.verification.checkpoint import SHAPES, write_checkpoint
from benchmarks.verification.edits import EDITS, edited
from ckb.build import read_seed
from ckb.checkpoint import read_checkpoint
from ckb.facts import Facts, Frozen
from ckb.hashing import tree_sha256
from ckb.knowledge_files import read_knowledge
from ckb.records import STAGES, Contract
from ckb.schemas import ModelFamily
from ckb.space import complete, in_force, selection
from gpu_actors.checkpoint import content_sha256
from gpu_actors.gates.acceptance import MARGIN
from gpu_actors.gates.cases import Plan, evaluated
from gpu_actors.jobs import EngineJob, VerifyJob
from gpu_actors.reference import Reference
from gpu_actors.verifier import Verifier
from roles.authors.composer.assembly import compose
from swarm.feasibility import facts_of
from swarm.platform import detect
from swarm.target import Target, load_target

Step = Literal["checkpoint", "reference", "gates", "mutants"]
STEPS: tuple[Step, ...] = ("checkpoint", "reference", "gates", "mutants")
TARGET = Path(__file__).parents[2] / "targets" / "qwen3-8b-h200.yaml"
STEP_S = 570.0
"""When a step must have ended: a call on a machine that is lent lasts ten minutes."""
LAST_START_S = 420.0
"""When a step starts its last verdict."""


class GateRow(Frozen):
    """One gate of a verdict."""

    gate: str
    level: str
    status: str
    seconds: float
    summary: str


class Judged(Frozen):
    """One verdict."""

    name: str
    """`engine`, or the name of the edit."""
    passed: bool
    seconds: float
    """Wall time of the verdict, processes included."""
    rejected_by: str
    """The first gate that failed, or empty."""
    gates: tuple[GateRow, ...]
    sandbox: str
    seed: int


class Made(Frozen):
    """The checkpoint."""

    shape: str
    bytes: int
    seconds: float
    sha256: str


class Found(Frozen):
    """What one step found, and where."""

    step: Step
    device: str
    machine: str
    versions: dict[str, str]
    commit: str
    at: str
    """ISO 8601, UTC."""
    checkpoint: Made | None = None
    judged: tuple[Judged, ...] = ()
    outside_the_band: float | None = None
    """Share of the sampled positions whose two best logits lie further apart than the tie band."""


class Bench:
    """One shape on one accelerator: its checkpoint, its engine and its verdicts."""

    def __init__(self, work: Path, out: Path, shape: str, accelerator: Literal["cpu", "cuda"], commit: str):
        self.work, self.out, self.shape, self.commit = work, out, shape, commit
        self.platform = detect(accelerator)
        if accelerator == "cpu":  # an engine of torch alone, as the one for a device is
            self.platform = self.platform.model_copy(update={"compiler": None})
        self.started = time.monotonic()
        """When the present step began."""
        for folder in (work / "found", out):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def model(self) -> Path:
        return self.work / "model"

    def found(self, step: Step, **fields: object) -> Found:
        versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = {"device": self.platform.name, "machine": f"{host.machine()}, {self.platform.cores} cores"}
        done = Found.model_validate(
            {"step": step, **head, "versions": versions, "commit": self.commit, "at": at} | fields
        )
        (self.work / "found" / f"{step}.json").write_text(done.model_dump_json(indent=1))
        shutil.copytree(self.work / "found", self.out, dirs_exist_ok=True)
        return done

    def stored(self, step: Step) -> Found | None:
        path = self.work / "found" / f"{step}.json"
        return Found.model_validate_json(path.read_text()) if path.exists() else None

    # --- steps --------------------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        making = self.work / "making"
        if self.model.exists():
            return
        shutil.rmtree(making, ignore_errors=True)
        start = time.monotonic()
        size = write_checkpoint(making, SHAPES[self.shape], seed=0)
        seconds = time.monotonic() - start
        making.rename(self.model)  # whole or not at all
        made = Made(shape=self.shape, bytes=size, seconds=seconds, sha256=content_sha256(self.model))
        self.found("checkpoint", checkpoint=made)

    def reference(self) -> None:
        first = self.judge("engine", seed=1)
        self.found("reference", judged=(first,), outside_the_band=self.outside())

    def gates(self) -> None:
        content_sha256(self.model)  # a device knows its checkpoints' names: it hashes each once
        self.found("gates", judged=(self.judge("engine", seed=2),))

    def mutants(self) -> None:
        content_sha256(self.model)
        stored = self.stored("mutants")
        judged = list(stored.judged) if stored else []
        for number, name in enumerate(EDITS):
            if name not in {one.name for one in judged} and time.monotonic() - self.started < LAST_START_S:
                judged.append(self.judge(name, seed=3 + number))
                self.found("mutants", judged=tuple(judged))

    # --- one verdict --------------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        families = [row for row in read_seed()["models"] if isinstance(row, ModelFamily)]
        model = read_checkpoint(self.model, families).facts
        target = load_target(TARGET)
        if self.shape == "tiny":
            target = Target.model_validate(
                target.model_dump() | {"workload": {"prompt_tokens": [160], "new_tokens": [96]}}
            )
        return facts_of(target, model, self.platform)

    def engine(self, facts: Facts) -> tuple[dict[str, str], tuple[Contract, ...]]:
        """The composed tree's files, and the contracts in force for it."""
        knowledge = read_knowledge()
        contracts, fragments = knowledge.contracts.values(), knowledge.fragments.values()
        choices = complete({}, contracts, fragments, facts)
        files, _ = compose(selection(contracts, fragments, facts, choices), facts, choices)
        return files, tuple(in_force(contracts, facts, choices))

    def judge(self, name: str, seed: int) -> Judged:
        """Every level on the engine, or on one of its edits."""
        facts = self.facts()
        files, rows = self.engine(facts)
        files = edited(files, name) if name in EDITS else files
        tree = self.work / "trees" / f"engine_{list(EDITS).index(name) + 1 if name in EDITS else 0}"
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        for file, text in files.items():
            (tree / file).write_text(text, encoding="utf-8")
        engine = EngineJob(tree=tree_sha256(tree), tree_dir=str(tree), checkpoint=str(self.model), facts=facts)
        left = STEP_S - (time.monotonic() - self.started)
        job = VerifyJob(
            candidate=name, engine=engine, stages=STAGES, levels=("L0", "L1", "L2", "L3"), rows=rows, seed=seed,
            contracts=tuple(row.id for row in rows), deadline_s=left, evidence_dir=str(self.work / "evidence"),
        )  # fmt: skip
        start = time.monotonic()
        verdict = Verifier(self.work / "cache").verify(job)
        seconds = time.monotonic() - start
        gates = tuple(GateRow(**{k: getattr(g, k) for k in GateRow.model_fields}) for g in verdict.gates)
        rejected = verdict.failures[0].gate if verdict.failures else ""
        return Judged(
            name=name, passed=verdict.passed, seconds=seconds, rejected_by=rejected, gates=gates,
            sandbox=verdict.sandbox, seed=seed,
        )  # fmt: skip

    def outside(self) -> float:
        """From the stored answers: how much of this checkpoint the comparison of tokens can judge."""
        facts, total, outside = self.facts(), 0, 0
        asked = Plan(self.model, facts, which="screen", seed=0)
        with Reference(self.work / "cache", self.model, facts) as reference:
            for prompt in asked.fixed():
                case = evaluated(reference, prompt, reference.greedy(prompt, asked.count(prompt)), keep=True)
                best = np.sort(case.evaluation.rows, axis=-1)[:, -2:]
                band = MARGIN * case.evaluation.error_max[case.samples]
                outside += int((best[:, 1] - best[:, 0] > band).sum())
                total += len(band)
        return outside / total


def show(bench: Bench, console: Console) -> None:
    """What is known so far, as tables; the last one is the summary."""
    every = [done for step in STEPS if (done := bench.stored(step))]
    for done in every:
        for one in done.judged if done.step == "gates" else ():
            table = Table("gate", "level", "status", "s", "summary", title=f"{done.step}: {one.name}")
            for gate in one.gates:
                table.add_row(gate.gate, gate.level, gate.status, f"{gate.seconds:.1f}", gate.summary[:90])
            console.print(table)
    table = Table("step", "what", "outcome", "s", title=f"{bench.shape} on {bench.platform.name}")
    for done in every:
        if made := done.checkpoint:
            table.add_row(done.step, f"{made.bytes / 1e9:.1f} GB", made.sha256[:12], f"{made.seconds:.0f}")
        for one in done.judged:
            failed = next((gate.summary for gate in one.gates if gate.status != "PASS"), "")
            outcome = "passed" if one.passed else f"rejected by {one.rejected_by}: {failed[:80]}"
            table.add_row(done.step, one.name, outcome, f"{one.seconds:.0f}")
        if done.outside_the_band is not None:
            table.add_row(done.step, "positions outside the tie band", f"{done.outside_the_band:.0%}", "")
    console.print(table)


def main(
    work: Annotated[Path, typer.Argument(help="Checkpoint and stored outputs: 20 GB for the full shape.")],
    out: Annotated[Path, typer.Argument(help="Folder for what was found.")],
    only: Annotated[str, typer.Option(help="One step: checkpoint, reference, gates, mutants.")] = "",
    shape: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}.")] = "qwen3-8b",
    accelerator: Annotated[str, typer.Option(help="cuda, or cpu to try the script.")] = "cuda",
    commit: Annotated[str, typer.Option(help="What is measured, for the record.")] = "",
) -> None:
    """The gates on one device, in steps. Exit status 1: a verdict is not what it should be."""
    for name, value, known in (
        ("only", only, ("", *STEPS)),
        ("shape", shape, tuple(SHAPES)),
        ("accelerator", accelerator, ("cpu", "cuda")),
    ):
        if value not in known:
            raise typer.BadParameter(f"--{name} is one of {', '.join(filter(None, known))}, not {value!r}")
    bench = Bench(work.resolve(), out.resolve(), shape, "cuda" if accelerator == "cuda" else "cpu", commit)
    steps = {
        "checkpoint": bench.checkpoint, "reference": bench.reference, "gates": bench.gates, "mutants": bench.mutants
    }  # fmt: skip
    for step in (only,) if only else STEPS:
        bench.started = time.monotonic()
        steps[step]()
    show(bench, Console(width=160))
    judged = [one for step in STEPS if (done := bench.stored(step)) for one in done.judged]
    if any(one.passed == (one.name in EDITS) for one in judged):  # a right engine rejected, or a wrong one let through
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
