"""Orchestrator: dispatches what promises most, and keeps the memory of what became of it."""

from roles.briefs import Meaning, OrchestratorAnswer, OrchestratorBrief

HEADING = "# What the rounds so far have shown"
SECTIONS: dict[Meaning, str] = {
    "gain": "## Directions that paid",
    "no gain": "## Directions that evidence speaks against",
    "failed implementation": "## Implementations that failed: their directions are open",
    "not found out": "## Nothing found out: worth another try",
}
"""What a candidate's end says about its idea -> where the memory keeps it."""


def orchestrate(brief: OrchestratorBrief) -> OrchestratorAnswer:
    """Hypotheses in order of their expected effect, as many as a round holds; stop when none promises enough."""
    promising = [i for i, h in enumerate(brief.hypotheses) if h.expected_effect >= brief.minimum]
    order = sorted(promising, key=lambda i: (-brief.hypotheses[i].expected_effect, i))
    return OrchestratorAnswer(dispatch=tuple(order[: brief.parallel]), memory=remember(brief), stop=not order)


def remember(brief: OrchestratorBrief) -> str:
    """The memory with one line for each candidate of the last round, in the section of what it means; no line twice.
    Text that somebody else wrote there stays where it is."""
    lines = brief.memory.splitlines() if brief.memory.strip() else [HEADING]
    for outcome in brief.last_round:
        line = f"- {outcome.line}"
        if line in lines:
            continue
        section = SECTIONS[outcome.meaning]
        if section not in lines:
            lines += ["", section, ""]
        lines.insert(end_of(lines, lines.index(section)), line)
    return "\n".join(lines) + "\n"


def end_of(lines: list[str], heading: int) -> int:
    """Where the text of a section ends, blank lines after it left out."""
    end = next((i for i in range(heading + 1, len(lines)) if lines[i].startswith("#")), len(lines))
    while end > heading + 2 and not lines[end - 1]:
        end -= 1
    return end
