"""How thoroughly a tree must be accepted, and whether it was: docs/design/012 says how the three ways relate."""

from collections.abc import Iterable

from ckb.facts import Facts
from gpu_actors.jobs import SCREEN_CONTEXT, Acceptance, Verdict
from swarm.events import Purpose


def asked(purpose: Purpose, passed: Iterable[Verdict], facts: Facts) -> Acceptance:
    """A release asks everything; a full acceptance's fixed prompts not again where this very tree has passed them."""
    if purpose != "release":
        return "screen"
    return "fresh" if any(covers(verdict, facts) for verdict in passed) else "full"


def in_full(passed: Iterable[Verdict], facts: Facts) -> bool:
    """Whether the verdicts that a tree passed amount to a full acceptance, which a released engine needs."""
    ways = list(passed)
    whole = any(verdict.acceptance == "full" for verdict in ways)
    return whole or (any(v.acceptance == "fresh" for v in ways) and any(covers(v, facts) for v in ways))


def covers(verdict: Verdict, facts: Facts) -> bool:
    """Whether a verdict holds the fixed prompts of a full acceptance: those of a screen are the same ones where the
    Target's context is no longer than a screen's."""
    context = min(facts.workload.max_context, facts.model.max_positions)
    return verdict.acceptance == "full" or (verdict.acceptance == "screen" and context <= SCREEN_CONTEXT)
