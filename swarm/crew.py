"""The hands of the orchestrator: role workers, a device, a consolidator, and the one process that calls providers.

All of them are plain classes; `RayCrew` makes them actors, here, where the resources are decided. An actor that dies is
made anew and its call is made once more: no call of theirs leaves anything behind that a second one would double.
"""

import errno
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import ray
from ray.exceptions import RayActorError, RayTaskError

from ckb.consolidate import Consolidation, Consolidator, Lessons
from ckb.errors import UserError
from ckb.records import Choice
from ckb.search import Search
from ckb.store import Store
from gpu_actors.benchmark_jobs import Benchmark, BenchmarkJob, Profile
from gpu_actors.device import Device
from gpu_actors.jobs import EngineJob, Verdict, VerifyJob
from roles.author import Answer, AnyBrief, Author, NoAnswer, Usage
from roles.authors.factory import make_author
from roles.authors.gateway import LitellmGateway
from roles.briefs import ImplementerBrief, RoleName
from roles.budget import ForIssue
from roles.completion import CompletionReply, CompletionRequest, Price
from roles.desk import Means
from roles.settings import (
    CliSettings,
    EnsembleSettings,
    LitellmSettings,
    ReplaySettings,
    SingleAuthor,
    settings_for,
    singles,
)
from roles.tools.public_tests import PublicTests, Tried
from roles.transcript import Transcript
from swarm.cluster import device_options
from swarm.context import RunFiles
from swarm.limits import Limits
from swarm.paths import cache_dir, disk_full, home, store_dir
from swarm.plan import Plan
from swarm.public_tests import StageTests
from swarm.shell import ConfinedShell
from swarm.spending import Purse, Spending
from swarm.target import Budget, Target

Result = TypeVar("Result")
VERDICTS_OF_A_GPU = 2
"""At a time: while one engine loads or compiles the other computes."""


def verdicts_at_once(target: Target, plan: Plan) -> int:
    """How many verdicts a device works on at a time. On a CPU as many as there are implementers, if memory holds each
    at its limit: half of a verdict is one thread starting up or compiling. Timing waits until it is alone
    (gpu_actors.lease)."""
    if target.hardware.accelerator != "cpu":
        return VERDICTS_OF_A_GPU
    return max(1, min(target.search.parallel, plan.facts.platform.memory_bytes // plan.max_memory_bytes))


class Crew(Protocol):
    """What the orchestrator can have done."""

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]: ...
    def verify(self, job: VerifyJob) -> Verdict: ...
    def benchmark(self, job: BenchmarkJob) -> Benchmark: ...
    def profile(self, job: EngineJob) -> Profile: ...
    def consolidate(self, lessons: Lessons) -> Consolidation: ...


class RemotePurse:
    """A handle of the process that calls providers, with the methods of a gateway and a budget."""

    def __init__(self, actor: Any):
        self._actor = actor

    def complete(self, request: CompletionRequest) -> CompletionReply:
        reply: CompletionReply = get(self._actor.complete.remote(request))
        return reply

    def price(self, model: str) -> Price | None:
        price: Price | None = get(self._actor.price.remote(model))
        return price

    def reserve(self, usd: float, tokens: int, issue: str = "") -> str:
        reservation: str = get(self._actor.reserve.remote(usd, tokens, issue))
        return reservation

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        get(self._actor.settle.remote(reservation, usd, tokens))


class RoleWorker:
    """Answers the briefs of every role that one author answers for."""

    def __init__(
        self,
        author: SingleAuthor,
        transcripts: str,
        purse: RemotePurse | Purse | None,
        ckb_version: int,
        tests: PublicTests | None = None,
        sandbox: Literal["auto", "none"] = "auto",
    ):
        """`ckb_version`: what the run is pinned to, and so all that its authors can look up. `tests`: what runs the
        public tests. `sandbox`: how a command is confined."""
        self._config = author
        self._tests = tests
        self._sandbox = sandbox
        self._ckb_version = ckb_version
        self._transcripts = Path(transcripts)
        self._purse = purse
        self._budget = ForIssue(purse or Spending(Limits(Budget())))
        self._authors: dict[RoleName, Author] = {}

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        self._budget.issue = brief.issue if isinstance(brief, ImplementerBrief) else ""
        if brief.role not in self._authors:
            self._authors[brief.role] = make_author(
                self._config,
                gateway=self._purse,
                budget=self._budget,
                transcript=Transcript(self._transcripts / f"{brief.role}.jsonl"),
                home=home(),
                means=self._means,
                shell=ConfinedShell(self._sandbox),
            )
        return self._authors[brief.role].answer(brief)

    @cached_property
    def _means(self) -> Means | None:
        """One library for all roles of the worker. The other authors know nothing but their briefs."""
        if not isinstance(self._config, LitellmSettings):
            return None
        return Means(Search(Store(store_dir()), self._ckb_version), self._tests, self._config.test_runs)

    def __repr__(self) -> str:
        return f"author {self._config.kind}"


class RemoteTests:
    """The public tests, on a device that is an actor."""

    def __init__(self, target: Target, plan: Plan, device: Any, folder: Path):
        self._device = device
        self._tests = StageTests(target, plan, self, folder)

    def run(
        self, brief: ImplementerBrief, files: Mapping[str, str], choices: Mapping[str, Choice], number: int
    ) -> Tried:
        try:
            return self._tests.run(brief, files, choices, number)
        except RayActorError:  # the next worker gets the next device; this conversation goes on without
            return Tried(passed=(), failures=(), blocked=("the device's process ended, so nothing was found out",))

    def verify(self, job: VerifyJob) -> Verdict:
        verdict: Verdict = get(self._device.verify.remote(job))
        return verdict


class RayCrew:
    """The crew as Ray actors; they end with the orchestrator that made them."""

    def __init__(self, target: Target, plan: Plan, files: RunFiles, device: type[Device] = Device):
        """`device`: what the device actor is made of."""
        self._target = target
        self._at_once = verdicts_at_once(target, plan)
        self._plan = plan
        self._trials = files.root / "trials"
        self._ckb_version = plan.ckb_version
        self._transcripts = str(files.transcripts)
        self._now = files.now
        self._purse = None
        kinds = {type(author) for author in singles(target.authors.values())}
        if kinds & {LitellmSettings, CliSettings}:
            provider = ray.remote(num_cpus=0, max_concurrency=64)(ProviderProcess)
            limits = Limits(target.budget, files.limits)
            self._purse = RemotePurse(provider.remote(limits, str(files.ledger), LitellmSettings in kinds))
        self._lock = threading.Lock()
        self._free: dict[SingleAuthor, list[Any]] = {}
        """Role workers that wait for a brief."""
        self._replaying: dict[SingleAuthor, Any] = {}
        self._device_class = device
        self._device = self._make_device()

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        """One brief, answered by a free worker of an author."""
        worker = self._take(author)

        def anew() -> Any:
            nonlocal worker
            worker = self._make_worker(author)
            return get(worker.answer.remote(brief))

        try:
            answered: tuple[Answer, Usage] = once_more(lambda: get(worker.answer.remote(brief)), anew)
            return answered
        finally:
            if not isinstance(author, ReplaySettings):
                with self._lock:
                    self._free[author].append(worker)

    def verify(self, job: VerifyJob) -> Verdict:
        verdict: Verdict = self._on_device(lambda device: device.verify.remote(job))
        return verdict

    def benchmark(self, job: BenchmarkJob) -> Benchmark:
        self._retire()
        benchmark: Benchmark = self._on_device(lambda device: device.benchmark.remote(job))
        self._start_one()  # somebody is going to be asked what to make of it
        return benchmark

    def profile(self, job: EngineJob) -> Profile:
        profile: Profile = self._on_device(lambda device: device.profile.remote(job))
        return profile

    def consolidate(self, lessons: Lessons) -> Consolidation:
        consolidator = ray.remote(num_cpus=0)(Consolidator).remote(store_dir())
        consolidation: Consolidation = get(consolidator.consolidate.remote(lessons))
        return consolidation

    def _on_device(self, call: Callable[[Any], Any]) -> Any:
        device = self._device
        try:
            return get(call(device))
        except RayActorError:
            with self._lock:  # of several calls that lost the same device, one makes the new one
                if self._device is device:
                    self._device = self._make_device()
            return get(call(self._device))

    def _make_device(self) -> Any:
        options = device_options(self._target) | {"max_concurrency": self._at_once}
        accelerator = self._target.hardware.accelerator
        return ray.remote(**options)(self._device_class).remote(accelerator, str(cache_dir()), now=self._now)

    def _take(self, author: SingleAuthor) -> Any:
        """A free worker of one author, or a new one: there are as many as have been needed at once. A replay has a
        single one, which is never ended: it knows which of the recorded answers it has given."""
        with self._lock:
            if isinstance(author, ReplaySettings):
                if author not in self._replaying:
                    self._replaying[author] = self._make_worker(author)
                return self._replaying[author]
            free = self._free.setdefault(author, [])
            return free.pop() if free else self._make_worker(author)

    def _make_worker(self, author: SingleAuthor) -> Any:
        tests = None
        if isinstance(author, LitellmSettings) and author.test_runs:
            tests = RemoteTests(self._target, self._plan, self._device, self._trials)
        return ray.remote(num_cpus=0)(RoleWorker).remote(
            author, self._transcripts, self._purse, self._ckb_version, tests, self._target.sandbox
        )

    def _start_one(self) -> None:
        """A worker of the default author, which starts beside what comes next."""
        author = settings_for(self._target.authors, "judge")
        if isinstance(author, ReplaySettings | EnsembleSettings):
            return
        with self._lock:
            self._free.setdefault(author, []).append(self._make_worker(author))

    def _retire(self) -> None:
        """Ends the role workers, none of which is at work when engines are timed: the main thread of an idle Ray
        worker wakes a hundred times a second and takes 1% of a core, and nine of them spoiled every timing on two
        cores. The next brief starts new ones."""
        with self._lock:
            for worker in (worker for free in self._free.values() for worker in free):
                ray.kill(worker)
            self._free.clear()


class ProviderProcess(Purse):
    """The process that keeps the money, and imports litellm where a model is called."""

    def __init__(self, limits: Limits, ledger: str, models: bool):
        super().__init__(LitellmGateway() if models else None, limits, Path(ledger))


def once_more(ask: Callable[[], Result], anew: Callable[[], Result]) -> Result:
    """What a worker answers, or, where its process ended, what a new one does. Raises NoAnswer when that ended too: a
    brief that kills its workers costs its own attempt and nothing else."""
    try:
        return ask()
    except RayActorError:
        try:
            return anew()
        except RayActorError as error:
            raise NoAnswer(
                f"the author's process ended twice ({type(error).__name__}: killed, or out of memory)"
            ) from error


def get(reference: Any) -> Any:
    """The result of a remote call; what the user can mend arrives as itself, without Ray's wrapping."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        if isinstance(error.cause, OSError) and error.cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(disk_full(home())) from None
        raise
