"""Starts a run, or takes one over: what `generate` and `resume` do.

The driver starts or joins Ray, makes the orchestrator an actor, and shows what the journal says until it ends. The
driver decides nothing: killed at any moment, the next one reads the journal and goes on.
"""

import socket
import time
from importlib.metadata import version
from pathlib import Path

import ray

from ckb.build import read_knowledge_at
from ckb.errors import UserError
from ckb.store import Store
from swarm import events as e
from swarm.cluster import cluster
from swarm.context import Context, RunFiles
from swarm.crew import RayCrew, get
from swarm.journal import read_events
from swarm.orchestrator import Orchestrator
from swarm.paths import runs_dir, store_dir
from swarm.plan import Plan
from swarm.progress import Progress
from swarm.report import write_report
from swarm.state import RunState
from swarm.target import Target

POLL_S = 0.3


def new_run_dir(target_name: str) -> Path:
    """runs/<target>-<date>-<time>, unused so far."""
    stem = f"{target_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = [runs_dir() / stem, *(runs_dir() / f"{stem}-{n}" for n in range(2, 100))]
    return next(path for path in candidates if not path.exists())


def generate(target: Target, name: str, plan: Plan, run_dir: Path | None = None) -> e.RunFinished:
    """A new run of a Target whose plan has been made. Raises UserError for what the user must mend."""
    files = RunFiles((run_dir or new_run_dir(name)).absolute())
    files.write(target, plan)
    return drive(files, name)


def resume(run_dir: Path) -> e.RunFinished:
    """Goes on with a run whose driver ended, however it ended."""
    files = RunFiles(run_dir.absolute())
    if not files.plan.exists():
        raise UserError(f"{run_dir} holds no run: there is no plan.json in it. `enginesmith status` lists the runs.")
    return drive(files, files.root.name)


def drive(files: RunFiles, name: str) -> e.RunFinished:
    """Everything that needs Ray."""
    target = files.read_target()
    with Progress(target.budget) as progress, cluster(target):
        actor = ray.remote(num_cpus=0, max_concurrency=1)(OrchestratorProcess).remote(str(files.root), name)
        outcome = actor.run.remote()
        tail = JournalTail(files)
        while not ray.wait([outcome], timeout=POLL_S)[0]:
            tail.show(progress)
        tail.show(progress)
        finished: e.RunFinished = get(outcome)
    write_report(files.root)
    return finished


class OrchestratorProcess:
    """The orchestrator with what it works on, in the process where it runs."""

    def __init__(self, run_dir: str, name: str):
        self._files = RunFiles(Path(run_dir))
        self._name = name

    def run(self) -> e.RunFinished:
        plan = self._files.read_plan()
        context = Context(self._files, read_knowledge_at(Store(store_dir()), plan.ckb_version))
        if not context.state.started:
            context.journal.append(
                e.RunStarted(target=self._name, host=socket.gethostname(), version=version("enginesmith"))
            )
            context.journal.append(e.PlanFrozen(plan=plan.sha256, ckb_version=plan.ckb_version))
        if context.state.plan and context.state.plan.plan != plan.sha256:
            raise UserError(f"{self._files.plan} was changed after it was frozen: its hash is {plan.sha256}")
        budget, state = context.target.budget, context.state
        crew = RayCrew(context.target, self._files.transcripts, budget.usd - state.usd, budget.tokens - state.tokens)
        return Orchestrator(context, crew).run()

    def __repr__(self) -> str:
        return "orchestrator"


class JournalTail:
    """Shows events as they appear in the journal, and the line that says what is being done.

    A look at a journal that has not grown costs next to nothing: the driver must not disturb what is being timed.
    """

    def __init__(self, files: RunFiles):
        self._files = files
        self._state = RunState()
        self._size = 0
        self._shown = 0
        self._note = ""

    def show(self, progress: Progress) -> None:
        journal = self._files.root / "journal"
        size = sum(path.stat().st_size for path in journal.glob("*.jsonl"))
        if size != self._size:
            self._size = size
            events = read_events(self._files.root)
            for event in events[self._shown :]:
                self._state.apply(event)
                progress.on_event(event, self._state)
            self._shown = len(events)
        note = self._files.now.read_text(encoding="utf-8").strip() if self._files.now.exists() else ""
        if note != self._note:
            self._note = note
            progress.note(note)
