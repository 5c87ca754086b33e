"""The limit on what authors may spend, as a call sees it. The run's ledger implements it."""

from typing import Protocol


class Budget(Protocol):
    """Each call reserves its worst case before it is sent and settles what it really cost afterwards.

    A call that is cut off is settled at its reservation; one that is never settled counts as reserved.
    """

    def reserve(self, usd: float, tokens: int) -> str:
        """Sets money and tokens aside and names the reservation. Raises a UserError that says which limit is hit."""
        ...

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        """Replaces a reservation by what was spent."""
        ...


class Unlimited:
    """For single calls that a person asked for by hand: `authors check`, `init`."""

    def reserve(self, usd: float, tokens: int) -> str:
        return ""

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        pass
