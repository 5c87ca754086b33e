"""Starts a run, or takes one over: what `generate` and `resume` do.

The driver starts or joins Ray, makes the orchestrator an actor, and shows what the journal says until it ends. The
driver decides nothing: killed at any moment, the next one reads the journal and goes on.
"""

import socket
from importlib.metadata import version
from pathlib import Path

import ray
from ray.exceptions import RayActorError

from ckb.build import read_knowledge_at
from ckb.checkpoint import read_checkpoint
from ckb.errors import UserError
from ckb.schemas import ModelFamily
from ckb.store import Store
from gpu_actors.device import Device
from swarm import events as e
from swarm.cluster import cluster
from swarm.context import Context, RunFiles, asked
from swarm.crew import RayCrew, get
from swarm.journal import read_events
from swarm.journal_table import write_table
from swarm.limits import Limits
from swarm.operators import try_here
from swarm.orchestrator import Orchestrator
from swarm.paths import new_run_dir, store_dir
from swarm.plan import Plan, headers_sha256
from swarm.platform import detect
from swarm.progress import Progress
from swarm.report import write_report
from swarm.shell import need_commands
from swarm.state import RunState
from swarm.target import Target

POLL_S = 0.3


def generate(target: Target, name: str, plan: Plan, run_dir: Path | None = None) -> e.RunFinished:
    """A new run of a Target whose plan has been made. Raises UserError for what the user must mend."""
    need_commands(target)
    files = RunFiles((run_dir or new_run_dir(name)).absolute())
    files.write(name, target, plan)
    return drive(files)


def resume(run_dir: Path, device: type[Device] = Device) -> e.RunFinished:
    """Goes on with a run whose driver ended, however it ended. `device`: what its device actor is made of."""
    files = RunFiles(run_dir.absolute())
    check_unchanged(files)
    need_commands(files.read_target())
    return drive(files, device)


def check_unchanged(files: RunFiles) -> None:
    """Raises UserError when the run would go on with something else than it was planned for."""
    identity, target, plan = files.read_identity(), files.read_target(), files.read_plan()
    if plan.sha256 != identity.plan:
        raise UserError(f"{files.plan} was changed after it was frozen (hash {plan.sha256}, frozen {identity.plan})")
    if identity.asked not in (asked(target), files.asked_as_written()):
        raise UserError(
            f"{files.target} was changed in more than its budget since the run began: restore it, or start a new run"
        )
    families = Store(store_dir()).rows(ModelFamily, plan.ckb_version)
    if headers_sha256(read_checkpoint(target.checkpoint, families)) != plan.checkpoint:
        raise UserError(f"model.path: {target.checkpoint} is not the checkpoint that the run was planned for")
    here = detect(target.hardware.accelerator, target.hardware.count)
    planned = plan.facts.platform
    if (here.name, here.cores, here.isa) != (planned.name, planned.cores, planned.isa):
        raise UserError(
            f"the run was planned for {planned.name} with {planned.cores} core(s), and this is {here.name} with "
            f"{here.cores}: resume it there, or start a new run here"
        )
    tried = try_here(planned.operators, here, target.sandbox) if planned.operators else ()
    if lost := [o for o in tried if o.name in planned.operators and o.state != "usable"]:
        words = "; ".join(f"{operator.name} is {operator.words}" for operator in lost)
        raise UserError(
            f"the run was planned with operators that are not usable now: {words}. Mend that (`enginesmith doctor "
            "--probe` tries them again), or start a new run"
        )


def drive(files: RunFiles, device: type[Device] = Device) -> e.RunFinished:
    """Everything that needs Ray."""
    target = files.read_target()
    with Progress(Limits(target.budget, files.limits)) as progress, cluster(target):
        actor = ray.remote(num_cpus=0, max_concurrency=1)(OrchestratorProcess).remote(str(files.root), device)
        outcome = actor.run.remote()
        tail = JournalTail(files)
        while not ray.wait([outcome], timeout=POLL_S)[0]:
            tail.show(progress)
        tail.show(progress)
        try:
            finished: e.RunFinished = get(outcome)
        except RayActorError as error:
            raise UserError(
                f"the orchestrator's process ended ({error.__class__.__name__}: out of memory, or killed). Nothing is "
                f"lost: go on with `enginesmith resume {files.root}`"
            ) from error
    write_table(files.root)
    write_report(files.root)
    return finished


class OrchestratorProcess:
    """The orchestrator with what it works on, in the process where it runs."""

    def __init__(self, run_dir: str, device: type[Device]):
        self._files = RunFiles(Path(run_dir))
        self._device = device

    def run(self) -> e.RunFinished:
        identity, plan = self._files.read_identity(), self._files.read_plan()
        context = Context(self._files, read_knowledge_at(Store(store_dir()), plan.ckb_version))
        if not context.state.started:
            host, own = socket.gethostname(), version("enginesmith")
            context.journal.append(e.RunStarted(run=identity.id, target=identity.target, host=host, version=own))
        if not context.state.plan:
            context.journal.append(e.PlanFrozen(plan=plan.sha256, ckb_version=plan.ckb_version))
        files = self._files
        crew = RayCrew(context.target, plan, files, self._device)
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
        self._seen = ""

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
        if note != self._note and note == self._seen:  # twice in a row: events may have outdated it already
            self._note = note
            progress.note(note)
        self._seen = note
