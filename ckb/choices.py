"""The decisions that a design starts from: of each the first option that is open to a Target."""

from collections.abc import Iterable, Mapping

from ckb.facts import Facts
from ckb.predicate import predicate
from ckb.records import Choice, Contract


def default_choices(facts: Facts, contracts: Iterable[Contract]) -> dict[str, Choice]:
    """Each decision's first option that is open to these facts; a decision without any is left out."""
    contracts = list(contracts)
    choices: dict[str, Choice] = {}
    while True:
        made = _decided(facts, contracts, choices)
        if not made:
            return choices
        choices |= made


def _decided(facts: Facts, contracts: Iterable[Contract], choices: Mapping[str, Choice]) -> dict[str, Choice]:
    """What can be decided next, empty if nothing can.

    A condition may ask about another contract's decision. An option that waits for one is waited for too, as long as
    anything else can be decided: a compiled step once lost to an eager one because it came before the products that it
    asks for.
    """
    open_now: dict[str, Choice] = {}
    settled: dict[str, Choice] = {}
    for contract in contracts:
        for name in (name for name in contract.decisions if name not in choices):
            waiting, chosen = _first_open(contract, name, facts, choices)
            if chosen:
                open_now[name] = chosen[0]
                settled |= {} if waiting else {name: chosen[0]}
    return settled or dict(list(open_now.items())[:1])


def _first_open(
    contract: Contract, name: str, facts: Facts, choices: Mapping[str, Choice]
) -> tuple[bool, tuple[Choice, ...]]:
    """Whether an option before it waits for another decision; the first option that is open, or none."""
    waiting = False
    for option in contract.decisions[name]:
        failing = predicate(contract.decision_requires.get(f"{name}={option}", "")).failing(facts, choices)
        if not failing:
            return waiting, (option,)
        waiting = waiting or all(part.choices() - choices.keys() for part in failing)
    return waiting, ()
