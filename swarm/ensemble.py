"""Who of an ensemble answers a brief: what the journal says of its members' earlier work, and the choice."""

from roles.briefs import RoleName
from roles.ensemble import Outcome, choose
from roles.settings import AuthorConfig, AuthorKey, EnsembleSettings, SingleAuthor, settings_for
from swarm.events import CandidateDecided
from swarm.state import Candidate, RunState


def author_of(
    authors: dict[AuthorKey, AuthorConfig],
    state: RunState,
    role: RoleName,
    seed: int,
    issue: str | None,
    candidate: str | None,
) -> tuple[SingleAuthor, str]:
    """The author of a brief and, of an ensemble, the member's name. A candidate keeps its author: a retry is for who
    wrote the last attempt. What is known of the members is what the journal held when the issue was opened, so that
    neither the order of work that runs at once nor a restart changes the choice."""
    settings = settings_for(authors, role)
    if not isinstance(settings, EnsembleSettings):
        return settings, ""
    weights = {name: member.weight for name, member in settings.arms.items()}
    learn = settings.learn and role == "implementer"
    work = f"{role}/{issue}/{candidate}/{'' if candidate else state.calls_of(role)}"
    name = choose(weights, outcomes(state, issue) if learn else (), seed, work, learn=learn)
    return settings.arms[name], name


def outcomes(state: RunState, issue: str | None) -> tuple[Outcome, ...]:
    """What came of the candidates that were decided before an issue was opened, by the member that wrote them."""
    before = state.issues[issue].decided_before if issue in state.issues else len(state.decisions)
    latest = {decided.candidate: decided for decided in state.decisions[:before]}
    found = []
    for name, decided in latest.items():
        calls = [c for c in state.roles if c.role == "implementer" and c.candidate == name and c.member]
        if calls and found_out(decided, state.candidates[name]):
            costs = [call.usage.usd for call in calls]
            usd = sum(cost for cost in costs if cost is not None) if None not in costs else None
            found.append(Outcome(member=calls[-1].member, kept=decided.decision == "kept", usd=usd))
    return tuple(found)


def found_out(decided: CandidateDecided, candidate: Candidate) -> bool:
    """Whether a decision says something of its author: not where another candidate was merged first and this one was
    never gated."""
    return decided.decision == "kept" or not decided.judged or bool(candidate.verdicts)
