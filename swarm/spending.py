"""Money and tokens of a run, kept in the one process that calls providers: reserved before a call, settled after.

Both go into a file of the run before the call is sent: an answer that never reached the journal was paid all the same.
"""

import json
import os
import threading
import uuid
from pathlib import Path

from roles.budget import Budget as BudgetProtocol
from roles.completion import CompletionReply, CompletionRequest, Gateway, Price
from swarm.budget import BudgetExceeded


class Spending(BudgetProtocol):
    """Spent plus reserved never exceeds the limits, however many calls are in flight."""

    def __init__(self, usd: float, tokens: int, ledger: Path | None = None):
        """`usd` and `tokens` are the run's limits. `ledger`: a file of JSON lines; what is in it already is spent, and
        so is what an earlier process had reserved when it ended."""
        spent = read_ledger(ledger) if ledger else {"usd": 0.0, "tokens": 0.0}
        self._left = {"usd": usd - spent["usd"], "tokens": tokens - spent["tokens"]}
        self._reserved: dict[str, dict[str, float]] = {}
        self._ledger = ledger
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
            reservation = uuid.uuid4().hex
            self._note({"reserved": reservation, **wanted})
            self._reserved[reservation] = wanted
            return reservation

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        with self._lock:
            self._note({"settled": reservation, "usd": usd, "tokens": tokens})
            del self._reserved[reservation]
            self._left["usd"] -= usd
            self._left["tokens"] -= tokens

    def _note(self, record: dict[str, str | float]) -> None:
        if self._ledger:
            with self._ledger.open("ab", buffering=0) as file:
                file.write(json.dumps(record).encode() + b"\n")
                os.fsync(file)


def read_ledger(path: Path) -> dict[str, float]:
    """What was spent: each settled call at its cost, one that was never settled at its reservation. A line that a
    killed process left half-written is of a call that was not sent."""
    calls: dict[str, dict[str, float]] = {}
    data = path.read_bytes() if path.exists() else b""
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        record = json.loads(line)
        name = record.get("settled") or record["reserved"]
        calls[name] = {"usd": float(record["usd"]), "tokens": float(record["tokens"])}
    if len(data) > data.rfind(b"\n") + 1:
        os.truncate(path, data.rfind(b"\n") + 1)
    return {name: sum(call[name] for call in calls.values()) for name in ("usd", "tokens")}


class Purse:
    """A gateway and the run's spending in one process: what role workers in other processes hold a handle of."""

    def __init__(self, gateway: Gateway | None, usd: float, tokens: int, ledger: Path | None = None):
        """`gateway`: None where no model is called, only commands are."""
        self._gateway = gateway
        self._spending = Spending(usd, tokens, ledger)

    def complete(self, request: CompletionRequest) -> CompletionReply:
        assert self._gateway, "a run without a model completes nothing"
        return self._gateway.complete(request)

    def price(self, model: str) -> Price | None:
        assert self._gateway, "a run without a model asks for no price"
        return self._gateway.price(model)

    def reserve(self, usd: float, tokens: int) -> str:
        return self._spending.reserve(usd, tokens)

    def settle(self, reservation: str, usd: float, tokens: int) -> None:
        self._spending.settle(reservation, usd, tokens)
