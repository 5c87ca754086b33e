"""What a person orders a run to do while it goes on: each order is obeyed once, and none costs the run anything."""

import threading
import time
from pathlib import Path

import pytest

from roles.author import Answer, AnyBrief, Usage
from roles.briefs import ImplementerBrief, RoleName
from roles.settings import SingleAuthor
from swarm import events as e
from swarm.cli import main
from swarm.context import RunFiles
from swarm.journal import Journal, epoch_file, state_of
from swarm.orders import LONGEST_NOTE, Order, Pause, Steer, Stop, Stopped, Unpause, give
from swarm.state import RunState
from tests.unit.swarm.rehearsal import Rehearsal, outcome, prepare, rehearse


class Ordered(Rehearsal):
    """A crew at whose first implementer a person gives an order. Keeps what briefs carried."""

    def __init__(self, files: RunFiles, store: Path, *orders: Order):
        super().__init__(store)
        self.files = files
        self.orders = list(orders)
        self.carried: list[tuple[RoleName, tuple[str, ...]]] = []
        self._giving = threading.Lock()

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        self.carried.append((brief.role, brief.notes))
        with self._giving:
            while isinstance(brief, ImplementerBrief) and self.orders:
                give(self.files.orders, self.orders.pop(0))
        return super().answer(brief, author)


def test_a_stopped_run_is_taken_up_again_and_ends_as_if_nobody_had_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stopped := tmp_path / "stopped").mkdir()
    (quiet := tmp_path / "quiet").mkdir()
    monkeypatch.setenv("ENGINESMITH_HOME", str(stopped))
    files = prepare(stopped)
    with pytest.raises(Stopped, match="go on with `enginesmith resume"):
        rehearse(stopped, files, Ordered(files, stopped / "store", Stop()))
    assert list(files.orders.glob("*")) == []
    state = state_of(files.root)
    assert [one.order for one in state.orders] == [Stop()]
    assert state.candidates, "what was under way is journalled"
    assert not state.merges
    give(files.orders, Stop())  # to a run that nobody drives: it must not stop the driver that begins afterwards
    context = rehearse(stopped, files)
    assert context.state.orders[-1].refused == "it was given before this driver began"
    monkeypatch.setenv("ENGINESMITH_HOME", str(quiet))
    assert outcome(context) == outcome(rehearse(quiet, prepare(quiet)))


def test_a_pause_holds_everything_back_and_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.setattr("swarm.context.PAUSED_POLL_S", 0.05)
    files = prepare(tmp_path)
    crew = Ordered(
        files, tmp_path / "store", Pause(), Steer(text="mind the cache", role="reviewer"), Steer(text="hurry")
    )
    seen: list[int] = []

    def person() -> None:
        while "paused; go on with: enginesmith unpause rehearsal" not in (
            files.now.read_text() if files.now.exists() else ""
        ):
            time.sleep(0.02)
        seen.append(len(crew.carried))
        time.sleep(1.0)
        seen.append(len(crew.carried))
        give(files.orders, Unpause())

    watcher = threading.Thread(target=person)
    watcher.start()
    context = rehearse(tmp_path, files, crew)
    watcher.join()
    state = context.state
    assert state.finished
    assert state.finished.outcome == "accepted"
    assert seen[0] == seen[1], "no role was asked meanwhile"
    ((began, ended),) = state.time.pauses
    assert ended - began >= 1.0
    first, last = state.time.spans[0]
    assert state.time.seconds == pytest.approx(last - first - (ended - began))
    assert context.ledger.used()["minutes"] * 60 < last - first - 0.9
    carried = {role: [notes for asked, notes in crew.carried if asked == role and notes] for role, _ in crew.carried}
    assert ("mind the cache", "hurry") in carried["reviewer"]
    assert carried["evaluator"] == [("hurry",)], "once"
    assert crew.carried[-1][1] in ((), ("hurry",))


def taken(at: float, order: Order, epoch: int = 1) -> e.OrderTaken:
    return e.OrderTaken(name=f"{at}", order=order, at=at, epoch=epoch)


def test_a_note_that_comes_while_its_role_is_at_work_is_for_the_next_brief() -> None:
    state = RunState()
    state.apply(e.RunStarted(run="r", target="t", host="h", version="0", epoch=1))
    early, late = taken(1, Steer(text="early")), taken(2, Steer(text="late", role="implementer"))
    state.apply(early)
    heard = tuple(note.name for note in state.notes_for("implementer"))
    state.apply(late)  # by another thread's step, before the answer
    state.apply(e.RoleCalled(role="implementer", usage=Usage(author="a"), heard=heard, at=3, epoch=1))
    assert state.notes_for("implementer") == [late]
    assert state.notes_for("reviewer") == [early]
    state.apply(e.RoleCalled(role="implementer", usage=Usage(author="a"), heard=(late.name,), at=4, epoch=1))
    assert state.notes_for("implementer") == []


def test_a_pause_ends_with_its_driver() -> None:
    state = RunState()
    state.apply(e.RunStarted(run="r", target="t", host="h", version="0", at=0, epoch=1))
    state.apply(taken(10, Pause()))
    assert state.time.paused_in(1)
    assert not state.time.paused_in(2), "whoever takes the run up wants it to go on"
    assert state.time.seconds == 10
    state.apply(taken(12, Steer(text="x")))
    state.apply(e.DeviceUsed(what="verify", seconds=1, at=100, epoch=2))
    state.apply(e.DeviceUsed(what="verify", seconds=1, at=130, epoch=2))
    assert (state.time.pauses, state.time.paused_in(2)) == ([(10, 12)], False)
    assert state.time.seconds == 10 + 30


def test_an_order_that_was_journalled_and_not_removed_is_not_obeyed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    files = prepare(tmp_path)
    path = give(files.orders, Steer(text="once"))
    journal = Journal(files.root)
    journal.append(e.OrderTaken(name=path.name, order=Steer(text="once")))
    (files.orders / "00000000000000000001-x.json").write_text('{"do": "dance"}')
    state = rehearse(tmp_path, files).state
    assert [one.name for one in state.orders if one.name == path.name] == [path.name]
    (unread,) = (one for one in state.orders if one.order is None)
    assert "Input tag 'dance' found using 'do' does not match" in unread.refused
    assert list(files.orders.glob("*")) == []
    assert epoch_file(files.root / "journal", 2).exists()


def test_the_commands_say_whether_a_driver_has_heard_and_refuse_what_can_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    monkeypatch.setattr("swarm.commands.orders.HEARD_S", 0.0)
    files = prepare(tmp_path)
    run = str(files.root)
    for arguments in (["pause", run], ["unpause", run], ["stop", run], ["steer", run, "use tiles", "--role", "judge"]):
        assert main(arguments) == 0
        assert "no driver has taken it up yet" in capsys.readouterr().err
    assert len(list(files.orders.glob("*.json"))) == 4
    for arguments, said in (
        (["steer", run, " "], "text: String should have at least 1 character"),
        (["steer", run, "x" * (LONGEST_NOTE + 1)], "text: String should have at most 4000 characters"),
        (["steer", run, "x", "--role", "king"], "role: Input should be 'orchestrator', 'implementer'"),
        (["pause", "nowhere"], "nowhere is no run"),
    ):
        assert main(arguments) == 2
        assert said in capsys.readouterr().err
    Journal(files.root).append(e.RunFinished(outcome="accepted"))
    assert main(["pause", run]) == 2
    assert "rehearsal is over: its engine was accepted" in capsys.readouterr().err
