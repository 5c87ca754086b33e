"""The file of what providers were paid, read by whoever wants to know."""

import json
from dataclasses import dataclass, field
from pathlib import Path

Amounts = dict[str, float]
"""`usd` and `tokens`."""


@dataclass(frozen=True)
class Spent:
    """Each settled call at its cost; one that was not settled, in flight or cut by a crash, at its reservation."""

    total: Amounts
    by_issue: dict[str, Amounts] = field(default_factory=dict)
    whole: int = 0
    """Bytes of the file's whole lines: what follows is half of a line, of a call that was never sent."""
    estimated: int = 0
    """Calls that count at their reservation."""


def read_spent(path: Path) -> Spent:
    """What the file says by now; it may be written to meanwhile."""
    data = path.read_bytes() if path.exists() else b""
    whole = data.rfind(b"\n") + 1
    calls: dict[str, Amounts] = {}
    issues: dict[str, str] = {}
    open_calls: set[str] = set()
    for line in data[:whole].splitlines():
        record = json.loads(line)
        name = record.get("settled") or record["reserved"]
        calls[name] = {"usd": float(record["usd"]), "tokens": float(record["tokens"])}
        if "settled" in record:
            open_calls.discard(name)
        else:
            open_calls.add(name)
            issues[name] = record.get("issue", "")
    by_issue: dict[str, Amounts] = {}
    for name, amounts in calls.items():
        if issue := issues.get(name, ""):
            so_far = by_issue.setdefault(issue, {"usd": 0.0, "tokens": 0.0})
            for kind, amount in amounts.items():
                so_far[kind] += amount
    total = {kind: sum(call[kind] for call in calls.values()) for kind in ("usd", "tokens")}
    return Spent(total, by_issue, whole, len(open_calls))
