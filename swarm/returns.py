"""What comes back from the merge queue: two candidates that each gained alone and not together, as one new issue.

Pure in the journal: which pairs wait is seen from what was returned and what was opened since (docs/design/023).
"""

import difflib

from roles.briefs import Combination, Hypothesis, Side
from swarm import events as e
from swarm.context import Context
from swarm.state import RunState


def waiting(state: RunState) -> list[e.PairReturned]:
    """The pairs that no issue was about yet, oldest first. A pair is given out once."""
    opened = [issue for made in state.opened.values() for issue in made.issues]
    given = {issue.combines for issue in opened}
    return [pair for pair in state.returned if (pair.merged, pair.lost) not in given]


def returned_issues(state: RunState, number: int, width: int) -> tuple[e.Issue, ...]:
    """At most `width` issues of round `number`, each about a pair, on what is on main."""
    return tuple(
        combining_issue(state, number, place, pair) for place, pair in enumerate(waiting(state)[:width], start=1)
    )


def combining_issue(state: RunState, number: int, place: int, pair: e.PairReturned) -> e.Issue:
    """The lost change once more, to be made to go with the merged one. What its hypothesis predicted still decides."""
    lost = state.candidates[pair.lost]
    before = state.issues[lost.submitted.issue].issue
    assert before.hypothesis, "only candidates of a round come to the queue"
    title = f"Combine {pair.merged} and {pair.lost}: {before.title}"
    hypothesis = before.hypothesis.model_copy(update={"title": title, "change": state.difference(lost)})
    return e.Issue(
        id=f"r{number}-m{place}",
        stage="performance",
        title=title,
        acceptance=acceptance_of(hypothesis),
        criteria=hypothesis.criteria,
        hypothesis=hypothesis,
        base=state.merges[-1].commit,
        round=number,
        parents=(pair.merged, pair.lost),
        combines=(pair.merged, pair.lost),
    )


def acceptance_of(hypothesis: Hypothesis) -> tuple[str, ...]:
    return hypothesis.acceptance, f"falsified if: {hypothesis.falsification}"


def combination_of(context: Context, issue: e.Issue) -> Combination | None:
    """What the implementer of a returned pair is shown; None for every other issue."""
    pair = next((p for p in context.state.returned if (p.merged, p.lost) == issue.combines), None)
    if not pair:
        return None
    merged, lost = side_of(context, pair.merged), side_of(context, pair.lost)
    return Combination(merged=merged, lost=lost, why=pair.reason, measured=pair.measured)


def side_of(context: Context, name: str) -> Side:
    """One candidate of a pair, with its diff against the tree that it started from."""
    candidate = context.state.candidates[name]
    issue = context.state.issues[candidate.submitted.issue].issue
    before = context.workspace.files(issue.base)
    return Side(
        candidate=name,
        title=issue.title,
        diff=diff_of(before, context.workspace.files(candidate.submitted.commit)),
        choices=candidate.submitted.choices,
    )


def diff_of(before: dict[str, str], after: dict[str, str]) -> str:
    """A unified diff of two trees (path -> text), files in order of their paths."""
    lines = [
        line
        for path in sorted(before.keys() | after.keys())
        for line in difflib.unified_diff(
            before.get(path, "").splitlines(), after.get(path, "").splitlines(), path, path, lineterm=""
        )
    ]
    return "\n".join(lines)


def exhausted(state: RunState, issue: e.Issue) -> bool:
    """Whether nothing new came of a returned pair: no implementer brought a tree that was worth a review."""
    made = state.issues[issue.id].candidates.values()
    return bool(issue.combines) and all(c.findings is None and not c.verdicts for c in made)
