"""What authors are told of measurements: figures of one part of the inputs. Keep or discard uses the other part.

Whoever sees the numbers that decide can fit them, round after round, without being any faster. A finished run's lessons
are told with the figures that decided: nothing of that run is decided any more.
"""

from roles.briefs import Lesson, Meaning, Outcome
from swarm.context import Context
from swarm.gains import MINIMUM_EFFECT, Measured
from swarm.lessons import measured_effect
from swarm.measure import compare, objective_of
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


def outcomes(context: Context, number: int) -> tuple[Outcome, ...]:
    """What became of each candidate of a round, and what that says of its idea."""
    issues = [i for i in context.state.issues.values() if i.issue.round == number and number > 0]
    decided = [c for issue in issues for c in issue.candidates.values() if c.decided]
    return tuple(Outcome(line=line(context, c), meaning=meaning(context, c)) for c in decided)


def meaning(context: Context, candidate: Candidate) -> Meaning:
    """What the end of a candidate says of its idea, without a figure that decided."""
    decided = candidate.decided
    assert decided, "only what was decided has a meaning"
    if decided.decision == "kept":
        return "gain"
    if not decided.judged:
        return "not found out"
    benchmark = context.state.benchmark("round", context.state.round_of(candidate.id))
    if not benchmark or all(arm.arm != candidate.id for arm in benchmark.arms):
        # without evidence it is a tree that was known: what became of the other one says it
        failed = candidate.evidence or (candidate.before and candidate.before.evidence)
        return "failed implementation" if failed else "not found out"
    if candidate.evidence or candidate.objections or decided.interval is None:
        return "failed implementation"
    measured = compare(benchmark, context.plan).get(candidate.id)
    clear = decided.interval[0] >= MINIMUM_EFFECT and not (measured and measured.moved)
    return "gain" if clear else "no gain"


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
