"""Lint of predicates: what does not parse or asks for nothing, what can never hold, and what contradicts."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import get_args

from ckb.facts import FACT_NAMES
from ckb.predicate import PredicateError, predicate
from ckb.predicate_types import mismatches
from ckb.problems import Problem, Rows, of
from ckb.records import Contract, Fragment, Row
from ckb.satisfiable import Domains, satisfiable
from ckb.schemas import Guide, ModelFamily, Parallelism, Platform
from ckb.schemas.models import TEXT_CONFIG

LAYER = {
    "layer.attention": ("full_attention", "sliding_attention", "linear_attention"),
    "layer.mlp": ("dense", "experts"),
}
"""What a tensor's condition may ask of the layer that it is in."""
OF_A_MODEL = {name for name in FACT_NAMES if name.startswith("model.")}


@dataclass(frozen=True)
class Condition:
    """One predicate of a row."""

    where: str
    text: str
    may_ask: frozenset[str]
    """The names that it may speak of."""
    given: tuple[str, ...] = ()
    """Predicates that hold wherever this one is asked."""


def predicate_problems(rows: Rows) -> Iterator[Problem]:
    """Problems of every predicate of every row."""
    domains = _domains(rows)
    names = frozenset(FACT_NAMES | {name for name in domains if name.startswith("choice.")})
    judged: dict[Condition, str] = {}  # a run's rows share their conditions
    bad: set[tuple[str, str]] = set()
    for table, found in rows.items():
        for row in found:
            for condition in _conditions(row, names):
                if condition not in judged:
                    judged[condition] = _problem_of(condition, domains)
                if judged[condition]:
                    bad.add((table, row.id))
                    yield Problem(table, row.id, f"{condition.where}: {judged[condition]}")
    yield from _clashes(rows, domains, bad)


def _domains(rows: Rows) -> Domains:
    """The values of whatever has a closed set of them."""
    contracts, families = of(rows, "contracts", Contract), of(rows, "models", ModelFamily)
    accelerators = get_args(Platform.model_fields["accelerator"].annotation)
    domains: dict[str, tuple[object, ...]] = {"platform.accelerator": accelerators}
    for name, options in (decision for contract in contracts for decision in contract.decisions.items()):
        domains[f"choice.{name}"] = (*domains.get(f"choice.{name}", ()), *options)
    if families:
        domains["model.features"] = (*(f.name for family in families for f in family.features), TEXT_CONFIG.name)
    return domains | LAYER


def _conditions(row: Row, names: frozenset[str]) -> Iterator[Condition]:
    yield Condition("applies_to", row.applies_to, names)
    match row:
        case Contract():
            for option, text in row.decision_requires.items():
                name, _, value = option.partition("=")
                taken = [f"choice.{name} == {known!r}" for known in row.decisions.get(name, ()) if str(known) == value]
                yield Condition(option, text, names, (row.applies_to, *taken))
        case Fragment():
            for value, text in row.parameter_requires.items():
                yield Condition(value, text, names, (row.applies_to,))
        case Parallelism():
            yield Condition("degree", row.degree, names, (row.applies_to,))
        case Guide():
            for entry in row.compatibility:
                where = f"compatibility of {entry.backend} on {', '.join(entry.platforms)}"
                yield Condition(where, entry.condition, names, (row.applies_to,))
        case ModelFamily():
            yield from (Condition(f"feature {f.name}", f.when, frozenset(OF_A_MODEL)) for f in row.features)
            for pattern in (*row.tensors, *row.ignored):
                inside = LAYER.keys() if "{layer}" in pattern.name else set()
                yield Condition(f"tensor {pattern.name}", pattern.when, frozenset(OF_A_MODEL | inside))


def _problem_of(condition: Condition, domains: Domains) -> str:
    """What is wrong with one predicate; nothing, if nothing is."""
    try:
        asked = predicate(condition.text)
        if unknown := asked.names() - condition.may_ask:
            return ", ".join(map(_stranger, sorted(unknown)))
        why = "; ".join(mismatches(asked, domains))
        if satisfiable(condition.text, domains=domains) is False:
            return f"{condition.text!r} can never hold{why and ': '}{why}"
        if why:
            return f"{condition.text!r}: {why}"
        if satisfiable(condition.text, *condition.given, domains=domains) is False:
            given = " and ".join(f"({text})" for text in condition.given if text)
            return f"{condition.text!r} can never hold where {given}"
    except PredicateError as error:  # of the predicate, or of one that it is given
        return str(error)
    return ""


def _stranger(name: str) -> str:
    kind = "the decision" if name.startswith("choice.") else "the fact"
    elsewhere = "can't be asked here" if name in FACT_NAMES | LAYER.keys() else "nothing declares"
    return f"names {kind} {name}, which {elsewhere}"


def _clashes(rows: Rows, domains: Domains, bad: Collection[tuple[str, str]]) -> Iterator[Problem]:
    """Fragments that can never serve their contract, and pairs of which nothing says which is used."""
    contracts = {c.id: c for c in of(rows, "contracts", Contract) if ("contracts", c.id) not in bad}
    fragments = [f for f in of(rows, "fragments", Fragment) if ("fragments", f.id) not in bad]
    filed = [f for f in fragments if f.status == "verified" and f.contract in contracts]
    rules = _rules(contracts.values())
    for fragment in filed:
        above = contracts[fragment.contract].applies_to
        if _together([fragment.applies_to, above], rules, domains) is False:
            what = f"applies_to: {fragment.applies_to!r} can never hold where its contract applies ({above!r})"
            yield Problem("fragments", fragment.id, what)
    for one, other in combinations(sorted(filed, key=lambda f: f.id), 2):
        if (one.contract, one.rank) != (other.contract, other.rank):
            continue
        if _together([one.applies_to, other.applies_to, contracts[one.contract].applies_to], rules, domains):
            what = (
                f"has rank {one.rank} as {other.id} has, and {one.applies_to!r} can hold together with its "
                f"{other.applies_to!r}: nothing but their names says which of them is used"
            )
            yield Problem("fragments", one.id, what)


def _rules(contracts: Iterable[Contract]) -> dict[str, list[str]]:
    """Decision -> what choosing each of its options implies."""
    rules: dict[str, list[str]] = defaultdict(list)
    for contract in contracts:
        for name, options in contract.decisions.items():
            for option in options:
                if required := contract.decision_requires.get(f"{name}={option}"):
                    rules[name].append(f"choice.{name} != {option!r} or ({required})")
    return rules


def _together(texts: list[str], rules: dict[str, list[str]], domains: Domains) -> bool | None:
    """Whether these can hold at once, with what the decisions that they speak of imply."""
    known: set[str] = set()
    try:
        while asked := {name for text in texts for name in predicate(text).choices()} - known:
            texts = [*texts, *(rule for name in sorted(asked) for rule in rules.get(name, ()))]
            known |= asked
        return satisfiable(*texts, domains=domains)
    except PredicateError:  # every one of them can be read, but a rule nests what it requires one deeper
        return None
