"""Which tree need not be judged, whoever submitted it first."""

from itertools import permutations

from gpu_actors.jobs import EvidenceFile, GateResult, Verdict
from roles.briefs import Finding
from swarm import events as e
from swarm.novelty import repetition
from swarm.state import RunState, fold


def opened(name: str, stage: str = "performance") -> e.IssueOpened:
    return e.IssueOpened(issue=e.Issue.model_validate({"id": name, "stage": stage, "title": "t", "base": "b"}))


def submitted(name: str, tree: str, attempt: int = 1) -> e.CandidateSubmitted:
    return e.CandidateSubmitted(
        candidate=name,
        issue=name.rpartition("-")[0],
        attempt=attempt,
        branch=f"candidate/{name}",
        commit="c",
        tree=tree,
        author="composer",
        choices={},
        spans=(),
        summary="s",
        lines=1,
    )


def decided(name: str, *, judged: bool) -> e.CandidateDecided:
    return e.CandidateDecided(candidate=name, decision="discarded", reason="slower", judged=judged)


def failed(name: str, tree: str) -> e.VerdictMade:
    evidence = (EvidenceFile(sha256="0" * 64, what="none"),)
    gate = GateResult(
        gate="linear", level="L1", contract="linear", status="FAIL", summary="too far", seconds=1.0, evidence=evidence
    )
    verdict = Verdict(candidate=name, tree=tree, levels=("L1",), acceptance="none", gates=(gate,), sandbox="none")
    return e.VerdictMade(candidate=name, attempt=1, purpose="gates", verdict=verdict)


def known(events: list[e.AnyEvent]) -> RunState:
    return fold(event.model_copy(update={"epoch": 1}) for event in events)


def why(state: RunState) -> dict[str, str]:
    return {name: repetition(state, candidate) for name, candidate in sorted(state.candidates.items())}


def test_the_first_in_the_order_of_issues_is_judged_whichever_thread_came_first() -> None:
    tree = {"r1-1-c0": "same", "r1-2-c0": "same", "r1-10-c0": "same", "r1-2-c1": "own"}
    issues = [opened("r1-1"), opened("r1-2"), opened("r1-10")]
    for order in permutations(tree):
        state = known([*issues, *(submitted(name, tree[name]) for name in order)])
        twin = "the same tree as r1-1-c0"
        assert why(state) == {"r1-1-c0": "", "r1-2-c0": twin, "r1-10-c0": twin, "r1-2-c1": ""}


def test_what_was_not_judged_and_what_an_earlier_stage_asked_for_count_for_nothing() -> None:
    events = [opened("s1", "execution"), submitted("s1-c0", "x"), opened("r1-1"), submitted("r1-1-c0", "x")]
    assert why(known(events)) == {"s1-c0": "", "r1-1-c0": ""}
    again = [opened("r2-1"), submitted("r2-1-c0", "x")]
    busy = known([*events, decided("r1-1-c0", judged=False), *again])
    assert repetition(busy, busy.candidates["r2-1-c0"]) == ""
    slower = known([*events, decided("r1-1-c0", judged=True), *again])
    assert repetition(slower, slower.candidates["r2-1-c0"]) == "the same tree as r1-1-c0"


def test_a_new_attempt_that_is_an_old_one_is_told_what_was_held_against_it() -> None:
    finding = Finding(contract="linear", file="kernels.py", line=3, expected="a", found="b")
    events = [
        opened("r1-1"),
        submitted("r1-1-c0", "x"),
        failed("r1-1-c0", "x"),
        submitted("r1-1-c0", "y", attempt=2),
        e.CandidateReviewed(candidate="r1-1-c0", attempt=2, findings=(finding,)),
        submitted("r1-1-c0", "x", attempt=3),
    ]
    state = known(events)
    assert repetition(state, state.candidates["r1-1-c0"]) == "its new attempt changed nothing: too far"
