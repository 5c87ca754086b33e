"""Money and tokens of a run, kept in the one process that calls providers: reserved before a call, settled after.

Both go into a file of the run before the call is sent: an answer that never reached the journal was paid all the same.
"""

import json
import os
import threading
import uuid
from pathlib import Path

from roles.author import NoAnswer
from roles.budget import Budget as BudgetProtocol
from roles.completion import CompletionReply, CompletionRequest, Gateway, Price
from swarm.budget import HINT, BudgetExceeded
from swarm.limits import Limits
from swarm.spent import Amounts, read_spent


class Spending(BudgetProtocol):
    """Spent plus reserved never exceeds the limits, however many calls are in flight."""

    def __init__(self, limits: Limits, ledger: Path | None = None):
        """`ledger`: a file of JSON lines; what is in it already is spent, and so is what an earlier process had
        reserved when it ended."""
        self._limits = limits
        self._held: dict[str, tuple[str, Amounts]] = {}
        """Reservation -> (issue, amounts), of calls in flight."""
        self._ledger = ledger
        self._lock = threading.Lock()
        self._spent: Amounts = {"usd": 0.0, "tokens": 0.0}
        self._by_issue: dict[str, Amounts] = {}
        if ledger and ledger.exists():
            before = read_spent(ledger)
            os.truncate(ledger, before.whole)
            self._spent, self._by_issue = before.total, before.by_issue

    def reserve(self, usd: float, tokens: int, issue: str = "") -> str:
        """`issue`: whose limits apply too; empty for what no issue pays. Raises BudgetExceeded for the run's limits,
        NoAnswer for the issue's: the others go on."""
        wanted = {"usd": usd, "tokens": float(tokens)}
        with self._lock:
            limits = self._limits.now
            for name, amount in wanted.items():
                left = float(getattr(limits, name)) - self._spent[name] - self._reserved(name)
                if amount and amount > left:
                    raise BudgetExceeded(f"budget.{name}: a call may need {amount:.6g}, and {left:.6g} is left. {HINT}")
                own = getattr(limits.issue, name) if limits.issue and issue else None
                if amount and own is not None:
                    spent = self._by_issue.get(issue, {}).get(name, 0.0)
                    left = own - spent - self._reserved(name, issue)
                    if amount > left:
                        raise NoAnswer(
                            f"budget.issue.{name}: a call may need {amount:.6g}, {left:.6g} is left of {own:g}"
                        )
            reservation = uuid.uuid4().hex
            whose: dict[str, str | float] = {"issue": issue} if issue else {}
            self._note({"reserved": reservation, **wanted, **whose})
            self._held[reservation] = issue, wanted
            return reservation

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        with self._lock:
            self._note({"settled": reservation, "usd": usd, "tokens": tokens})
            issue, _ = self._held.pop(reservation)
            for account in (self._spent, self._by_issue.setdefault(issue, {"usd": 0.0, "tokens": 0.0})):
                account["usd"] += usd
                account["tokens"] += tokens

    def _reserved(self, name: str, issue: str | None = None) -> float:
        return sum(amounts[name] for whose, amounts in self._held.values() if issue is None or whose == issue)

    def _note(self, record: dict[str, str | float]) -> None:
        if self._ledger:
            with self._ledger.open("ab", buffering=0) as file:
                file.write(json.dumps(record).encode() + b"\n")
                os.fsync(file)


class Purse:
    """A gateway and the run's spending in one process: what role workers in other processes hold a handle of."""

    def __init__(self, gateway: Gateway | None, limits: Limits, ledger: Path | None = None):
        """`gateway`: None where no model is called, only commands are."""
        self._gateway = gateway
        self._spending = Spending(limits, ledger)

    def complete(self, request: CompletionRequest) -> CompletionReply:
        assert self._gateway, "a run without a model completes nothing"
        return self._gateway.complete(request)

    def price(self, model: str) -> Price | None:
        assert self._gateway, "a run without a model asks for no price"
        return self._gateway.price(model)

    def reserve(self, usd: float, tokens: int, issue: str = "") -> str:
        return self._spending.reserve(usd, tokens, issue)

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        self._spending.settle(reservation, usd, tokens)
