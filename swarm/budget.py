"""Hard and soft limits of one run: money, tokens, wall time and device seconds, checked before each call.

What was spent on providers is what the spending file says (swarm.spending), calls in flight at their reservation and
calls of unknown cost at their most; the journal knows of answers only.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from ckb.errors import UserError
from swarm.events import BudgetChanged
from swarm.limits import Limits
from swarm.spent import read_spent
from swarm.state import RunState
from swarm.target import Budget

NAMES = ("minutes", "device_seconds", "usd", "tokens")
HINT = "Raise it with `enginesmith budget RUN` and resume."


class BudgetExceeded(UserError):
    """A hard limit was reached: nothing more is called."""


def figures(limits: Budget | BudgetChanged) -> dict[str, float]:
    """The four limits by name."""
    return {name: float(getattr(limits, name)) for name in NAMES}


def used_of(state: RunState, spending: Path | None) -> dict[str, float]:
    """What a run has used by its last event. Without the file of what providers were paid the journal's sums stand."""
    paid = read_spent(spending).total if spending else {"usd": 0.0, "tokens": 0.0}
    return {
        "minutes": state.time.seconds / 60,
        "device_seconds": state.device_seconds,
        "usd": max(paid["usd"], state.usd),
        "tokens": max(paid["tokens"], float(state.tokens)),
    }


class Ledger:
    """Compares what was spent with the limits. What a run spent before a restart counts."""

    def __init__(
        self,
        limits: Limits,
        state: RunState,
        clock: Callable[[], float],
        spending: Path | None = None,
        changed: Callable[[dict[str, float]], None] = lambda _: None,
    ):
        """`spending`: the file of what providers were paid. `changed` is told when a limit became another one."""
        self._limits = limits
        self._state = state
        self._clock = clock
        self._started = clock()
        self._before = state.time.seconds
        self._spending = spending
        self._changed = changed
        self._lock = threading.Lock()
        self._known = figures(state.budget or limits.target)
        self.finishing = False
        """The search is over and what it found is being released: no time limit may cost the run its engine then."""

    @property
    def limits(self) -> Budget:
        now = self._limits.now
        with self._lock:
            if (found := figures(now)) == self._known:
                return now
            self._known = found
        self._changed(found)
        return now

    def used(self) -> dict[str, float]:
        """Limit -> how much of it is used. Money and tokens count only where an author costs any."""
        now = self._clock()
        seconds = self._before + now - self._started - self._state.time.paused_since(self._started, now)
        return used_of(self._state, self._spending) | {"minutes": seconds / 60}

    def check(self) -> None:
        """Raises BudgetExceeded when a hard limit is reached."""
        allowances = figures(self.limits)
        for name, used in self.used().items():
            allowed = allowances[name]
            if self.finishing and name in ("minutes", "device_seconds"):
                continue
            if used > allowed or (used == allowed > 0):
                raise BudgetExceeded(f"budget.{name}: {used:.4g} of {allowed:.4g} used. {HINT}")

    def soft_reached(self) -> str | None:
        """Which limit has passed its soft share, from where nothing new is started."""
        limits = self.limits
        for name, used in self.used().items():
            allowed = figures(limits)[name]
            if allowed and used >= allowed * limits.soft:
                return f"budget.{name}: {used:.4g} of {allowed:.4g} used, the soft limit is {limits.soft:.0%}"
        return None

    def issue_reached(self, issue: str) -> str | None:
        """Which of an issue's own limits is reached, from where it gets no further attempt."""
        limits = self.limits.issue
        if limits is None:
            return None
        used = self._state.used_by(issue, self._clock())
        if self._spending:
            paid = read_spent(self._spending).by_issue.get(issue, {})
            used |= {name: max(used[name], amount) for name, amount in paid.items()}
        for name, amount in used.items():
            allowed = getattr(limits, name)
            if allowed is not None and amount >= allowed:
                return f"budget.issue.{name}: {amount:.4g} of {allowed:.4g} used by {issue}"
        return None
