"""The roles in one table: prompt, what goes in, what comes out, which tools, and what may be written."""

from dataclasses import dataclass
from typing import Literal

from roles import briefs as b
from roles.author import Answer, AnyBrief
from roles.briefs import RoleName
from roles.checks import ENGINE_MODULES

ToolName = Literal[
    "list_files",
    "read_file",
    "write_file",
    "edit_file",
    "query_knowledge",
    "run_tests",
    "read_profile",
    "submit",
    "report_gap",
    "file_issue",
    "answer",
]
READ: tuple[ToolName, ...] = ("list_files", "read_file")
WORK: tuple[ToolName, ...] = (*READ, "write_file", "edit_file", "query_knowledge", "run_tests", "read_profile")


@dataclass(frozen=True)
class Role:
    """What is fixed for everyone who answers for a role."""

    prompt: str
    """File of roles/prompts, without its suffix."""
    brief: type[AnyBrief]
    answer: type[Answer]
    tools: tuple[ToolName, ...] = ("query_knowledge", "answer")
    """In the order in which they are offered. One that a conversation has no means for is left out of it: files where
    the brief holds none, knowledge without a library, tests unless the Target allows them, `file_issue` unless the
    policy gives it to the role."""
    writes: tuple[str, ...] = ()
    """Files that it may write: everything else is refused, or put back."""


ROLES: dict[RoleName, Role] = {
    "implementer": Role(
        "implementer",
        b.ImplementerBrief,
        b.ImplementerAnswer,
        (*WORK, "file_issue", "submit", "report_gap"),
        ENGINE_MODULES,
    ),
    "reviewer": Role("reviewer", b.ReviewerBrief, b.ReviewerAnswer, (*READ, "query_knowledge", "answer")),
    "judge": Role("judge", b.JudgeBrief, b.JudgeAnswer, (*READ, "query_knowledge", "file_issue", "answer")),
    "evaluator": Role(
        "evaluator",
        b.EvaluatorBrief,
        b.EvaluatorAnswer,
        (*READ, "query_knowledge", "read_profile", "file_issue", "answer"),
    ),
    "orchestrator": Role("orchestrator", b.OrchestratorBrief, b.OrchestratorAnswer),
    "analyst": Role("analyst", b.AnalystBrief, b.AnalystAnswer),
    "consolidator": Role("consolidator", b.ConsolidatorBrief, b.ConsolidatorAnswer),
}
