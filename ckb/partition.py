"""Whether a row of the parallelism table spreads a model over a number of devices."""

from collections.abc import Iterable

from ckb.facts import Facts
from ckb.predicate import Predicate, predicate
from ckb.schemas import Parallelism


def hindrances(row: Parallelism, facts: Facts) -> list[str]:
    """What keeps a way from serving these facts, each in a few words with its numbers; empty if nothing does."""
    count = facts.platform.count
    uneven = [(name, value) for name in row.divides if (value := _number(facts, name)) % count]
    odd = [(n, value) for n in row.divides_or_copies if (value := _number(facts, n)) % count and count % max(value, 1)]
    return [
        *(f"it is for {part.text}" for part in _failing(row, facts)),
        *(f"{count} devices don't divide {name}, which is {value}" for name, value in uneven),
        *(f"of {count} devices and {name}, which is {value}, neither divides the other" for name, value in odd),
    ]


def nearest(rows: Iterable[Parallelism], facts: Facts) -> Parallelism:
    """Of ways that don't serve, the one to talk about: made for such models first, then with the fewest hindrances."""
    return min(rows, key=lambda row: (len(_failing(row, facts)), len(hindrances(row, facts))))


def _failing(row: Parallelism, facts: Facts) -> list[Predicate]:
    return [part for text in (row.applies_to, row.degree) for part in predicate(text).failing(facts)]


def _number(facts: Facts, name: str) -> int:
    value = facts.lookup(f"model.{name}")
    assert isinstance(value, int), f"{name} is {value!r}, no number to divide"
    return value
