"""What the scripts of this folder share: steps whose findings outlive them, and one verdict on a composed engine. It
may import all, as they may."""

import json
import platform as host
import shutil
import time
from importlib.metadata import version
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.verification.edits import Edit, edited
from benchmarks.verification.found import Found, GateRow, Judged
from ckb.facts import Facts, PlatformFacts
from ckb.hashing import tree_sha256
from ckb.knowledge_files import read_knowledge
from ckb.records import STAGES, Contract
from ckb.space import complete, in_force, selection
from gpu_actors.jobs import Acceptance, EngineJob, GateResult, VerifyJob
from gpu_actors.verifier import Verifier
from roles.authors.composer.assembly import compose

RIGHT = "engine"
"""Name of the engine that nothing was changed in."""


class Steps:
    """What each step found, kept in `work` for the next one and copied to `out`."""

    def __init__(self, work: Path, out: Path, platform: PlatformFacts, commit: str):
        self.work, self.out, self.platform, self.commit = work, out, platform, commit
        self.started = time.monotonic()
        """When the present step began."""
        for folder in (work / "found", out):
            folder.mkdir(parents=True, exist_ok=True)

    def found(self, step: str, **fields: object) -> Found:
        versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = {"device": self.platform.name, "machine": f"{host.machine()}, {self.platform.cores} cores"}
        done = Found.model_validate(
            {"step": step, **head, "versions": versions, "commit": self.commit, "at": at} | fields
        )
        (self.work / "found" / f"{step}.json").write_text(done.model_dump_json(indent=1))
        shutil.copytree(self.work / "found", self.out, dirs_exist_ok=True)
        return done

    def stored(self, step: str) -> Found | None:
        path = self.work / "found" / f"{step}.json"
        return Found.model_validate_json(path.read_text()) if path.exists() else None

    def of(self, steps: tuple[str, ...]) -> list[Found]:
        """What was found so far."""
        return [done for step in steps if (done := self.stored(step))]

    def judge(
        self, name: str, model: Path, facts: Facts, *, edit: Edit | None, seed: int, deadline_s: float,
        acceptance: Acceptance = "screen",
    ) -> tuple[Judged, float | None]:  # fmt: skip
        """Every level on the composed engine, or on it with an edit. Returns the verdict as a row, and the share of the
        acceptance's positions outside the tie band where it came so far."""
        files, rows = composed(facts)
        files = edited(files, (edit,)) if edit else files
        tree = self.work / "trees" / (f"engine_{edit.file.removesuffix('.py')}_{seed}" if edit else "engine")
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        for file, text in files.items():
            (tree / file).write_text(text, encoding="utf-8")
        engine = EngineJob(tree=tree_sha256(tree), tree_dir=str(tree), checkpoint=str(model), facts=facts)
        job = VerifyJob(
            candidate=name, engine=engine, stages=STAGES, levels=("L0", "L1", "L2", "L3"), rows=rows, seed=seed,
            contracts=tuple(row.id for row in rows), deadline_s=deadline_s, acceptance=acceptance,
            evidence_dir=str(self.work / "evidence"),
        )  # fmt: skip
        start = time.monotonic()
        verdict = Verifier(self.work / "cache").verify(job)
        seconds = time.monotonic() - start
        gates = tuple(GateRow(**{k: getattr(g, k) for k in GateRow.model_fields}) for g in verdict.gates)
        rejected = verdict.failures[0].gate if verdict.failures else ""
        judged = Judged(
            name=name, passed=verdict.passed, seconds=seconds, rejected_by=rejected, gates=gates,
            sandbox=verdict.sandbox, seed=seed,
        )  # fmt: skip
        return judged, self.outside(verdict.gates)

    def outside(self, gates: tuple[GateResult, ...]) -> float | None:
        """As the gate of the best tokens counted it: how much of a checkpoint the comparison of tokens can judge."""
        for gate in gates:
            if gate.gate == "acceptance_top1" and gate.status == "PASS":
                evidence = self.work / "evidence" / f"{gate.evidence[0].sha256}.json"
                data = json.loads(evidence.read_text())["data"]
                return float(data["outside"] / data["positions"])
        return None


def composed(facts: Facts) -> tuple[dict[str, str], tuple[Contract, ...]]:
    """The files of the composer's engine, and the contracts in force for it."""
    knowledge = read_knowledge()
    contracts, fragments = knowledge.contracts.values(), knowledge.fragments.values()
    choices = complete({}, contracts, fragments, facts)
    files, _ = compose(selection(contracts, fragments, facts, choices), facts, choices)
    return files, tuple(in_force(contracts, facts, choices))


def choose(**given: tuple[str, tuple[str, ...]]) -> None:
    """Refuses an option's value that isn't one of those it knows; none at all is fine. Exit status 2."""
    for name, (value, known) in given.items():
        if value and value not in known:
            raise typer.BadParameter(f"--{name} is one of {', '.join(known)}, not {value!r}")


def show_gates(console: Console, step: str, one: Judged) -> None:
    table = Table("gate", "level", "status", "s", "summary", title=f"{step}: {one.name}")
    for gate in one.gates:
        table.add_row(gate.gate, gate.level, gate.status, f"{gate.seconds:.1f}", gate.summary[:90])
    console.print(table)


def show(console: Console, title: str, every: list[Found]) -> None:
    """What is known so far, a line each."""
    table = Table("step", "what", "outcome", "s", title=title)
    for done in every:
        if made := done.checkpoint:
            table.add_row(done.step, f"{made.bytes / 1e9:.1f} GB", made.sha256[:12], f"{made.seconds:.0f}")
            if held := made.measures:
                table.add_row(done.step, "median entropy of attention over log T", f"{held.entropy:.2f}", "")
                for dtype, share in held.outside.items():
                    table.add_row(done.step, f"positions outside the tie band of {dtype}", f"{share:.0%}", "")
                for effect in held.effects:
                    table.add_row(done.step, effect.fault, f"error {effect.error:.2g}, KL {effect.kl:.2g}", "")
        for one in done.judged:
            failed = next((gate.summary for gate in one.gates if gate.status != "PASS"), "")
            outcome = "passed" if one.passed else f"rejected by {one.rejected_by}: {failed[:80]}"
            table.add_row(done.step, one.name, outcome, f"{one.seconds:.0f}")
        if done.outside_the_band is not None:
            table.add_row(done.step, "positions outside the tie band", f"{done.outside_the_band:.1%}", "")
    console.print(table)


def leave(every: list[Found]) -> None:
    """Exit status 1 where a verdict is not what it should be: a right engine rejected, or a wrong one let through."""
    if any(one.passed != (one.name == RIGHT) for done in every for one in done.judged):
        raise typer.Exit(1)
