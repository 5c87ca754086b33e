"""What a Target needs of the knowledge base, and what of it is missing. Pure: facts and rows in, a table out."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ckb.facts import FACT_NAMES, WEIGHT_BYTES, Facts
from ckb.gaps import Gap, GapKind
from ckb.knowledge_files import Knowledge
from ckb.predicate import Predicate
from ckb.records import STAGES, Choice, Contract, Fragment, Row
from ckb.schemas import ModelFamily, Parallelism, Platform, TestContract
from ckb.schemas.models import TEXT_CONFIG
from ckb.standing import unfounded

R = TypeVar("R", bound=Row)

BY_MODULE: dict[str, GapKind] = {
    "kernels.py": "operator",
    "weights.py": "weight mapping",
    "model.py": "model structure",
    "cache.py": "model structure",
}
"""What it means that a contract of a module has no fragment; `operator` for every other module."""


@dataclass(frozen=True)
class Need:
    """One thing that the Target needs."""

    what: str
    """model, feature, weights, platform, parallelism, contract."""
    subject: str
    """The model_type, a feature of the model, the weight format, the platform's name, the number of devices, a
    contract's id."""
    covered_by: tuple[str, ...]
    """Ids of the rows that serve it."""
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """The table of needs."""

    needs: tuple[Need, ...]

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(gap for need in self.needs for gap in need.gaps)

    @property
    def percent(self) -> float:
        """Share of the needs that are covered, 0 to 100."""
        return 100.0 * sum(not need.gaps for need in self.needs) / len(self.needs)

    @property
    def contracts(self) -> tuple[str, ...]:
        """Ids of the needed contracts."""
        return tuple(need.subject for need in self.needs if need.what == "contract")

    def document(self) -> dict[str, object]:
        """The table for machines: plain values that JSON holds."""
        needs = [
            {"what": n.what, "subject": n.subject, "covered_by": list(n.covered_by), "gaps": [dict(g) for g in n.gaps]}
            for n in self.needs
        ]
        return {"percent": self.percent, "covered": not self.gaps, "needs": needs}


def refused(gaps: Sequence[Gap]) -> Coverage:
    """The table of a checkpoint that no models row reads: without its facts nothing else can be asked for."""
    return Coverage(tuple(Need("model", gap.subject, (), (gap,)) for gap in gaps))


def coverage(
    facts: Facts,
    knowledge: Knowledge,
    models: Iterable[ModelFamily],
    platforms: Iterable[Platform],
    tests: Iterable[TestContract],
    parallelism: Iterable[Parallelism] = (),
    unmapped: Sequence[str] = (),
) -> Coverage:
    """What the facts need, and which of it the knowledge serves. `unmapped`: see ckb.checkpoint.Checkpoint."""
    usable = Knowledge(_usable(knowledge.contracts), _usable(knowledge.fragments), knowledge.version)
    choices = default_choices(facts, usable.contracts.values())
    models = list(models)
    test_ids = {test.id for test in tests if test.status == "verified"}
    needs = [_model(facts, models, unmapped), _weights(facts), _platform(facts, platforms)]
    if facts.platform.count > 1:
        needs.append(_parallelism(facts, parallelism))
    contracts, dangling = needed_contracts(facts, usable.contracts, choices)
    ids = {contract.id for contract in contracts}
    rows: list[Contract | Fragment] = [*contracts, *(f for f in usable.fragments.values() if f.contract in ids)]
    needs += [_feature(name, facts, models, rows, choices) for name in facts.model.features]
    needs += [_contract(contract, facts, usable, choices, test_ids) for contract in contracts]
    return Coverage((*needs, *dangling))


def default_choices(facts: Facts, contracts: Iterable[Contract]) -> dict[str, Choice]:
    """Each decision's first option that is open to these facts; a decision without any is left out.

    A condition may ask about another decision. While that one is not made, an option that hangs on it keeps its
    decision waiting, whichever contract comes first: taking the next option then would leave the default unasked for.
    """
    rules = [(name, options, c.decision_requires) for c in contracts for name, options in c.decisions.items()]
    choices: dict[str, Choice] = {}
    for waits in (True, False):  # what is left in a circle takes what is open without the others
        for _ in rules:
            for name, options, requires in rules:
                if name not in choices:
                    for option in options:
                        failing = Predicate(requires.get(f"{name}={option}", "")).failing(facts, choices)
                        if not failing:
                            choices[name] = option
                            break
                        if waits and all(part.choices() - choices.keys() for part in failing):
                            break
    return choices


def needed_contracts(
    facts: Facts, contracts: Mapping[str, Contract], choices: Mapping[str, Choice]
) -> tuple[list[Contract], list[Need]]:
    """The contracts that apply, in the order of construction; and, with its gap, each that they require in vain.

    A required contract that other choices would bring in is none of these: it is not needed under the present ones.
    """
    applying = {id: c for id, c in contracts.items() if _applies(c.applies_to, facts, choices)}
    required = {id: contract.id for contract in applying.values() for id in contract.requires if id not in applying}
    dangling = []
    for id, by in sorted(required.items()):
        there = contracts.get(id)
        failing = Predicate(there.applies_to).failing(facts, choices) if there else []
        facts_only = [part.text for part in failing if not part.choices()]
        if there and not facts_only:
            continue
        why = f"applies only if {' and '.join(facts_only)}" if there else "is not in the knowledge base"
        kind = BY_MODULE.get(there.module, "operator") if there else "operator"
        gap = Gap(kind=kind, subject=id, detail=f"contract {by} requires it, and it {why}")
        dangling.append(Need("contract", id, (), (gap,)))
    return sorted(applying.values(), key=lambda c: (STAGES.index(c.stage), c.module, c.order, c.id)), dangling


def _applies(predicate: str, facts: Facts, choices: Mapping[str, Choice]) -> bool:
    return not Predicate(predicate).failing(facts, choices)


def _usable(rows: Mapping[str, R]) -> dict[str, R]:
    return {id: row for id, row in rows.items() if row.status == "verified"}


def _model(facts: Facts, models: Iterable[ModelFamily], unmapped: Sequence[str]) -> Need:
    name = facts.model.model_type
    rows = tuple(row.id for row in _families(facts, models))
    gaps = [
        Gap(kind="weight mapping", subject=subject, detail=f"the models row of {name} does not know {what}")
        for subject, what in _grouped(unmapped)
    ]
    if not rows:
        detail = f"no row of the models table describes model_type {name}"
        gaps.append(Gap(kind="model structure", subject=facts.model.architecture, detail=detail))
    return Need("model", name, rows, tuple(gaps))


def _families(facts: Facts, models: Iterable[ModelFamily]) -> list[ModelFamily]:
    model = facts.model
    return [m for m in models if m.model_type == model.model_type and model.architecture in m.every_architecture]


def _grouped(tensors: Sequence[str]) -> list[tuple[str, str]]:
    """(subject, what it is) of tensors that differ only in their numbers: a model has one name a layer and expert."""
    groups = defaultdict(list)
    for name in tensors:
        groups[re.sub(r"\d+", "*", name)].append(name)
    return [
        (names[0], "this tensor") if len(names) == 1 else (pattern, f"these {len(names)} tensors")
        for pattern, names in groups.items()
    ]


def _feature(
    name: str,
    facts: Facts,
    models: Iterable[ModelFamily],
    rows: Iterable[Contract | Fragment],
    choices: Mapping[str, Choice],
) -> Need:
    """A feature is served by the contract of its name, and by what is in force only because the model has it."""
    others = tuple(feature for feature in facts.model.features if feature != name)
    without = facts.model_copy(update={"model": facts.model.model_copy(update={"features": others})})
    serving = tuple(
        row.id
        for row in rows
        if _applies(row.applies_to, facts, choices)
        and (not _applies(row.applies_to, without, choices) or (row.id == name and isinstance(row, Contract)))
    )
    if serving:
        return Need("feature", name, serving)
    known = [feature for family in _families(facts, models) for feature in (*family.features, TEXT_CONFIG)]
    feature = next((feature for feature in known if feature.name == name), None)
    detail = f"no contract or fragment is for it: {feature.text}" if feature else "no models row says what it is"
    kind: GapKind = feature.kind if feature else "model structure"
    return Need("feature", name, (), (Gap(kind=kind, subject=name, detail=detail),))


def _weights(facts: Facts) -> Need:
    stored = facts.model.weights
    if stored in WEIGHT_BYTES:
        return Need("weights", stored, (stored,))
    detail = f"the checkpoint stores its matrices as {stored}; known are {', '.join(WEIGHT_BYTES)}"
    return Need("weights", stored, (), (Gap(kind="weight format", subject=stored, detail=detail),))


def _platform(facts: Facts, platforms: Iterable[Platform]) -> Need:
    machine = facts.platform
    about = [p for p in platforms if p.status != "deprecated" and _applies(p.applies_to, facts, {})]
    rows = tuple(p.id for p in about if p.status == "verified")
    if rows:
        return Need("platform", machine.name, rows)
    detail = f"no row of the platforms table applies to {machine.accelerator} {machine.name}"
    if about:
        ids = ", ".join(p.id for p in about)
        detail = f"the row {ids} describes it and is a draft: no engine of this knowledge base has run there"
    return Need("platform", machine.name, (), (Gap(kind="platform backend", subject=machine.name, detail=detail),))


def _parallelism(facts: Facts, parallelism: Iterable[Parallelism]) -> Need:
    count = str(facts.platform.count)
    rows = tuple(p.id for p in parallelism if p.status == "verified" and _applies(p.applies_to, facts, {}))
    if rows:
        return Need("parallelism", count, rows)
    detail = f"no row of the parallelism table spreads this model over {count} devices"
    return Need("parallelism", count, (), (Gap(kind="parallel partition", subject=f"{count} devices", detail=detail),))


def _contract(
    contract: Contract, facts: Facts, knowledge: Knowledge, choices: Mapping[str, Choice], tests: set[str]
) -> Need:
    gaps = []
    filed = [fragment for fragment in knowledge.fragments.values() if fragment.contract == contract.id]
    served = tuple(fragment.id for fragment in filed if _applies(fragment.applies_to, facts, choices))
    if contract.module and not served:  # without a module it is the whole engine that fulfils the contract
        gaps.append(_why(contract, facts, filed, choices))
    gaps += _unfounded(contract, facts, knowledge)
    for name in contract.decisions.keys() - choices.keys():
        detail = f"none of the options {contract.decisions[name]} of {name} is open to this Target"
        gaps.append(Gap(kind=BY_MODULE.get(contract.module, "operator"), subject=contract.id, detail=detail))
    if contract.test not in tests:
        detail = f"its test {contract.test!r} is not among the test contracts"
        gaps.append(Gap(kind="test", subject=contract.id, detail=detail))
    return Need("contract", contract.id, served, tuple(gaps))


def _unfounded(contract: Contract, facts: Facts, knowledge: Knowledge) -> Iterator[Gap]:
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


def _why(contract: Contract, facts: Facts, filed: Sequence[Fragment], choices: Mapping[str, Choice]) -> Gap:
    """Why no fragment serves a contract, from the conditions that the nearest one fails."""
    kind = BY_MODULE.get(contract.module, "operator")
    if not filed:
        return Gap(kind=kind, subject=contract.id, detail="no fragment is filed under this contract")
    failing = {fragment.id: Predicate(fragment.applies_to).failing(facts, choices) for fragment in filed}
    nearest = min(failing, key=lambda id: len(failing[id]))
    names = sorted(name for part in failing[nearest] for name in part.names())
    values = [f"{name} is {facts.lookup(name)!r}" for name in names if name in FACT_NAMES]
    conditions = " and ".join(part.text for part in failing[nearest])
    detail = f"the nearest of {len(filed)} fragments, {nearest}, is for {conditions}; {', '.join(values)}"
    return Gap(kind=_kind(names, kind), subject=contract.id, detail=detail)


def _kind(names: Sequence[str], default: GapKind) -> GapKind:
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
