"""Draft contracts in a coverage: what they describe is still a gap, and the gap says who describes it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ckb.facts import Facts
from ckb.predicate import Predicate
from ckb.records import Choice, Contract


def applies(predicate: str, facts: Facts, choices: Mapping[str, Choice]) -> bool:
    """Whether every part of a condition holds; one that asks for a decision that nobody has made doesn't."""
    return not Predicate(predicate).failing(facts, choices)


@dataclass(frozen=True)
class Drafts:
    """The draft contracts that these facts ask for."""

    contracts: tuple[Contract, ...]
    choices: Mapping[str, Choice]
    """Of verified contracts and of drafts."""

    @classmethod
    def in_force(cls, drafts: Iterable[Contract], facts: Facts, choices: Mapping[str, Choice]) -> "Drafts":
        """Those of `drafts` that apply."""
        return cls(tuple(draft for draft in drafts if applies(draft.applies_to, facts, choices)), choices)

    def only_for(self, what: str, otherwise: Facts) -> tuple[str, ...]:
        """Ids of those that would not apply to `otherwise`, or that have the name of what is asked about."""
        return tuple(
            draft.id
            for draft in self.contracts
            if draft.id == what or not applies(draft.applies_to, otherwise, self.choices)
        )

    def naming(self, facts: Collection[str]) -> tuple[str, ...]:
        """Ids of those whose condition names one of these facts."""
        return tuple(draft.id for draft in self.contracts if Predicate(draft.applies_to).names() & set(facts))

    def others(self, named: Collection[str]) -> tuple[Contract, ...]:
        """Those that have not been named."""
        return tuple(draft for draft in self.contracts if draft.id not in named)


def described(ids: Collection[str], kind: str = "contract") -> str:
    """What a gap says of the drafts that describe what is missing; empty if there are none."""
    if not ids:
        return ""
    if len(ids) == 1:
        return f"{kind} {next(iter(ids))} describes it and is a draft: no gate has run it"
    return f"{kind}s {', '.join(ids)} describe it and are drafts: no gate has run them"
