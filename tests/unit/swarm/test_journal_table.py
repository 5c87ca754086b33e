"""The journal as an Arrow table."""

from pathlib import Path

import pyarrow as pa

from roles.author import Usage
from swarm import events as e
from swarm.journal import Journal, read_events
from swarm.journal_table import SCHEMA, write_table


def test_every_event_has_a_row_with_what_it_says_and_nulls_for_the_rest(tmp_path: Path) -> None:
    moments = iter(range(100))
    journal = Journal(tmp_path, clock=lambda: 1e9 + next(moments))
    issue = e.Issue(id="s1", stage="execution", title="t", base="b")
    tree = e.CandidateSubmitted(candidate="s1-c0", issue="s1", attempt=1, branch="b", commit="abc", tree="t",
                                author="litellm", choices={}, summary="s", lines=3)  # fmt: skip
    usage = Usage(author="litellm", model="m", prompt_tokens=100, completion_tokens=20, usd=0.5, seconds=9,
                  tools={"write_file": 2, "read_file": 3, "edit_file": 1})  # fmt: skip
    for event in (
        e.RunStarted(run="r1", target="t", host="h", version="0"),
        e.IssueOpened(issue=issue),
        e.RoleCalled(role="implementer", usage=usage, issue="s1", candidate="s1-c0"),
        e.RoleCalled(role="reviewer", usage=Usage(author="cli", prompt_tokens=None, usd=None)),
        tree,
        e.DeviceUsed(what="verify", seconds=7, candidate="s1-c0"),
        e.CandidateDecided(candidate="s1-c0", decision="discarded", reason="it is slower"),
        e.RunFinished(outcome="no_engine", reason="nothing passed"),
    ):
        journal.append(event)
    file = write_table(tmp_path)
    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    assert table.schema == SCHEMA
    rows = table.to_pylist()
    assert [e.EVENT.validate_json(row["event"]) for row in rows] == read_events(tmp_path)
    assert {row["run"] for row in rows} == {"r1"}
    started, opened, called, untold, submitted, used, decided, finished = rows
    assert started["at"].timestamp() == 1e9
    assert [row["issue"] for row in (opened, called, submitted, used)] == ["s1", "s1", "s1", None]
    told = ("role", "author", "model", "tokens", "usd", "seconds", "tool_calls", "edits")
    assert [called[name] for name in told] == ["implementer", "litellm", "m", 120, 0.5, 9.0, 6, 3]
    assert (untold["tokens"], untold["usd"]) == (None, None), "unknown is not nothing"
    assert (submitted["commit"], submitted["candidate"], used["seconds"]) == ("abc", "s1-c0", 7.0)
    assert (decided["error"], finished["error"]) == ("it is slower", "no_engine: nothing passed")
    assert write_table(tmp_path) == file, "it may be written again"
