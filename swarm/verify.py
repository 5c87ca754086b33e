"""`enginesmith verify`: all gates on one engine's folder, in this process, without a run.

What is judged is what lies in the folder now; what it was made for, its choices and the version of the knowledge base
are its manifest's. Whoever edits an engine can edit its manifest too, so that the manifest can't make the question
smaller: contracts that the Target needs are asked for whether or not it names them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError
from rich.table import Table
from rich.text import Text

from ckb.build import read_knowledge_at, read_seed
from ckb.checkpoint import read_checkpoint
from ckb.errors import Damaged, UserError
from ckb.facts import Facts
from ckb.hashing import tree_sha256
from ckb.knowledge_files import Knowledge, read_knowledge
from ckb.records import STAGES, Choice, Contract
from ckb.schemas import ModelFamily
from ckb.store import Store
from gpu_actors.jobs import DEADLINE_S, Acceptance, EngineJob, GateResult, Verdict, VerifyJob
from gpu_actors.lease import Lease, physical_devices
from gpu_actors.say import Say
from gpu_actors.verifier import Verifier
from swarm.context import owed
from swarm.feasibility import check_memory, facts_of
from swarm.inner_loop import ALL_LEVELS
from swarm.operators import trial_of
from swarm.paths import cache_dir, store_dir
from swarm.plan import possible_contracts, refuse_unsupported, row_sha256, tried_out
from swarm.platform import detect
from swarm.release import MANIFEST_FORMAT
from swarm.tables import plain_table
from swarm.target import Target
from swarm.user_inputs import absolute_command, user_files

WRITTEN_ABOUT = ("manifest.json", "report.html")
"""What a release writes beside an engine's modules: no part of its tree."""
STATUS = {"PASS": ("pass", "green"), "FAIL": ("FAIL", "bold red"), "BLOCKED_BY_HARDWARE": ("blocked", "blue")}
"""Status of a gate -> its word in the table, and the style of that."""


class Head(BaseModel):
    """What every manifest.json says, whatever wrote it."""

    format: int


class Made(BaseModel):
    """The part of manifest.json that says what an engine must be."""

    tree: str
    target: Target
    ckb_version: int = Field(ge=0)
    contracts: dict[str, str]
    choices: dict[str, Choice]


@dataclass(frozen=True)
class Basis:
    """The knowledge that an engine is judged by."""

    knowledge: Knowledge
    families: tuple[ModelFamily, ...]
    words: str
    """Which it is, for people."""


@dataclass(frozen=True)
class Order:
    """How one engine is to be judged."""

    acceptance: Acceptance
    seed: int
    """Of the draws: the same one asks the same again."""
    evidence: Path
    sandbox: Literal["auto", "none"] | None = None
    """None: as the Target has it."""


def read_made(folder: Path) -> Made:
    """Raises UserError for a manifest that can't be read, or that another version of Enginesmith wrote."""
    path = folder / "manifest.json"
    try:
        data = path.read_bytes()
        written = Head.model_validate_json(data).format
        if written != MANIFEST_FORMAT:
            raise UserError(
                f"{path} is of format {written}, this version reads format {MANIFEST_FORMAT}: generate the engine again"
            )
        return Made.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} does not say what the engine was made for: {where}: {first['msg']}") from error
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}") from error


def basis_of(made: Made) -> Basis:
    """The manifest's version of the knowledge base where the store has it, the seed files otherwise."""
    number = made.ckb_version
    try:
        store = Store(store_dir())
        store.state(number)
    except Damaged:
        raise
    except UserError as error:
        families = tuple(row for row in read_seed()["models"] if isinstance(row, ModelFamily))
        return Basis(read_knowledge(), families, f"the seed of this installation, not version {number}: {error}")
    knowledge = read_knowledge_at(store, number)
    words = f"version {number} of {store.storage}"
    rows = knowledge.contracts
    others = sum(digest != row_sha256(rows[name]) for name, digest in made.contracts.items() if name in rows)
    if others:
        words += f"; {others} of {len(made.contracts)} contracts are other rows than those that it was made from"
    return Basis(knowledge, tuple(store.rows(ModelFamily, number)), words)


def contracts_of(made: Made, basis: Basis, facts: Facts) -> tuple[Contract, ...]:
    """What the Target may need on this machine, and what the manifest names besides (another machine's). Raises
    UserError for a contract that is not in the knowledge base: an engine that passed without it would have been asked
    less than it says."""
    known = basis.knowledge.contracts
    if gone := sorted(made.contracts.keys() - known.keys()):
        raise UserError(
            f"the engine was made from contracts that are not there: {', '.join(gone)}. They were looked for in "
            f"{basis.words}. Name the store that has version {made.ckb_version} with ENGINESMITH_STORE"
        )
    named = (known[name] for name in made.contracts)
    return tuple({row.id: row for row in (*possible_contracts(basis.knowledge, facts), *named)}.values())


@contextmanager
def laid_out(folder: Path) -> Iterator[Path]:
    """A copy of an engine's folder as a run checks a tree out, removed at the end: nothing that is written into the
    folder meanwhile is judged. Strange files and links come along as they are, for the gates to find."""

    def left_out(where: str, names: list[str]) -> set[str]:
        beside = WRITTEN_ABOUT if Path(where) == folder else ()
        here = {name: Path(where) / name for name in names}
        pipes = {n for n, p in here.items() if not (p.is_symlink() or p.is_dir() or p.is_file())}
        return {"__pycache__", *beside, *pipes} & here.keys()

    with tempfile.TemporaryDirectory(prefix="enginesmith-judged-") as scratch:
        tree = Path(scratch) / "engine"
        try:
            shutil.copytree(folder, tree, symlinks=True, ignore=left_out)
        except OSError as error:
            raise UserError(f"can't read the engine in {folder}: {error}") from error
        yield tree


def job_of(name: str, tree: Path, made: Made, checkpoint: Path, basis: Basis, order: Order, say: Say) -> VerifyJob:
    """What a run would have its verifier judge before a release, for a tree that was laid out.

    Raises UserError where the Target can't be met on this machine, and for files of the user's own that are gone:
    their hashes are those of now.
    """
    own = {"sandbox": order.sandbox} if order.sandbox else {}
    target = made.target.model_copy(update=own)
    refuse_unsupported(target)
    platform = detect(target.hardware.accelerator, target.hardware.count)
    facts = facts_of(target, read_checkpoint(checkpoint, basis.families).facts, platform)
    memory = check_memory(target, facts)
    facts, _ = tried_out(facts, trial_of(target, say))
    contracts = contracts_of(made, basis, facts)
    return VerifyJob(
        candidate=name,
        engine=EngineJob(
            tree=tree_sha256(tree),
            tree_dir=str(tree),
            checkpoint=str(checkpoint),
            facts=facts,
            operators=target.operators,
            sandbox=target.sandbox,
            max_memory_bytes=memory.allowed_bytes,
        ),
        stages=STAGES,
        levels=ALL_LEVELS,
        contracts=tuple(contract.id for contract in contracts),
        rows=owed(contracts, facts, made.choices),
        choices=made.choices,
        ckb_version=basis.knowledge.version,
        acceptance=order.acceptance,
        deadline_s=DEADLINE_S[order.acceptance],
        seed=order.seed,
        checker=absolute_command(target.user.checker or ""),
        checker_files=user_files(target.user).checker,
        evidence_dir=str(order.evidence),
    )


def evidence_folder(named: str | None) -> Path:
    """Where evidence is written, made before anything is judged. Raises UserError where that can't be."""
    folder = Path(named).absolute() if named else cache_dir() / "evidence"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"evidence can't be written to {folder}: {error.strerror}; name another --evidence") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"evidence can't be written to {folder}: permission denied; name another --evidence")
    return folder


def judge(job: VerifyJob, say: Say) -> Verdict:
    """The verdict, made in this process under a lease of the device that gates share."""
    with Lease(physical_devices(job.engine.facts.platform.accelerator), exclusive=False, on_wait=say):
        return Verifier(cache_dir(), say).verify(job)


# --- what is said of it -----------------------------------------------------------------------------------------------


def about(job: VerifyJob, made: Made, basis: Basis) -> list[str]:
    """What is going to be judged, in lines."""
    tree = job.engine.tree
    edited = "" if tree == made.tree else f", edited since it was released as {made.tree[:12]}"
    return [
        f"tree       {tree[:12]}{edited}",
        f"knowledge  {basis.words}",
        f"contracts  {len(job.rows)} in force of {len(job.contracts)}",
        f"asked      {job.acceptance}, within {job.deadline_s:.0f} s; the same draws again: --seed {job.seed}",
    ]


def gate_table(verdict: Verdict) -> Table:
    """One line a gate, cut where the terminal ends; `told` has the whole of what did not pass."""
    table = plain_table("level", "gate", "status", "s", "found")
    for column in table.columns[:-1]:
        column.no_wrap = True
    table.columns[3].justify = "right"
    for gate in verdict.gates:
        word, style = STATUS[gate.status]
        summary = Text(plain(gate.summary), no_wrap=True, overflow="ellipsis")
        table.add_row(gate.level, gate.gate, Text(word, style=style), f"{gate.seconds:.1f}", summary)
    return table


def told(verdict: Verdict, evidence: Path) -> list[str]:
    """The verdict in lines: each gate that it did not pass whole, how the tree reads, and where the evidence lies."""
    lines = [line for gate in verdict.gates if gate.status != "PASS" for line in fault(gate, evidence)]
    if reads := verdict.readability:
        branches = f"{len(reads.fact_branches)} branches on what the Target fixed"
        lines.append(
            f"reads      {100 * reads.executed:.1f}% of {reads.lines} executable lines ran, {branches}; functions have "
            f"{reads.median_function:g} lines in the middle, {reads.longest_function} at most ({reads.longest})"
        )
    lines += [
        f"sandbox    {verdict.sandbox.removeprefix('sandbox: ')}",
        f"evidence   {len(verdict.gates)} files in {evidence}",
    ]
    return [*lines, conclusion(verdict)]


def fault(gate: GateResult, evidence: Path) -> list[str]:
    files = (str(evidence / f"{piece.sha256}.json") for piece in gate.evidence)
    return [f"{gate.gate} of {gate.contract}: {plain(gate.summary)}", *(f"  {file}" for file in files)]


def conclusion(verdict: Verdict) -> str:
    if verdict.passed:
        return f"passed: {len(verdict.gates)} gates of {', '.join(verdict.levels)}, acceptance {verdict.acceptance}"
    held = verdict.failures or verdict.blocked
    names = ", ".join(gate.gate for gate in held)
    return f"rejected by {names}" if verdict.failures else f"undecided: {names} blocked by hardware"


def plain(text: str) -> str:
    """Words on one line. A summary may quote what an engine raised, and that must not move the cursor."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
