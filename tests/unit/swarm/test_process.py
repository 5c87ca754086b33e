"""The figures of a run's process, from its journal and its git repository."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from roles.author import Usage
from roles.briefs import RoleName
from swarm import events as e
from swarm.journal import Journal, state_of
from swarm.process import Process, overlap, process_of
from swarm.report.words import duration
from swarm.tables import process_lines, process_tables
from swarm.workspace import Workspace


def called(role: RoleName, ends: float, seconds: float, **usage: object) -> e.RoleCalled:
    told = {"author": "litellm", "seconds": seconds, "prompt_tokens": 100, "completion_tokens": 20} | usage
    return e.RoleCalled(role=role, usage=Usage.model_validate(told), at=ends)


def submitted(attempt: int, commit: str, base: str) -> list[e.AnyEvent]:
    issue = e.Issue(id="s1", stage="execution", title="t", base=base)
    tree = e.CandidateSubmitted(candidate="s1-c0", issue="s1", attempt=attempt, branch="b", commit=commit, tree="t",
                                author="litellm", choices={}, summary="s", lines=3)  # fmt: skip
    return [e.IssueOpened(issue=issue), tree] if attempt == 1 else [tree]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of one candidate with two attempts, a reviewer beside it, and no engine yet."""
    workspace = Workspace(tmp_path)
    base = workspace.tip()
    first = workspace.commit("candidate/s1-c0", base, {"a.py": "one\ntwo\nthree\n"}, "m").commit
    second = workspace.commit("candidate/s1-c0", base, {"a.py": "one\n2\nthree\nfour\n"}, "m").commit
    workspace.close()
    moments = iter([0.0, 0.0, 100.0, 100.0, 130.0, 160.0, 160.0, 170.0, 170.0])
    journal = Journal(tmp_path, clock=lambda: next(moments))
    opened, tree = submitted(1, first, base)
    for event in (
        e.RunStarted(run="r", target="t", host="h", version="0"),
        opened,
        called("implementer", 100, 100, calls=4, tools={"write_file": 3, "edit_file": 2, "submit": 1}, usd=0.5),
        tree,
        called("reviewer", 130, 20, tools={"read_file": 2}, usd=0.1),
        called("implementer", 160, 50, tools={"edit_file": 1}, usd=None, prompt_tokens=None, outside=("/etc/passwd",)),
        *submitted(2, second, base),
        e.DeviceUsed(what="verify", seconds=12.0),
        e.DeviceUsed(what="verify", seconds=3.0),
    ):
        journal.append(event)
    return tmp_path


def test_everything_of_the_papers_table_is_counted_by_role_and_as_a_whole(run: Path) -> None:
    found = process_of("r", state_of(run), run)
    assert (found.agents, found.messages, found.edits, found.tokens) == (3, 6, 6, 260)
    assert found.tools == {"write_file": 3, "edit_file": 3, "read_file": 2, "submit": 1}
    assert (found.usd, found.unknown) == (0.6, 1)
    assert (found.candidates, found.attempts, found.merged, found.violations, found.engines) == (1, 2, 0, 0, 0)
    assert (found.lines_added, found.lines_deleted) == (3 + 2, 1), "a second attempt against the first"
    assert found.build_s == 170.0
    implementer, reviewer = found.roles
    assert (implementer.agents, implementer.active_s, implementer.per_agent_s) == (2, 150.0, 75.0)
    assert (implementer.share, reviewer.share) == (150 / 170, 20 / 170)
    assert (implementer.outside, reviewer.outside) == (1, 0)
    assert [(one.what, one.times, one.device_s) for one in found.code] == [("verify", 2, 15.0)]
    assert found.per_engine(found.usd) is None
    assert Process.model_validate_json(found.model_dump_json()) == found


def test_conversations_side_by_side_overlap_and_those_in_turn_do_not() -> None:
    beside = [called("implementer", 10, 10), called("implementer", 10, 10), called("reviewer", 15, 10)]
    assert overlap(beside) == 30 / 15
    assert overlap([called("implementer", 10, 10), called("implementer", 25, 5)]) == 1.0
    assert overlap([called("judge", 3, 0.0)]) == 1.0, "of nothing"


def test_what_is_shown_says_what_nobody_told_and_that_no_engine_was_accepted(run: Path) -> None:
    found = process_of("r", state_of(run), run)
    text = "\n".join(process_lines(found))
    assert "tokens: 260, cost $0.60 (of 1 conversations nobody told)" in text
    assert "agents: 3, messages 6, overlap factor 1.13" in text
    assert "per accepted engine: no engine was accepted" in text
    assert "per accepted engine: 2 min 50 s, 260 tokens, $0.60" in process_lines(
        found.model_copy(update={"engines": 1})
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(*process_tables(found))
    shown = console.export_text()
    assert "implementer  2       5         2 min 30 s  88%    1 min 15 s  1.00" in shown
    assert "verify   2      15 s" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (0.000095, "0.095 ms"), (0.068, "68 ms"), (0.25, "0.25 s"), (75.0, "1 min 15 s")],
)
def test_a_moment_is_no_power_of_ten(seconds: float, text: str) -> None:
    assert duration(seconds) == text
