"""The tests of a stage for its implementer (roles.tools.public_tests): the verifier's own gates, on draws of their own.

What comes back is what an implementer is told of a failed verdict too. No draw of a verdict can be read off: the seeds
are made for this one purpose, and the evidence files are thrown away.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ckb.hashing import tree_sha256
from ckb.records import STAGES, Choice
from gpu_actors.jobs import DEADLINE_S, EngineJob, Level, Verdict, VerifyJob
from roles.briefs import Evidence, ImplementerBrief
from roles.tools.public_tests import Tried
from swarm.context import owed
from swarm.plan import Plan
from swarm.target import Target

LEVELS: tuple[Level, ...] = ("L0", "L1", "L2")
"""The acceptance is not public."""


class Judge(Protocol):
    """What runs gates: a device, or a handle of one."""

    def verify(self, job: VerifyJob) -> Verdict: ...


class StageTests:
    """Runs the gates of a brief's stages on a tree that was not handed in yet."""

    def __init__(self, target: Target, plan: Plan, judge: Judge, folder: Path):
        """`folder`: where the device can read the trees."""
        self._target = target
        self._plan = plan
        self._judge = judge
        self._folder = folder

    def run(
        self, brief: ImplementerBrief, files: Mapping[str, str], choices: Mapping[str, Choice], number: int
    ) -> Tried:
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            tree, evidence = Path(place) / "tree", Path(place) / "evidence"
            for folder in (tree, evidence):
                folder.mkdir()
            for name, text in files.items():
                (tree / name).write_text(text, encoding="utf-8")
            return tried(self._judge.verify(self._job(brief, choices, number, tree, evidence)))

    def _job(
        self, brief: ImplementerBrief, choices: Mapping[str, Choice], number: int, tree: Path, evidence: Path
    ) -> VerifyJob:
        stages = STAGES[: STAGES.index(brief.stage) + 1]
        return VerifyJob(
            candidate=f"{brief.issue}/{brief.seed}",
            engine=EngineJob(
                tree=tree_sha256(tree),
                tree_dir=str(tree),
                checkpoint=str(self._target.checkpoint),
                facts=brief.facts,
                operators=brief.operators,
                sandbox=self._target.sandbox,
                max_memory_bytes=self._plan.max_memory_bytes,
            ),
            stages=stages,
            levels=LEVELS,
            contracts=tuple(contract.id for contract in brief.contracts),
            rows=owed(brief.contracts, brief.facts, choices),
            choices=dict(choices),
            ckb_version=self._plan.ckb_version,
            deadline_s=DEADLINE_S["screen"],
            seed=self._plan.seed_of("public tests", brief.issue, str(brief.seed), str(number)),
            evidence_dir=str(evidence),
        )


def tried(verdict: Verdict) -> Tried:
    """What an author may know of it."""
    return Tried(
        passed=tuple(gate.gate for gate in verdict.gates if gate.status == "PASS"),
        failures=tuple(
            Evidence(gate=gate.gate, contract=gate.contract, summary=gate.summary) for gate in verdict.failures
        ),
        blocked=tuple(f"{gate.gate}: {gate.summary}" for gate in verdict.blocked),
        device_seconds=verdict.device_seconds,
    )
