"""The journal: whole events, one writer, older drivers without effect."""

from pathlib import Path

import pytest

from swarm import events as e
from swarm.journal import Journal, JournalError, epoch_file, read_events
from swarm.workspace import TakenOver


def opened(number: int) -> e.IssueOpened:
    return e.IssueOpened(issue=e.Issue(id=f"r{number}-1", stage="performance", title="t", base="b", round=number))


def titles(run: Path) -> list[str]:
    return [event.issue.id for event in read_events(run) if isinstance(event, e.IssueOpened)]


def test_events_come_back_in_order_with_time_and_epoch(tmp_path: Path) -> None:
    journal = Journal(tmp_path, clock=lambda: 7.0)
    journal.append(opened(1))
    journal.append(opened(2))
    events = read_events(tmp_path)
    assert titles(tmp_path) == ["r1-1", "r2-1"]
    assert [(event.at, event.epoch) for event in events] == [(7.0, 1), (7.0, 1)]
    assert list(journal.state.issues) == ["r1-1", "r2-1"]


def test_a_torn_last_line_is_no_event_and_the_next_driver_goes_on_after_it(tmp_path: Path) -> None:
    Journal(tmp_path).append(opened(1))
    with epoch_file(tmp_path / "journal", 1).open("ab") as file:
        file.write(b'{"kind": "issue_opened", "iss')
    assert titles(tmp_path) == ["r1-1"]
    Journal(tmp_path).append(opened(2))
    assert titles(tmp_path) == ["r1-1", "r2-1"]


def test_a_replaced_driver_can_not_append(tmp_path: Path) -> None:
    old = Journal(tmp_path)
    old.append(opened(1))
    Journal(tmp_path).append(opened(2))
    with pytest.raises(TakenOver, match="epoch 2"):
        old.append(opened(3))
    assert titles(tmp_path) == ["r1-1", "r2-1"]


def test_what_a_frozen_driver_still_writes_after_it_was_replaced_is_not_read(tmp_path: Path) -> None:
    """Between its look for a newer epoch and its write, a driver may sleep for any time."""
    old = Journal(tmp_path)
    old.append(opened(1))
    Journal(tmp_path).append(opened(2))
    line = opened(9).model_copy(update={"epoch": 1}).model_dump_json().encode()
    with epoch_file(tmp_path / "journal", 1).open("ab") as file:
        file.write(line + b"\n")
    third = Journal(tmp_path)
    assert titles(tmp_path) == ["r1-1", "r2-1"]
    assert "r9-1" not in third.state.issues


def test_two_drivers_that_resume_at_once_get_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(tmp_path)
    monkeypatch.setattr("swarm.journal.epochs", lambda journal: [])  # both looked before either created its file
    with pytest.raises(TakenOver, match="another driver"):
        Journal(tmp_path)


def test_a_folder_without_a_journal_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal"):
        read_events(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path)
    path = epoch_file(tmp_path / "journal", 1)
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(JournalError, match="format 2, this version reads 1"):
        read_events(tmp_path)


def test_an_issue_says_which_knowledge_it_was_worked_on_and_older_journals_still_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(opened(1).model_copy(update={"ckb_version": 7}))
    journal.append(opened(2))
    path = epoch_file(tmp_path / "journal", 1)
    path.write_text(path.read_text().replace(',"ckb_version":null', ""))
    assert '"ckb_version":7' in path.read_text()
    assert path.read_text().count("ckb_version") == 1, "the second line is of a journal from before the field"
    issues = Journal(tmp_path).state.issues
    assert (issues["r1-1"].ckb_version, issues["r2-1"].ckb_version) == (7, None)
