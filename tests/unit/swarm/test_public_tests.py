"""The tests that an author may run: the gates of its stage, draws of their own, and nothing left of them."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from ray.exceptions import RayActorError

from ckb.hashing import tree_sha256
from gpu_actors.jobs import Verdict, VerifyJob
from roles.author import Answer, AnyBrief, Usage
from roles.briefs import ImplementerBrief
from roles.settings import SingleAuthor
from swarm.context import RunFiles
from swarm.crew import RemoteTests
from swarm.public_tests import StageTests, tried
from tests.unit.swarm.rehearsal import Rehearsal, prepare, rehearse


class Looking(Rehearsal):
    """A device that keeps what it was asked, the files that were there meanwhile, and leaves evidence."""

    def __init__(self, store: Path, short: bool = False):
        super().__init__(store, short=lambda _: short)
        self.seen: list[dict[str, str]] = []

    def verify(self, job: VerifyJob) -> Verdict:
        tree = Path(job.engine.tree_dir)
        assert tree_sha256(tree) == job.engine.tree
        self.seen.append({path.name: path.read_text() for path in tree.iterdir()})
        (Path(job.evidence_dir) / "draws.json").write_text("[1]")
        return super().verify(job)


@dataclass(frozen=True)
class Run:
    """A whole run: its files, the verdicts that were asked for, and the briefs of its implementers."""

    files: RunFiles
    asked: list[VerifyJob]
    briefs: list[ImplementerBrief]

    def tests(self, judge: Looking, place: Path) -> StageTests:
        return StageTests(self.files.read_target(), self.files.read_plan(), judge, place)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    briefs: list[ImplementerBrief] = []

    class Told(Rehearsal):
        def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
            briefs.extend([brief] if isinstance(brief, ImplementerBrief) else [])
            return super().answer(brief, author)

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("run")
        patch.setenv("ENGINESMITH_HOME", str(folder))
        files = prepare(folder)
        crew = Told(folder / "store")
        rehearse(folder, files, crew)
    return Run(files, crew.asked, briefs)


def test_a_stages_tests_are_its_gates_without_the_acceptance(run: Run, tmp_path: Path) -> None:
    judge = Looking(tmp_path / "store")
    brief = next(brief for brief in run.briefs if brief.stage == "model")
    files = {"kernels.py": "x = 1\n", "model.py": "y = 2\n"}
    found = run.tests(judge, tmp_path / "trials").run(brief, files, {"BLOCK": 8}, 0)
    [job] = judge.asked
    assert (job.stages, job.levels) == (("execution", "model"), ("L0", "L1", "L2"))
    verdict = next(other for other in run.asked if other.stages == job.stages)
    assert job.contracts == verdict.contracts
    assert job.engine.max_memory_bytes == verdict.engine.max_memory_bytes
    assert Path(job.engine.checkpoint).name == "tiny"
    assert (job.choices, job.ckb_version) == ({"BLOCK": 8}, verdict.ckb_version)
    assert judge.seen == [files]
    assert (len(found.passed), found.failures, found.device_seconds) == (3, (), 10.0)


def test_no_draw_of_a_verdict_is_ever_drawn_and_no_evidence_stays(run: Run, tmp_path: Path) -> None:
    judge = Looking(tmp_path / "store")
    tests = run.tests(judge, tmp_path / "trials")
    for brief in run.briefs:
        for number in range(3):
            tests.run(brief, {"kernels.py": "x = 1\n"}, {}, number)
    own = {job.seed for job in judge.asked}
    assert len(own) == 3 * len({(brief.issue, brief.seed) for brief in run.briefs}), "each run has other draws"
    assert own.isdisjoint(job.seed for job in run.asked)
    assert list((tmp_path / "trials").iterdir()) == []


def test_a_device_whose_process_ended_costs_the_answer_of_one_test_and_no_more(run: Run, tmp_path: Path) -> None:
    class Gone:
        @property
        def verify(self) -> "Gone":
            return self

        def remote(self, job: VerifyJob) -> None:
            raise RayActorError

    tests = RemoteTests(run.files.read_target(), run.files.read_plan(), Gone(), tmp_path / "trials")
    found = tests.run(run.briefs[0], {"kernels.py": "x = 1\n"}, {}, 0)
    assert (found.passed, found.failures, len(found.blocked)) == ((), (), 1)
    assert "nothing was found out" in found.blocked[0]


def test_what_could_not_be_asked_is_told_apart_from_what_failed(run: Run, tmp_path: Path) -> None:
    judge = Looking(tmp_path / "store", short=True)
    found = tried(Rehearsal.verify(judge, run.asked[0]))
    assert found.failures == ()
    assert found.blocked[0].startswith("g: ")
