"""A run without Ray and without tensors: real plan, composer, reviewer, git, journal, policy, merge queue and store.

Only the device is a stand-in: every tree passes its gates, and what a benchmark finds is a pure function of the tree.
"""

import itertools
import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.roofline.floor import Machine
from ckb.build import ensure_store, read_knowledge_at
from ckb.consolidate import Consolidation, Consolidator, Lessons
from ckb.facts import PlatformFacts
from ckb.store import Store
from gpu_actors.benchmark_jobs import ArmResult, Benchmark, BenchmarkJob, Profile, Row
from gpu_actors.blocked import Blocked
from gpu_actors.jobs import EngineJob, EvidenceFile, GateResult, Shortage, Verdict, VerifyJob
from roles.author import Answer, AnyBrief, NoAnswer, Usage
from roles.authors.composer import Composer
from roles.briefs import ImplementerAnswer, ImplementerBrief
from roles.settings import SingleAuthor
from swarm import events as e
from swarm.context import Context, RunFiles
from swarm.orchestrator import Orchestrator
from swarm.plan import make_plan
from swarm.target import Target, parse_target
from tests.unit.ckb.samples import FACTS, write_checkpoint

PLATFORM = FACTS.platform.model_copy(update={"accelerator": "cpu", "compiler": "c++", "isa": ("avx2", "fma")})


def measure(platform: PlatformFacts) -> Machine:
    return Machine(read_gb_s=10.0, peak_gflop_s=100.0)


class Rehearsal:
    """A crew (swarm.crew.Crew) whose device is a function of the tree's hash."""

    def __init__(
        self,
        store: Path,
        busy: int = 0,
        failing: bool = False,
        short: Callable[[VerifyJob], bool] = lambda _: False,
    ):
        """`busy`: how many benchmarks of several engines find a busy machine first. `failing`: of the implementers of
        each stage the second never answers, and the third misses a contract. `short`: which verdicts need more memory
        than there is."""
        self.asked: list[VerifyJob] = []
        self._short = short
        self._busy = busy
        self._failing = failing
        self._author = Composer()
        self._lock = threading.Lock()  # CPython 3.11 parses source in one thread at a time; role workers are processes
        self._consolidator = Consolidator(store)

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        if self._failing and isinstance(brief, ImplementerBrief) and not brief.change:
            if brief.seed == 1:
                raise NoAnswer("it broke the format 3 times", Usage(author="litellm"))
            if brief.seed == 2:
                gap = ImplementerAnswer(files={}, summary="blocked", missing_contract="paged-cache")
                return gap, Usage(author="litellm")
        with self._lock:
            return self._author.answer(brief)

    def verify(self, job: VerifyJob) -> Verdict:
        self.asked.append(job)
        named = {"gate": "g", "contract": "c", "seconds": 0.0}
        evidence = (EvidenceFile(sha256="0" * 64, what="rehearsal"),)
        gates = tuple(
            GateResult(level=level, status="PASS", summary="rehearsed", evidence=evidence, **named)
            for level in job.levels
        )
        if self._short(job):
            lacking = Shortage(asked=2e9, available=1e9, unit="bytes")
            held = {"status": "BLOCKED_BY_HARDWARE", "summary": str(Blocked("g", lacking)), "blocked": lacking}
            gates = (*gates[:-1], GateResult(level=job.levels[-1], evidence=evidence, **named, **held))
        acceptance = job.acceptance if "L3" in job.levels else "none"
        return Verdict(
            candidate=job.candidate,
            tree=job.engine.tree,
            stages=job.stages,
            levels=job.levels,
            acceptance=acceptance,
            gates=gates,
            sandbox="none",
            device_seconds=10.0,
        )

    def benchmark(self, job: BenchmarkJob) -> Benchmark:
        busy = len(job.arms) > 2 and self._busy > 0
        self._busy -= busy
        turns = itertools.product(range(job.shown + 3), job.scenarios, job.arms)
        rows = [
            self._row(arm.name, arm.engine.tree if arm.engine else "", scenario, repeat, order)
            for order, (repeat, scenario, arm) in enumerate(turns)
        ]
        rows = [row.model_copy(update={"shown": row.repeat < job.shown}) for row in rows]
        if busy:
            rows = [row.model_copy(update={"void": "40% foreign", "busy": True}) for row in rows]
        return Benchmark(
            rows=tuple(rows),
            arms=tuple(ArmResult(arm=arm.name, status="OK", load_s=1.0, peak_rss_bytes=1) for arm in job.arms),
            read_gb_s=10.0,
            repeats=3,
            shown=job.shown,
            warmup=1,
            prompts="none",
            device="rehearsal",
            seconds=1.0,
        )

    def _row(self, arm: str, tree: str, scenario: object, repeat: int, order: int) -> Row:
        tpot = (20 + int(tree[8:12], 16) / 65536 * 20 if tree else 80.0) * (1 + 0.001 * repeat)
        return Row(
            arm=arm,
            prompt_tokens=scenario.prompt_tokens,  # type: ignore[attr-defined]
            new_tokens=scenario.new_tokens,  # type: ignore[attr-defined]
            repeat=repeat,
            group=repeat,
            order=order,
            ttft_ms=5.0,
            tpot_ms=tpot,
            latency_ms=5.0 + tpot * 7,
            decode_tok_s=1000 / tpot,
            foreign_cpu=0.0,
        )

    def profile(self, job: EngineJob) -> Profile:
        return Profile(shares={"linear": 0.7, "attention": 0.2, "rest": 0.1}, step_ms=30.0)

    def consolidate(self, lessons: Lessons) -> Consolidation:
        return self._consolidator.consolidate(lessons)


@cache
def seeded() -> tempfile.TemporaryDirectory[str]:
    """A store of the seed, made once in a process: reading its files takes as long as many a run here."""
    folder = tempfile.TemporaryDirectory()
    ensure_store(Path(folder.name))
    return folder


def store_at(home: Path) -> Store:
    """The store of ENGINESMITH_HOME, a copy of the seed's at first."""
    if not (home / "store").exists():
        shutil.copytree(seeded().name, home / "store")
    return Store(home / "store")


def target(
    home: Path,
    authors: dict[str, object] | None = None,
    *,
    policy: str = "",
    rounds: int = 2,
    parallel: int = 3,
    **budget: Any,
) -> Target:
    (home / "models").mkdir()
    write_checkpoint(home / "models" / "tiny")
    return parse_target(
        {
            "model": {"path": "models/tiny"},
            "workload": {"prompt_tokens": [4], "new_tokens": [8]},
            "search": {"parallel": parallel, "rounds": rounds} | ({"policy": policy} if policy else {}),
            "budget": budget,
            "authors": authors or {"default": "composer"},
        },
        "t.yaml",
    )


def prepare(home: Path, authors: dict[str, object] | None = None, **asked_for: Any) -> RunFiles:
    """A run that is planned and not started, with what `target` takes. ENGINESMITH_HOME is `home`."""
    asked = target(home, authors, **asked_for)
    files = RunFiles(home / "runs" / "rehearsal")
    files.write("tiny", asked, make_plan(asked, store_at(home), PLATFORM, measure))
    return files


def rehearse(home: Path, files: RunFiles, crew: Rehearsal | None = None) -> Context:
    """Goes through the run, or through what is left of it."""
    context = Context(files, read_knowledge_at(store_at(home), files.read_plan().ckb_version))
    if not context.state.started:
        identity = files.read_identity()
        context.journal.append(e.RunStarted(run=identity.id, target=identity.target, host="here", version="0"))
    Orchestrator(context, crew or Rehearsal(home / "store")).run()
    return context


def outcome(context: Context) -> str:
    """What must not depend on interruptions, as text: issues, trees, decisions, merges, the released tree."""
    state = context.state
    return json.dumps(
        {
            "issues": {name: i.closed and i.closed.outcome for name, i in sorted(state.issues.items())},
            "trees": {name: c.submitted.tree for name, c in sorted(state.candidates.items())},
            "decisions": {
                name: c.decided and (c.decided.decision, c.decided.reason)
                for name, c in sorted(state.candidates.items())
            },
            "merges": [(m.candidate, m.tree, m.choices) for m in state.merges],
            "rounds": [(r.round, r.stop) for r in state.rounds],
            "released": state.released and state.released.tree,
            "finished": state.finished and state.finished.outcome,
        },
        indent=1,
    )
