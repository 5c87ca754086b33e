"""Orchestrator: dispatches what promises most, and keeps the memory of what became of it."""

from roles.briefs import OrchestratorAnswer, OrchestratorBrief

HEADING = "# What the rounds so far have shown"


def orchestrate(brief: OrchestratorBrief) -> OrchestratorAnswer:
    """Hypotheses in order of their expected effect, as many as a round holds; stop when none promises enough."""
    promising = [i for i, h in enumerate(brief.hypotheses) if h.expected_effect >= brief.minimum]
    order = sorted(promising, key=lambda i: (-brief.hypotheses[i].expected_effect, i))
    return OrchestratorAnswer(dispatch=tuple(order[: brief.parallel]), memory=remember(brief), stop=not order)


def remember(brief: OrchestratorBrief) -> str:
    """The memory with one line for each candidate of the last round, no line twice."""
    lines = brief.memory.splitlines() if brief.memory.strip() else [HEADING, ""]
    lines += [line for line in (f"- {outcome}" for outcome in brief.last_round) if line not in lines]
    return "\n".join(lines) + "\n"
