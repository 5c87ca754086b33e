"""What decides a criterion: the harness's clock, a command's own word, and what the candidate tried meanwhile."""

import time
from pathlib import Path

import pytest

from ckb.criteria import Criterion
from gpu_actors.benchmark_jobs import Profile
from gpu_actors.blocked import Blocked
from gpu_actors.child import ENGINE, Child
from gpu_actors.criteria import changed_lines, findings
from gpu_actors.engine_process import confinement
from gpu_actors.gates.base import Finding, Subject
from gpu_actors.jobs import EngineJob
from gpu_actors.profiler import Steps, profile
from gpu_actors.reference import Reference
from tests.unit.gpu_actors import tiny

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("criteria")
    tiny.write_checkpoint(folder / "llama", "llama")
    return folder


def criterion(command: str, metric: str = "found", comparison: str = ">", value: float = 0.0) -> Criterion:
    stated = {"part": "activation", "command": command, "metric": metric, "comparison": comparison, "value": value}
    return Criterion.model_validate(stated)


STEP = "        return self.head(self.forward(torch.tensor([token]), cache, position))[0]"
SLEEPS_MS = 50.0
SLOW = f"""        import time
        time.sleep({SLEEPS_MS / 1000})
{STEP}"""
OWN_CLOCK = """        import itertools, sys, types
        ticks = itertools.count()
        clock = types.SimpleNamespace(perf_counter=lambda: next(ticks) * 1e-9)
        for held in [held for name, held in sys.modules.items() if name.startswith("driver.")]:
            vars(held).update({"time": clock} if "time" in vars(held) else {})
"""
STALE = """        hidden = self.forward(torch.tensor([token]), cache, position)
        if position % 2 == 0:
            self.kept = self.head(hidden)[0]
        return self.kept"""


def test_a_step_s_time_is_by_our_clock_and_what_a_call_needs_beside_its_steps_cancels_out(work: Path) -> None:
    """The engine stops every clock of its own process that asks for one by the module's name."""
    tree = tiny.write_engine(work / "slow", "llama", {"model.py": (STEP, OWN_CLOCK + SLOW)})
    found = measured(work, tree)
    assert SLEEPS_MS / 2 < found.step_ms < 4 * SLEEPS_MS, found


def with_context(job: EngineJob, prompt: int, new: int) -> EngineJob:
    workload = job.facts.workload.model_copy(update={"max_prompt": prompt, "max_new": new})
    return job.model_copy(update={"facts": job.facts.model_copy(update={"workload": workload})})


def measured(work: Path, tree: Path) -> Profile:
    """As the profile measures in a context of 16 tokens, whatever its watch tells."""
    job = with_context(tiny.engine_job(tree, work / "llama"), 8, 8)
    with Child(ENGINE, confinement(job, work / "cache")) as child:
        return Steps(job, child, time.monotonic() + 60).measure()


def test_a_step_that_leaves_its_work_out_is_no_faster_one(work: Path) -> None:
    tree = tiny.write_engine(work / "stale", "llama", {"model.py": (STEP, STALE)})
    found = profile(tiny.engine_job(tree, work / "llama"), work / "cache", "c", "profile")
    assert found.failure.startswith("a timed step was wrong: token ")
    assert found.step_ms == 0.0


def test_a_context_without_room_for_steps_is_said(work: Path) -> None:
    tree = tiny.write_engine(work / "short", "llama")
    job = with_context(tiny.engine_job(tree, work / "llama"), 1, 1)
    found = profile(job, work / "cache", "c", "profile")
    assert found.failure == "a context of 2 tokens has no room for two decode steps behind a prompt"


def found_by(
    work: Path, tree: Path, *stated: Criterion, given_s: float = 120.0, left_s: float = 120.0
) -> list[Finding]:
    """What the criteria of one command say of a tree, whose verdict has some seconds left of those it was given."""
    engine = tiny.engine_job(tree, work / "llama")
    with (
        Reference(work / "cache", Path(engine.checkpoint), engine.facts) as reference,
        Child(ENGINE, confinement(engine, work / "cache")) as child,
    ):
        job = tiny.verify_job(engine, criteria=stated, base_dir=str(tree), deadline_s=given_s)
        subject = Subject(job, child, reference, time.monotonic() + left_s, work)
        return findings(subject, stated[0].command, stated, work / "cache")


def rows_of(finding: Finding) -> list[tuple[str, str, str]]:
    return [(row.candidate, row.gate, row.kind) for row in finding.violations]


TRIES = "        try:\n            __import__('transformers')\n        except ImportError:\n            pass\n"


def test_what_a_candidate_tries_while_it_is_profiled_is_a_violation(work: Path) -> None:
    tree = tiny.write_engine(work / "tries", "llama", {"model.py": (STEP, TRIES + STEP)})
    one, other = found_by(work, tree, *[criterion("profile", "step_ms")] * 2)
    assert rows_of(one) == [("c", "activation_of_issue", "runtime")]
    assert "violation: imports transformers" in one.summary
    assert (one.status, other.status, other.violations) == ("FAIL", "FAIL", ()), "its rows are there once"


@pytest.fixture(scope="module")
def probe(work: Path) -> Path:
    """A command that imports what it is given and prints a metric."""
    path = work / "probe.py"
    path.write_text(
        "import json, sys, time\nfrom pathlib import Path\nfolder = Path(sys.argv[-2])\n"
        "sys.path.insert(0, str(folder.parent))\n__import__(folder.name + '.sampler')\ntime.sleep(float(sys.argv[1]))\n"
        "print(json.dumps({'metric': 'found', 'value': 1}))\n"
    )
    return path


def test_what_a_candidate_tries_in_the_process_of_a_command_is_a_violation(work: Path, probe: Path) -> None:
    text = "import torch\n\ntry:\n    __import__('transformers')\nexcept ImportError:\n    pass"
    tree = tiny.write_engine(work / "tries_too", "llama", {"sampler.py": ("import torch", text)})
    (one,) = found_by(work, tree, criterion(f"python {probe} 0"))
    assert (one.status, rows_of(one)) == ("FAIL", [("c", "activation_of_issue", "runtime")]), one


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("python 'probe", '"python \'probe" is no command line: No closing quotation'),
        ("no-such-program at all", "there is no program 'no-such-program' on the PATH"),
        ("   ", "'   ' is no command line: it is empty"),
        ("python a\0b", "is no command line: it holds a NUL character"),
    ],
)
def test_a_command_that_does_not_exist_fails_its_criterion_with_the_words(work: Path, command: str, says: str) -> None:
    tree = work / "plain"
    if not tree.exists():
        tiny.write_engine(tree, "llama")
    (one,) = found_by(work, tree, criterion(command))
    assert one.status == "FAIL"
    assert says in one.summary


def test_time_is_the_hardware_s_fault_only_where_the_verdict_was_given_too_little(work: Path, probe: Path) -> None:
    tree = tiny.write_engine(work / "late", "llama")
    quick, slow = criterion(f"python {probe} 0"), criterion(f"python {probe} 60")
    with pytest.raises(Blocked, match="asks for 60 seconds, available are 59"):
        found_by(work, tree, quick, given_s=59.0)
    assert found_by(work, tree, quick, left_s=50.0)[0].status == "PASS", "what is left is enough"
    for command, left, says in ((quick, 0.0, "its gates left nothing of the 120 s"), (slow, 3.0, "TIMEOUT: ")):
        (late,) = found_by(work, tree, command, left_s=left)
        assert late.status == "FAIL"
        assert says in late.summary


def test_lines_that_are_nearly_equal_are_counted_at_once() -> None:
    """A candidate chooses its lines. What looks for likeness within them takes minutes here."""
    before = [f"value_{n} = some_function(argument_{n}, other={n})" for n in range(1200)]
    start = time.process_time()
    assert changed_lines(before, [line.replace("value", "valve") for line in before]) == 2400
    assert time.process_time() - start < 2
