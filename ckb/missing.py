"""Why no fragment serves a contract, and what kind of gap that is."""

from collections.abc import Iterator, Mapping, Sequence

from ckb.facts import FACT_NAMES, Facts
from ckb.gaps import Gap, GapKind
from ckb.knowledge_files import Knowledge
from ckb.predicate import Predicate
from ckb.records import Choice, Contract, Fragment
from ckb.standing import unfounded

BY_MODULE: dict[str, GapKind] = {
    "kernels.py": "operator",
    "weights.py": "weight mapping",
    "model.py": "model structure",
    "cache.py": "model structure",
}
"""What it means that a contract of a module has no fragment; `operator` for every other module."""


def why(
    contract: Contract, facts: Facts, filed: Sequence[Fragment], choices: Mapping[str, Choice]
) -> tuple[Gap, list[str]]:
    """Why no fragment serves a contract, from the conditions that the nearest one fails; and the facts in these."""
    kind = BY_MODULE.get(contract.module, "operator")
    if not filed:
        return Gap(kind=kind, subject=contract.id, detail="no fragment is filed under this contract"), []
    failing = {fragment.id: Predicate(fragment.applies_to).failing(facts, choices) for fragment in filed}
    nearest = min(failing, key=lambda id: len(failing[id]))
    names = sorted(name for part in failing[nearest] for name in part.names())
    values = [f"{name} is {facts.lookup(name)!r}" for name in names if name in FACT_NAMES]
    conditions = " and ".join(part.text for part in failing[nearest])
    detail = f"the nearest of {len(filed)} fragments, {nearest}, is for {conditions}; {', '.join(values)}"
    return Gap(kind=kind_of(names, kind), subject=contract.id, detail=detail), names


def kind_of(names: Sequence[str], default: GapKind) -> GapKind:
    """What it means that conditions on these facts don't hold."""
    if "model.weights" in names:
        return "weight format"
    if any(name.startswith("model.") for name in names):
        return "weight mapping" if default == "weight mapping" else "model structure"
    if "platform.count" in names:
        return "parallel partition"
    if any(name.startswith("platform.") for name in names):
        return "platform backend"
    return default


def unfounded_gaps(contract: Contract, facts: Facts, knowledge: Knowledge) -> Iterator[Gap]:
    """Fragments, of whichever choices the facts allow, whose code uses what nothing gives that their contract requires:
    an engine made of them works by luck, or not at all."""
    every = knowledge.fragments.values()
    for fragment in every:
        if fragment.contract != contract.id or not _possible(fragment.applies_to, facts):
            continue
        if missing := unfounded(fragment, contract, knowledge.contracts, every):
            detail = f"fragment {fragment.id} uses {', '.join(missing)}; no contract that {contract.id} requires has it"
            yield Gap(kind=BY_MODULE.get(contract.module, "operator"), subject=contract.id, detail=detail)


def _possible(predicate: str, facts: Facts) -> bool:
    """Whether some choices may make a condition hold: no part of it that asks about facts alone fails."""
    return all(part.choices() for part in Predicate(predicate).failing(facts, {}))
