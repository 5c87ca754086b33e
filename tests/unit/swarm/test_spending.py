"""What providers were paid survives the process that paid them."""

from pathlib import Path

import pytest

from swarm.budget import BudgetExceeded
from swarm.limits import Limits
from swarm.spending import Spending
from swarm.spent import read_spent
from swarm.target import Budget


def test_a_second_process_knows_what_the_first_one_spent_and_had_reserved(tmp_path: Path) -> None:
    ledger = tmp_path / "spending.jsonl"
    first = Spending(Limits(Budget(usd=1, tokens=1000)), ledger)
    first.settle(first.reserve(0.5, 400), 0.25, 200)
    first.reserve(0.25, 100)  # killed before its answer came: it may have been billed
    with ledger.open("ab") as file:
        file.write(b'{"reserved": "half a li')
    assert read_spent(ledger).total == {"usd": 0.5, "tokens": 300.0}
    second = Spending(Limits(Budget(usd=1, tokens=1000)), ledger)
    with pytest.raises(BudgetExceeded, match=r"a call may need 0.6, and 0.5 is left"):
        second.reserve(0.6, 10)
    second.settle(second.reserve(0.5, 10), 0.5, 10)
    assert read_spent(ledger).total == {"usd": 1.0, "tokens": 310.0}
