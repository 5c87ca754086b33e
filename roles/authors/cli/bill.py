"""What the runs of a command cost, where it tells; and what is held to be spent where it doesn't."""

import time
from collections.abc import Callable, Sequence

from roles.author import Usage
from roles.authors.cli.shell import Finished
from roles.authors.cli.told import N, Told, read_output, total
from roles.budget import Budget
from roles.settings import CliSettings


class Bill:
    """The runs of one answer. Each reserves its most before it starts; what it doesn't tell is settled at that."""

    def __init__(self, settings: CliSettings, budget: Budget):
        self._settings = settings
        self._budget = budget
        self._started = time.monotonic()
        self._told: list[Told] = []
        self.isolation = ""
        self.outside: tuple[str, ...] = ()
        """Paths that were written outside of the write scope."""

    @property
    def runs(self) -> int:
        return len(self._told)

    def run(self, work: Callable[[], Finished]) -> tuple[Finished, Told]:
        """Reserve, run, settle. Raises what the budget and the shell raise."""
        most_usd, most_tokens = self._settings.most_usd, self._settings.most_tokens
        reservation = self._budget.reserve(most_usd, most_tokens)
        try:
            finished = work()
        except Exception:
            self._budget.settle(reservation, 0.0, 0)  # it never began
            raise
        told = read_output(finished.output)
        self._told.append(told)
        self.isolation = finished.isolation
        known = [count for count in (told.prompt_tokens, told.completion_tokens) if count is not None]
        usd = most_usd if told.usd is None else told.usd
        self._budget.settle(reservation, usd, sum(known) if known else most_tokens)
        return finished, told

    def usage(self) -> Usage:
        """Unknown where one of the runs didn't tell: part of a sum is no sum."""
        return Usage(
            author="cli",
            model=self._settings.label,
            calls=self.runs,
            prompt_tokens=whole([told.prompt_tokens for told in self._told]),
            completion_tokens=whole([told.completion_tokens for told in self._told]),
            usd=whole([told.usd for told in self._told]),
            seconds=time.monotonic() - self._started,
            outside=tuple(dict.fromkeys(self.outside)),
            isolation=self.isolation,
        )


def whole(told: Sequence[N | None]) -> N | None:
    """The sum where every run told its part."""
    known = [value for value in told if value is not None]
    return total(known) if len(known) == len(told) else None
