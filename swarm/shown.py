"""What authors are told of measurements: figures of one part of the inputs. Keep or discard uses the other part.

Whoever sees the numbers that decide can fit them, round after round, without being any faster. A finished run's lessons
are told with the figures that decided: nothing of that run is decided any more.
"""

from roles.briefs import Lesson
from swarm.context import Context
from swarm.lessons import measured_effect
from swarm.measure import compare, objective_of
from swarm.policies.issue_tracker import Measured
from swarm.state import Candidate


def effect(context: Context, candidate: Candidate) -> Measured | None:
    """A candidate's effect on the part that authors may see; None where it has no valid pair there."""
    benchmark = context.state.benchmark("round", context.state.round_of(candidate.id))
    return compare(benchmark, context.plan, shown=True).get(candidate.id) if benchmark else None


def lessons(context: Context) -> tuple[Lesson, ...]:
    """What the run has found out about changes so far."""
    found = []
    for candidate in list(context.state.candidates.values()):
        decided, seen = measured_effect(context, candidate), effect(context, candidate)
        if decided and seen:
            figures = {"effect": seen.effect, "interval": (seen.low, seen.high), "text": line(context, candidate)}
            found.append(decided.model_copy(update=figures))
    return tuple(found)


def line(context: Context, candidate: Candidate) -> str:
    """What became of a candidate, in one line."""
    decided = candidate.decided
    assert decided, "only what was decided is told"
    title = context.state.issues[candidate.submitted.issue].issue.title
    words = f"{candidate.id} {title}: {decided.decision}, {decided.told or decided.reason}"
    seen = effect(context, candidate)
    return f"{words}; measured {seen.effect:+.1%} [{seen.low:+.1%}, {seen.high:+.1%}]" if seen else words


def round_lines(context: Context, number: int) -> tuple[str, ...]:
    """One line for each candidate of a round: the change and what became of it."""
    issues = [i for i in context.state.issues.values() if i.issue.round == number and number > 0]
    return tuple(line(context, c) for issue in issues for c in issue.candidates.values() if c.decided)


def incumbent_objective(context: Context) -> float | None:
    """The objective of the tree on main, from the latest benchmark of a round that it took part in; None before."""
    state = context.state
    tip = state.merges[-1].candidate if state.merges else ""
    for made in reversed([made for made in state.benchmarks if made.purpose == "round"]):
        arm = "incumbent" if made.round > state.round_of(tip) else tip
        if (value := objective_of(made.benchmark, arm, context.plan, shown=True)) is not None:
            return value
        if arm == tip:  # what was measured before is another tree
            return None
    return None
