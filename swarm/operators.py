"""The operator libraries of a Target on this machine: tried once, and then known from the cache."""

from collections.abc import Callable, Iterable
from typing import Literal

from ckb.facts import PlatformFacts
from ckb.operators import CPP
from ckb.schemas.platforms import TriedOperator
from gpu_actors.operators import Rules, try_operators
from gpu_actors.say import Say, silent
from swarm.paths import cache_dir, writing
from swarm.target import Target

ALWAYS = ("torch", CPP)
"""What every engine stands on, and what C++ fragments are built with."""


def trial_of(target: Target, say: Say = silent) -> Callable[[PlatformFacts], tuple[TriedOperator, ...]]:
    """What tries the operators that a Target lists, in the sandbox that its engines will have."""
    return lambda platform: try_here(target.operators, platform, target.sandbox, say=say)


def try_here(
    names: Iterable[str],
    platform: PlatformFacts,
    sandbox: Literal["auto", "none"] = "auto",
    *,
    again: bool = False,
    say: Say = silent,
) -> tuple[TriedOperator, ...]:
    """The state of some operators, and of what every engine needs. `again`: try also what was tried before.

    Raises UserError where there is no sandbox to try them in, or no place to keep the outcome.
    """
    folder = cache_dir()
    with writing(folder):
        return try_operators((*ALWAYS, *names), platform, folder, rules=Rules(mode=sandbox), again=again, say=say)
