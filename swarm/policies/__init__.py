"""Outer-loop policies: what to try next. One file each, all behind `swarm.policies.base.Policy`."""

from collections.abc import Callable

from roles.briefs import PolicyTool, RoleName
from swarm.policies.base import Policy
from swarm.policies.evolutionary import Evolutionary
from swarm.policies.issue_tracker import IssueTracker
from swarm.policies.ralph import Ralph

POLICIES: dict[str, Callable[[], Policy]] = {
    "issue_tracker": IssueTracker,
    "evolutionary": Evolutionary,
    "ralph": Ralph,
}
"""By their names in a Target (`search.policy`)."""


def tools_of(policy: str, role: RoleName) -> tuple[PolicyTool, ...]:
    """The tools that a policy gives a role."""
    return tuple(tool for tool, roles in POLICIES[policy]().tools.items() if role in roles)
