"""Hard limits of one run: money, tokens, wall time and device seconds, checked before each call."""

from collections.abc import Callable

from ckb.errors import UserError
from swarm.state import RunState
from swarm.target import Budget


class BudgetExceeded(UserError):
    """A hard limit was reached: nothing more is called."""


class Ledger:
    """Compares what the journal says was spent with the limits. What a run spent before a restart counts."""

    def __init__(self, limits: Budget, state: RunState, clock: Callable[[], float]):
        self._limits = limits
        self._state = state
        self._clock = clock
        self._started = clock()
        self._before = state.active_seconds
        self.finishing = False
        """The search is over and what it found is being released: no time limit may cost the run its engine then."""

    def used(self) -> dict[str, tuple[float, float]]:
        """Limit -> (used, allowed). Money and tokens count only where an author costs any."""
        seconds = self._before + self._clock() - self._started
        return {
            "minutes": (seconds / 60, self._limits.minutes),
            "device_seconds": (self._state.device_seconds, self._limits.device_seconds),
            "usd": (self._state.usd, self._limits.usd),
            "tokens": (float(self._state.tokens), float(self._limits.tokens)),
        }

    def check(self) -> None:
        """Raises BudgetExceeded when a hard limit is reached."""
        for name, (used, allowed) in self.used().items():
            if self.finishing and name in ("minutes", "device_seconds"):
                continue
            if used > allowed or (used == allowed > 0):
                raise BudgetExceeded(
                    f"budget.{name}: {used:.4g} of {allowed:.4g} used. Raise it in RUN/target.yaml and resume."
                )

    def soft_reached(self) -> str | None:
        """Which limit has passed its soft share, from where nothing new is started."""
        for name, (used, allowed) in self.used().items():
            if allowed and used >= allowed * self._limits.soft:
                return f"budget.{name}: {used:.4g} of {allowed:.4g} used, the soft limit is {self._limits.soft:.0%}"
        return None
