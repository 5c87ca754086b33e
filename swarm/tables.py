"""Tables for the terminal. Colours are the basic ones, which dark and light terminals both show."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from swarm.doctor import Finding
from swarm.progress import candidate_state
from swarm.state import RunState

STATE_STYLE = {"fine": "green", "limited": "blue", "missing": "bold red"}


def plain_table(*columns: str) -> Table:
    """A table without frames."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns[:-1]:
        table.add_column(column)
    table.add_column(columns[-1], overflow="fold")
    return table


def doctor_table(findings: list[Finding]) -> Table:
    table = plain_table("what", "state", "found, and what follows")
    for finding in findings:
        text = Text(finding.found)
        if finding.consequence:
            text.append(f"\n{finding.consequence}", style="italic")
        table.add_row(finding.what, Text(finding.state, style=STATE_STYLE[finding.state]), text)
    return table


def candidates_table(state: RunState) -> Table:
    """Each candidate with the row that says why it was kept or discarded."""
    table = plain_table("issue", "candidate", "state", "effect", "why")
    for issue in state.issues.values():
        for candidate in issue.candidates.values():
            word, style = candidate_state(candidate)
            decided = candidate.decided
            effect = f"{decided.effect:+.1%}" if decided and decided.effect is not None else ""
            why = decided.reason if decided else candidate.submitted.summary
            table.add_row(issue.issue.id, candidate.id, Text(word, style=style), effect, Text(why))
    return table


def show(*parts: object) -> None:
    """Prints to stdout, 80 columns wide or more where it is no terminal, so that nothing is cut in a log."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    console.print(*parts, sep="\n")
