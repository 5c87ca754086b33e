"""What every part of a run works with: its folder, its frozen plan, its journal, its git workspace."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from ckb.errors import UserError
from ckb.facts import Facts, Frozen
from ckb.hashing import sha256_json
from ckb.knowledge_files import Knowledge
from ckb.predicate import predicate
from ckb.records import Choice, Contract, Fragment, Stage
from ckb.schemas.experience import Experience
from ckb.whole_files import replace_text
from gpu_actors.jobs import EngineJob
from roles.briefs import Lesson
from swarm import events as e
from swarm.budget import Ledger
from swarm.journal import Journal
from swarm.limits import Limits
from swarm.orders import Order, Pause, Stop, Stopped, Unpause, given_at, waiting
from swarm.plan import Plan
from swarm.state import Candidate, IssueState, RunState
from swarm.target import Budget, Target, parse_target
from swarm.workspace import Workspace

PAUSED_POLL_S = 0.5
"""How soon a paused run hears that it shall go on."""


@dataclass(frozen=True)
class RunFiles:
    """Where a run keeps its things."""

    root: Path

    @property
    def target(self) -> Path:
        return self.root / "target.yaml"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def identity(self) -> Path:
        """Who this run is: written last, so that a folder with it holds a whole run."""
        return self.root / "run.json"

    @property
    def evidence(self) -> Path:
        return self.root / "evidence"

    @property
    def transcripts(self) -> Path:
        return self.root / "transcripts"

    @property
    def ledger(self) -> Path:
        """What was reserved for and paid to providers."""
        return self.root / "spending.jsonl"

    @property
    def orders(self) -> Path:
        """Folder of what a person ordered and no driver has taken up."""
        return self.root / "orders"

    @property
    def limits(self) -> Path:
        """What a person has changed of the budget, if anything."""
        return self.root / "budget.json"

    def limits_now(self) -> Budget:
        """The limits of the run as they are now."""
        return Limits(self.read_target().budget, self.limits).now

    @property
    def now(self) -> Path:
        """One line that says what is being done at this moment: for the screen, of no other value."""
        return self.root / "now.txt"

    @property
    def driver_log(self) -> Path:
        """What a driver without a terminal said."""
        return self.root / "driver.log"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    def read_target(self) -> Target:
        return parse_target(yaml.safe_load(self.target.read_text(encoding="utf-8")), str(self.target))

    def asked_as_written(self) -> str:
        """The hash of what the stored Target asks for, key by key: of a run that began when fewer keys were known, that
        is what `asked` was then."""
        data = yaml.safe_load(self.target.read_text(encoding="utf-8"))
        return sha256_json({key: value for key, value in data.items() if key != "budget"})

    def read_plan(self) -> Plan:
        return Plan.model_validate_json(self.plan.read_text(encoding="utf-8"))

    def read_identity(self) -> "Identity":
        """Raises UserError for a folder that holds no run."""
        if not self.identity.exists():
            raise UserError(
                f"{self.root} holds no run: there is no run.json in it. `enginesmith status` lists the runs"
            )
        return Identity.model_validate_json(self.identity.read_text(encoding="utf-8"))

    def write(self, name: str, target: Target, plan: Plan) -> None:
        """The resolved Target and the frozen Plan. Raises UserError if the folder holds a run already."""
        if self.identity.exists():
            raise UserError(f"{self.root} holds a run already: resume it, or name another folder with --run-dir")
        self.root.mkdir(parents=True, exist_ok=True)
        resolved = json.loads(target.model_dump_json())
        replace_text(self.target, yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True))
        replace_text(self.plan, plan.model_dump_json(indent=1))
        identity = Identity(id=uuid.uuid4().hex, target=name, plan=plan.sha256, asked=asked(target))
        replace_text(self.identity, identity.model_dump_json(indent=1))


class Identity(Frozen):
    """What a run was started as; a driver that takes it over compares."""

    id: str
    target: str
    """Name of the Target: its file without .yaml."""
    plan: str
    """Hash of the frozen plan."""
    asked: str
    """Hash of what the Target asks for; the budget is left out, since it may be raised."""


def asked(target: Target) -> str:
    return sha256_json(target.model_dump(mode="json", exclude={"budget"}))


def owed(contracts: Iterable[Contract], facts: Facts, choices: Mapping[str, Choice]) -> tuple[Contract, ...]:
    """The contracts that a tree with these choices must fulfil. One that depends on a decision which its author didn't
    name is left out: nothing says that the tree made it."""
    rules = ((contract, predicate(contract.applies_to)) for contract in contracts)
    known = ((contract, rule) for contract, rule in rules if rule.choices() <= choices.keys())
    return tuple(contract for contract, rule in known if rule.holds(facts, choices))


class Context:
    """An open run. Opening it takes the run over from whoever had it (see swarm.journal)."""

    def __init__(self, files: RunFiles, knowledge: Knowledge, clock: Callable[[], float] = time.time):
        self.files = files
        self._lock = threading.Lock()
        self.target = files.read_target()
        self.plan = files.read_plan()
        self.knowledge = knowledge
        self.journal = Journal(files.root, clock)
        self.workspace = Workspace(files.root)
        limits = Limits(self.target.budget, files.limits)
        self.ledger = Ledger(limits, self.state, clock, files.ledger, self._note_limits)
        self.workspace.restore(self.state.merges[-1].commit if self.state.merges else None)
        self._opened = clock()
        self._obeying = threading.Lock()
        self._stopped = False

    def safe_point(self) -> None:
        """Before anything that costs: takes up what a person has ordered, waits while the run is paused, and checks the
        limits. Raises Stopped and BudgetExceeded."""
        self._obey()
        if self.state.time.paused_in(self.journal.epoch):
            self.note(f"paused; go on with: enginesmith unpause {self.files.root.name}")
            while self.state.time.paused_in(self.journal.epoch):
                time.sleep(PAUSED_POLL_S)
                self._obey()
            self.note("")
        self.ledger.check()

    def _obey(self) -> None:
        with self._obeying:
            for path, order in waiting(self.files.orders):
                self._take_up(path, order)
        if self._stopped:
            raise Stopped(f"the run was stopped as ordered: go on with `enginesmith resume {self.files.root}`")

    def _take_up(self, path: Path, order: Order | str) -> None:
        """Journals an order and removes it. One that a driver journalled and didn't live to remove is not obeyed twice;
        one that was meant for an earlier driver can't stop this one."""
        if path.name not in {taken.name for taken in self.state.orders}:
            refused = order if isinstance(order, str) else ""
            if isinstance(order, Pause | Unpause | Stop) and given_at(path.name) < self._opened:
                refused = "it was given before this driver began"
            known = None if isinstance(order, str) else order
            self.journal.append(e.OrderTaken(name=path.name, order=known, refused=refused))
            self._stopped = self._stopped or (isinstance(order, Stop) and not refused)
        path.unlink(missing_ok=True)

    def _note_limits(self, limits: dict[str, float]) -> None:
        self.journal.append(e.BudgetChanged(**limits))

    @property
    def state(self) -> RunState:
        return self.journal.state

    @property
    def facts(self) -> Facts:
        return self.plan.facts

    @property
    def choices(self) -> dict[str, Choice]:
        """The assignment of the tree at the tip of main."""
        return dict(self.state.merges[-1].choices) if self.state.merges else {}

    def contracts(self, stages: tuple[Stage, ...]) -> tuple[Contract, ...]:
        """The plan's contracts of these stages."""
        chosen = (self.knowledge.contracts[name] for name in self.plan.contract_ids)
        return tuple(contract for contract in chosen if contract.stage in stages)

    def in_force(self, stages: tuple[Stage, ...], choices: Mapping[str, Choice]) -> tuple[Contract, ...]:
        """The plan's contracts of these stages that a tree with these choices must fulfil."""
        return owed(self.contracts(stages), self.facts, choices)

    def fragments(self, contracts: tuple[Contract, ...]) -> tuple[Fragment, ...]:
        """The fragments filed under these contracts."""
        names = {contract.id for contract in contracts}
        return tuple(f for f in self.knowledge.fragments.values() if f.contract in names)

    @property
    def experience(self) -> tuple[Lesson, ...]:
        """What earlier runs learned of optimisations that may hold for this Target and the tree on main. What was
        found on this very target stands for the rule of the same meaning."""
        rows = list(self._applying())
        facts = {row.meaning for row in rows if row.scope == "fact"}
        return tuple(
            Lesson.model_validate(row.model_dump(include=set(Lesson.model_fields)))
            for row in rows
            if row.scope == "fact" or row.meaning not in facts
        )

    def _applying(self) -> Iterator[Experience]:
        for row in self.knowledge.experience:
            condition = predicate(row.applies_to)
            asked = row.kind == "optimisation" and row.metric in ("", self.plan.metric)
            known = condition.choices() <= self.choices.keys()
            if asked and known and condition.holds(self.facts, self.choices):
                yield row

    def engine_job(self, commit: str, tree: str) -> EngineJob:
        """A tree, checked out where a device can load it."""
        return EngineJob(
            tree=tree,
            tree_dir=str(self.workspace.checkout(commit, "tree")),
            checkpoint=str(self.target.checkpoint),
            facts=self.facts,
            operators=self.target.operators,
            sandbox=self.target.sandbox,
            max_memory_bytes=self.plan.max_memory_bytes,
        )

    def job_of(self, candidate: Candidate) -> EngineJob:
        return self.engine_job(candidate.submitted.commit, candidate.submitted.tree)

    def open_issue(self, issue: e.Issue) -> IssueState:
        """Opens an issue, or returns the one of that id that is open already: its base is where it started."""
        if issue.id not in self.state.issues:
            self.journal.append(e.IssueOpened(issue=issue, ckb_version=self.knowledge.version))
        return self.state.issues[issue.id]

    def close_issue(self, issue: e.Issue, outcome: e.IssueOutcome) -> None:
        if not self.state.issues[issue.id].closed:
            self.journal.append(e.IssueClosed(issue=issue.id, outcome=outcome))

    def note(self, text: str) -> None:
        """Says what is being done. Several candidates are worked on at once: the line is replaced whole."""
        with self._lock:
            replace_text(self.files.now, text + "\n")
