"""Who of an ensemble is asked: by the journal as it was when the issue was opened, and so again after a restart."""

import itertools
from pathlib import Path

import pytest

from roles.author import Answer, AnyBrief, Usage
from roles.briefs import ImplementerBrief
from roles.settings import ComposerSettings, EnsembleSettings, SingleAuthor
from swarm import events as e
from swarm.ensemble import author_of, outcomes
from swarm.journal import read_events
from swarm.state import RunState, fold
from tests.unit.swarm.rehearsal import Rehearsal, prepare, rehearse

PAIR = EnsembleSettings(members=(ComposerSettings(weight=1), ComposerSettings(weight=2)))
AUTHORS = {"implementer": PAIR}
FIRST, SECOND = PAIR.arms


class Paid(Rehearsal):
    """The composer, at a price; it remembers who was asked."""

    def __init__(self, store: Path):
        super().__init__(store)
        self.authors: list[tuple[str, SingleAuthor]] = []
        self.briefs: list[AnyBrief] = []

    def answer(self, brief: AnyBrief, author: SingleAuthor) -> tuple[Answer, Usage]:
        self.authors.append((brief.role, author))
        self.briefs.append(brief)
        answer, usage = super().answer(brief, author)
        return answer, usage.model_copy(update={"usd": 0.0})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[e.AnyEvent], Paid]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("run")
        patch.setenv("ENGINESMITH_HOME", str(folder))
        files = prepare(folder, authors={"implementer": PAIR.model_dump(mode="json")})
        crew = Paid(folder / "store")
        rehearse(folder, files, crew)
        return read_events(files.root), crew


def implementers(state: RunState) -> list[e.RoleCalled]:
    return [call for call in state.roles if call.role == "implementer"]


def test_each_answer_is_journalled_with_its_member_and_both_are_asked(run: tuple[list[e.AnyEvent], Paid]) -> None:
    events, crew = run
    calls = implementers(fold(events))
    assert {call.member for call in calls} == {FIRST, SECOND}
    assert {call.member for call in fold(events).roles if call.role != "implementer"} == {""}
    asked = {author for role, author in crew.authors if role == "implementer"}
    assert asked == set(PAIR.members)


def test_an_implementer_of_a_performance_issue_is_told_where_the_time_goes(run: tuple[list[e.AnyEvent], Paid]) -> None:
    briefs = [brief for brief in run[1].briefs if isinstance(brief, ImplementerBrief)]
    assert {brief.step_ms for brief in briefs if brief.issue.startswith("r")} == {30.0}
    assert {brief.step_ms for brief in briefs if not brief.change} == {None}, "a stage was not profiled"
    assert all(bool(brief.shares) == bool(brief.change) for brief in briefs)


def test_the_same_member_is_chosen_again_from_any_later_journal(run: tuple[list[e.AnyEvent], Paid]) -> None:
    events, _ = run
    whole = fold(events)
    for cut in range(0, len(events), 7):
        known = fold(events[:cut])
        for call in implementers(whole):
            if call.issue in known.issues:
                chosen = author_of(AUTHORS, known, "implementer", 0, call.issue, call.candidate)[1]
                assert chosen == call.member, f"{call.candidate} after {cut} events"


def test_the_record_holds_what_was_decided_before_the_issue_was_opened(run: tuple[list[e.AnyEvent], Paid]) -> None:
    state = fold(run[0])
    issues = list(state.issues)
    assert outcomes(state, issues[0]) == ()
    records = [outcomes(state, issue) for issue in issues]
    assert all(set(before) <= set(after) for before, after in itertools.pairwise(records))
    last = records[-1]
    assert any(outcome.kept for outcome in last)
    waiting = [c.id for c in state.candidates.values() if c.decided and not c.verdicts and c.decided.judged]
    assert waiting, "some were reviewed and not gated: nothing is known of them"
    assert len(outcomes(state, None)) == len(state.candidates) - len(waiting)


def test_a_journal_from_before_there_were_ensembles_says_nothing_of_members(
    run: tuple[list[e.AnyEvent], Paid],
) -> None:
    calls = [event.model_copy(update={"member": ""}) if isinstance(event, e.RoleCalled) else event for event in run[0]]
    assert outcomes(fold(calls), None) == ()


def test_other_roles_are_chosen_by_weight_and_one_author_is_just_asked() -> None:
    state = RunState()
    never = EnsembleSettings(members=(ComposerSettings(weight=0), ComposerSettings(weight=5)))
    for role in ("reviewer", "evaluator", "implementer"):
        author, member = author_of({"default": never}, state, role, 0, None, None)  # type: ignore[arg-type]
        assert (author, member) == (never.members[1], "composer (2)")
    assert author_of({}, state, "judge", 0, None, None) == (ComposerSettings(), "")
