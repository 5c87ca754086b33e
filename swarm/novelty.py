"""Whether a candidate's tree is worth judging: gates and timing are the expensive part.

Pure, and a function of what is known about the others rather than of which thread came first: a resumed run decides as
the first one did.
"""

from swarm.state import Candidate, RunState


def repetition(state: RunState, candidate: Candidate) -> str:
    """Why a candidate's tree need not be judged, or nothing.

    It may repeat an attempt of its own, a candidate that stands before it in the order of issues and implementers, or
    one that was judged already. A tree of an earlier stage was asked for less, so it counts for nothing in a later one.
    """
    tree = candidate.submitted.tree
    earlier = candidate.before
    while earlier:
        if earlier.submitted.tree == tree:
            return f"its new attempt changed nothing: {earlier.evidence[0].summary}"
        earlier = earlier.before
    stage = state.issues[candidate.submitted.issue].issue.stage
    alike = [c for c in in_order(state) if state.issues[c.submitted.issue].issue.stage == stage]
    before = alike.index(candidate)
    twins = [
        other.id
        for place, other in enumerate(alike)
        if other is not candidate
        and other.submitted.tree == tree
        and (other.decided.judged if other.decided else place < before)
    ]
    return f"the same tree as {twins[0]}" if twins else ""


def in_order(state: RunState) -> list[Candidate]:
    """Every candidate by issue and implementer, whenever it was submitted."""
    issues = list(state.issues.values())
    return [c for i in issues for c in sorted(i.candidates.values(), key=lambda c: (len(c.id), c.id))]
