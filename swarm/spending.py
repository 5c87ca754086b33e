"""Money and tokens of a run, kept in the one process that calls providers: reserved before a call, settled after."""

import itertools
import threading

from roles.budget import Budget as BudgetProtocol
from roles.completion import CompletionReply, CompletionRequest, Gateway, Price
from swarm.budget import BudgetExceeded


class Spending(BudgetProtocol):
    """Spent plus reserved never exceeds the limits, however many calls are in flight."""

    def __init__(self, usd: float, tokens: int):
        """`usd` and `tokens` are what is left of the run's limits."""
        self._left = {"usd": usd, "tokens": float(tokens)}
        self._reserved: dict[str, dict[str, float]] = {}
        self._names = map(str, itertools.count(1))
        self._lock = threading.Lock()

    def reserve(self, usd: float, tokens: int) -> str:
        wanted = {"usd": usd, "tokens": float(tokens)}
        with self._lock:
            for name, amount in wanted.items():
                held = sum(reservation[name] for reservation in self._reserved.values())
                if amount and held + amount > self._left[name]:
                    raise BudgetExceeded(
                        f"budget.{name}: a call may need {amount:.6g}, and {self._left[name] - held:.6g} is left. "
                        f"Raise budget.{name} and resume."
                    )
            reservation = next(self._names)
            self._reserved[reservation] = wanted
            return reservation

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        with self._lock:
            del self._reserved[reservation]
            self._left["usd"] -= usd
            self._left["tokens"] -= tokens


class Purse:
    """A gateway and the run's spending in one process: what role workers in other processes hold a handle of."""

    def __init__(self, gateway: Gateway, usd: float, tokens: int):
        self._gateway = gateway
        self._spending = Spending(usd, tokens)

    def complete(self, request: CompletionRequest) -> CompletionReply:
        return self._gateway.complete(request)

    def price(self, model: str) -> Price | None:
        return self._gateway.price(model)

    def reserve(self, usd: float, tokens: int) -> str:
        return self._spending.reserve(usd, tokens)

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        self._spending.settle(reservation, usd, tokens)
