"""The limit on what authors may spend, as a call sees it. The run's ledger implements it."""

from typing import Protocol


class Budget(Protocol):
    """Each call reserves its worst case before it is sent and settles what it really cost afterwards.

    A call that is cut off is settled at its reservation; one that is never settled counts as reserved.
    """

    def reserve(self, usd: float, tokens: int, issue: str = "") -> str:
        """Sets money and tokens aside and names the reservation. `issue`: whose own limits apply too. Raises a
        UserError that says which limit is hit, NoAnswer where it is the issue's."""
        ...

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        """Replaces a reservation by what was spent."""
        ...


class ForIssue:
    """A budget for authors, whose calls are for one issue after the other. Empty: for none."""

    def __init__(self, budget: Budget):
        self._budget = budget
        self.issue = ""

    def reserve(self, usd: float, tokens: int, issue: str = "") -> str:
        return self._budget.reserve(usd, tokens, issue or self.issue)

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        self._budget.settle(reservation, usd, tokens)


class Unlimited:
    """For single calls that a person asked for by hand: `authors check`, `init`."""

    def reserve(self, usd: float, tokens: int, issue: str = "") -> str:
        return ""

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        pass
