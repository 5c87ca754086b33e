"""The design space of a Target: decisions of contracts and parameters of fragments, and how they hang together.

An assignment maps every decision to an option, and every parameter of a fragment that it selects to a value. Parameters
are named `<fragment id>.<NAME>`. Contracts and fragments may depend on decisions through `applies_to`, options through
`decision_requires`.
"""

from collections.abc import Iterable, Iterator, Mapping

from ckb.errors import KnowledgeGap, UserError
from ckb.facts import Facts
from ckb.predicate import Predicate, predicate
from ckb.records import Choice, Contract, Fragment

Assignment = dict[str, Choice]


class Unsatisfiable(UserError):
    """Choices that can't be made together for this Target."""


def decisions(contracts: Iterable[Contract]) -> dict[str, tuple[Choice, ...]]:
    """Every decision that the contracts leave open, with all its options, the default first."""
    return {name: options for contract in contracts for name, options in contract.decisions.items()}


def in_force(contracts: Iterable[Contract], facts: Facts, choices: Mapping[str, Choice]) -> list[Contract]:
    """The contracts that this Target needs under these choices."""
    return [contract for contract in contracts if predicate(contract.applies_to).holds(facts, choices)]


def select(contract: Contract, fragments: Iterable[Fragment], facts: Facts, choices: Mapping[str, Choice]) -> Fragment:
    """The fragment for a contract: of those whose condition holds the one of highest rank, then of lowest id.

    Raises KnowledgeGap when there is none.
    """
    filed = (fragment for fragment in fragments if fragment.contract == contract.id)
    fitting = [fragment for fragment in filed if predicate(fragment.applies_to).holds(facts, choices)]
    if not fitting:
        raise KnowledgeGap(contract.id, f"a {facts.model.model_type} engine with the choices {dict(choices)}")
    return min(fitting, key=lambda fragment: (-fragment.rank, fragment.id))


def selection(
    contracts: Iterable[Contract], fragments: Iterable[Fragment], facts: Facts, choices: Mapping[str, Choice]
) -> list[tuple[Contract, Fragment]]:
    """The fragment for each contract in force that a module fulfils. Raises KnowledgeGap."""
    available = list(fragments)
    needed = in_force(contracts, facts, choices)
    return [(contract, select(contract, available, facts, choices)) for contract in needed if contract.module]


def values(fragment: Fragment, name: str, facts: Facts, choices: Mapping[str, Choice]) -> tuple[Choice, ...]:
    """The values of a fragment's parameter that are open under these choices, the default first."""

    def is_open(value: Choice) -> bool:
        return predicate(fragment.parameter_requires.get(f"{name}={value}", "")).holds(facts, choices)

    return tuple(value for value in fragment.parameters[name] if is_open(value))


def complete(
    fixed: Mapping[str, Choice],
    contracts: Iterable[Contract],
    fragments: Iterable[Fragment],
    facts: Facts,
    prefer: Mapping[str, Choice] | None = None,
) -> Assignment:
    """A full assignment with the choices of `fixed`, else those of `prefer` where they can stay, else defaults; one
    that every contract has a fragment for, if there is one.

    Raises Unsatisfiable when the fixed choices contradict each other or the Target, KnowledgeGap when the decisions
    can be made but a contract has no fragment under any of them.
    """
    contracts, available, wanted = list(contracts), list(fragments), {**(prefer or {}), **fixed}
    options = decisions(contracts)
    given = {k: v for k, v in fixed.items() if k in options}
    rules = _rules(fixed, contracts, available)
    chosen = dict(given)
    asked = _asks(contracts, available)
    for group in _groups(options, asked.values(), rules):
        about = [rule for rule in rules if rule[0] in group or (not rule[0] and rule[2].choices() <= group)]
        concerned = [contract for contract in contracts if asked[contract.id] & group]
        start = {name: option for name, option in given.items() if name in group}
        own = {name: every for name, every in options.items() if name in group}
        first = next(_search(own, start, wanted, about, facts), None)
        found = _search(own, start, wanted, about, facts)
        made = next((choices for choices in found if not _gap(concerned, available, facts, choices)), first)
        if made is None:
            raise Unsatisfiable(f"the choices {dict(fixed)} can't be made together for this Target")
        chosen |= made
    assignment: Assignment = {**given, **{name: chosen[name] for name in options}}
    for _, fragment in selection(contracts, available, facts, chosen):
        for name in fragment.parameters:
            key, offered = f"{fragment.id}.{name}", values(fragment, name, facts, chosen)
            if not offered:
                raise Unsatisfiable(f"none of the values {list(fragment.parameters[name])} of {key} is open here")
            if key in fixed and fixed[key] not in offered:
                raise Unsatisfiable(f"{key} is one of {list(offered)} for this Target, not {fixed[key]!r}")
            assignment[key] = wanted[key] if wanted.get(key) in offered else offered[0]
    if unknown := fixed.keys() - assignment.keys():
        raise Unsatisfiable(f"there is no decision or parameter {', '.join(sorted(unknown))}")
    return assignment


def _rules(
    fixed: Mapping[str, Choice], contracts: list[Contract], fragments: list[Fragment]
) -> list[tuple[str, Choice, Predicate]]:
    """(decision, option, what must hold if it is taken); a decision of "" means that it must hold in any case."""
    rules: list[tuple[str, Choice, Predicate]] = []
    for contract in contracts:
        for name, options in contract.decisions.items():
            required = ((option, contract.decision_requires.get(f"{name}={option}")) for option in options)
            rules += [(name, option, predicate(text)) for option, text in required if text]
    by_id = {f.id: f for f in fragments}
    owners = {c.id: c for c in contracts}
    for key in fixed:
        if fragment := by_id.get(key.rpartition(".")[0]):  # a fixed parameter needs its fragment
            rules += [
                ("", "", predicate(fragment.applies_to)),
                ("", "", predicate(owners[fragment.contract].applies_to)),
            ]
    return rules


def _asks(contracts: Iterable[Contract], fragments: Iterable[Fragment]) -> dict[str, frozenset[str]]:
    """By contract the decisions that say whether it is in force, and which of its fragments serves it."""
    asked = {contract.id: predicate(contract.applies_to).choices() for contract in contracts}
    for fragment in fragments:
        if fragment.contract in asked:
            asked[fragment.contract] |= predicate(fragment.applies_to).choices()
    return asked


def _groups(
    options: Mapping[str, tuple[Choice, ...]],
    asked: Iterable[frozenset[str]],
    rules: list[tuple[str, Choice, Predicate]],
) -> list[set[str]]:
    """The decisions in groups that nothing links, in which each can be searched by itself: whoever searches all of them
    at once tries every combination of what has nothing to do with each other. Rules on facts alone are an empty
    group's."""
    linked = [together & options.keys() for together in asked]
    linked += [(rule.choices() | {name}) & options.keys() for name, _, rule in rules]
    groups: list[set[str]] = [{name} for name in options]
    for link in linked:
        touched = [group for group in groups if group & link]
        if len(touched) > 1:
            groups = [group for group in groups if not group & link] + [set().union(*touched)]
    return [set(), *groups]


def _search(
    options: Mapping[str, tuple[Choice, ...]],
    chosen: Assignment,
    wanted: Mapping[str, Choice],
    rules: list[tuple[str, Choice, Predicate]],
    facts: Facts,
) -> Iterator[Assignment]:
    """Depth first over the decisions, the wanted option first: every assignment that breaks no rule."""
    for name, option, rule in rules:
        taken = not name or chosen.get(name) == option
        if taken and rule.choices() <= chosen.keys() and not rule.holds(facts, chosen):
            return
    left = [name for name in options if name not in chosen]
    if not left:
        yield chosen
        return
    name = left[0]
    for option in sorted(options[name], key=lambda option: option != wanted.get(name)):
        yield from _search(options, {**chosen, name: option}, wanted, rules, facts)


def _gap(contracts: list[Contract], fragments: list[Fragment], facts: Facts, choices: Assignment) -> bool:
    """Whether a contract that these choices put in force has no fragment."""
    try:
        selection(contracts, fragments, facts, choices)
    except KnowledgeGap:
        return True
    return False


def default_assignment(contracts: Iterable[Contract], fragments: Iterable[Fragment], facts: Facts) -> Assignment:
    """The first option of every decision and the first value of every parameter that the Target allows."""
    return complete({}, contracts, fragments, facts)


def open_space(
    contracts: Iterable[Contract], fragments: Iterable[Fragment], facts: Facts
) -> dict[str, tuple[Choice, ...]]:
    """Decisions and parameters with more than one value that some assignment for these facts can take."""
    contracts, available = list(contracts), list(fragments)

    def possible(key: str, value: Choice) -> bool:
        try:
            complete({key: value}, contracts, available, facts)
        except (Unsatisfiable, KnowledgeGap):
            return False
        return True

    space = {key: tuple(v for v in every if possible(key, v)) for key, every in _dimensions(contracts, available)}
    return {key: offered for key, offered in space.items() if len(offered) > 1}


def _dimensions(contracts: list[Contract], fragments: list[Fragment]) -> Iterator[tuple[str, tuple[Choice, ...]]]:
    yield from decisions(contracts).items()
    owned = {contract.id for contract in contracts}
    for fragment in fragments:
        if fragment.contract in owned:
            yield from ((f"{fragment.id}.{name}", every) for name, every in fragment.parameters.items())


def affects(contracts: Iterable[Contract], fragments: Iterable[Fragment]) -> dict[str, tuple[str, ...]]:
    """Decision or parameter -> the parts of a step that it can change: what its fragments say of themselves."""
    contracts, available = list(contracts), list(fragments)
    result = {}
    for key, _ in _dimensions(contracts, available):
        owner = key.rpartition(".")[0]
        about = [f for f in available if f.id == owner or key in predicate(f.applies_to).choices()]
        result[key] = tuple(sorted({part for fragment in about for part in fragment.affects}))
    return result
