"""What a Target needs of the knowledge base, and what of it is missing. Pure: facts and rows in, a table out."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ckb.choices import default_choices
from ckb.drafts import Drafts, applies, described
from ckb.facts import Facts
from ckb.gaps import Gap, GapKind
from ckb.knowledge_files import Knowledge
from ckb.missing import BY_MODULE, unfounded_gaps, why
from ckb.operators import PlannedOperator, describing, planned
from ckb.partition import hindrances, nearest
from ckb.predicate import predicate
from ckb.records import STAGES, Choice, Contract, Fragment, Row
from ckb.schemas import ModelFamily, Parallelism, Platform, TestContract
from ckb.schemas.models import TEXT_CONFIG
from ckb.schemas.platforms import TriedOperator

R = TypeVar("R", bound=Row)
Rule = Contract | Fragment

WEIGHTS = "model.weights"
NO_FORMAT = ""
"""A format in which nothing is stored: what asks for no other one is not for the format that is."""


@dataclass(frozen=True)
class Need:
    """One thing that the Target needs."""

    what: str
    """model, feature, weights, platform, operator, parallelism, contract."""
    subject: str
    """The model_type, a feature of the model, the weight format, the platform's name, an operator library, the number
    of devices, a contract's id."""
    covered_by: tuple[str, ...]
    """Ids of the rows that serve it."""
    gaps: tuple[Gap, ...] = ()
    described_by: tuple[str, ...] = ()
    """Ids of draft contracts that describe what is missing."""
    note: str = ""
    """Of an operator: what a run on this machine showed, and what is used instead of one that is not usable."""


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
            {"what": need.what, "subject": need.subject, "gaps": [dict(gap) for gap in need.gaps], "note": need.note}
            | {"covered_by": list(need.covered_by), "described_by": list(need.described_by)}
            for need in self.needs
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
    tried: Sequence[TriedOperator] = (),
) -> Coverage:
    """What the facts need, and which of it the knowledge serves. `unmapped`: see ckb.checkpoint.Checkpoint. `tried`:
    the operators that the Target lists, as this machine has them."""
    usable = Knowledge(_usable(knowledge.contracts), _usable(knowledge.fragments), knowledge.version)
    choices = default_choices(facts, usable.contracts.values())
    models, machines = list(models), describing(facts.platform, platforms)
    test_ids = {test.id for test in tests if test.status == "verified"}
    every = [*usable.contracts.values(), *knowledge.drafts.values()]
    drafts = Drafts.in_force(knowledge.drafts.values(), facts, choices | default_choices(facts, every))
    contracts, dangling = needed_contracts(facts, usable.contracts, choices)
    ids = {contract.id for contract in contracts}
    filed = [fragment for fragment in usable.fragments.values() if fragment.contract in ids]
    rules: list[Rule] = [*contracts, *filed]
    in_force = [rule for rule in rules if applies(rule.applies_to, facts, choices)]
    reading = _reading(facts, rules, choices)
    needs = [_model(facts, models, unmapped), _weights(facts, reading, drafts), _platform(facts, machines)]
    needs += [_operator(operator) for operator in planned(tried, machines)]
    if facts.platform.count > 1:
        needs.append(_parallelism(facts, parallelism, drafts))
    needs += [_feature(name, facts, models, in_force, choices, drafts) for name in facts.model.features]
    needs += [_contract(contract, facts, usable, choices, test_ids, drafts) for contract in contracts]
    named = {id for need in needs for id in need.described_by}
    return Coverage((*needs, *dangling, *(_only_described(draft) for draft in drafts.others(named))))


def needed_contracts(
    facts: Facts, contracts: Mapping[str, Contract], choices: Mapping[str, Choice]
) -> tuple[list[Contract], list[Need]]:
    """The contracts that apply, in the order of construction; and, with its gap, each that they require in vain.

    A required contract that other choices would bring in is none of these: it is not needed under the present ones.
    """
    applying = {id: c for id, c in contracts.items() if applies(c.applies_to, facts, choices)}
    required = {id: contract.id for contract in applying.values() for id in contract.requires if id not in applying}
    dangling = []
    for id, by in sorted(required.items()):
        there = contracts.get(id)
        failing = predicate(there.applies_to).failing(facts, choices) if there else []
        facts_only = [part.text for part in failing if not part.choices()]
        if there and not facts_only:
            continue
        why = f"applies only if {' and '.join(facts_only)}" if there else "is not in the knowledge base"
        kind = BY_MODULE.get(there.module, "operator") if there else "operator"
        gap = Gap(kind=kind, subject=id, detail=f"contract {by} requires it, and it {why}")
        dangling.append(Need("contract", id, (), (gap,)))
    return sorted(applying.values(), key=lambda c: (STAGES.index(c.stage), c.module, c.order, c.id)), dangling


def _usable(rows: Mapping[str, R]) -> dict[str, R]:
    return {id: row for id, row in rows.items() if row.usable}


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
    in_force: Iterable[Rule],
    choices: Mapping[str, Choice],
    drafts: Drafts,
) -> Need:
    """A feature is served by the contract of its name, and by what is in force only because the model has it."""
    others = tuple(feature for feature in facts.model.features if feature != name)
    without = facts.model_copy(update={"model": facts.model.model_copy(update={"features": others})})
    named = tuple(row.id for row in in_force if row.id == name and isinstance(row, Contract))
    only_for = tuple(row.id for row in in_force if not applies(row.applies_to, without, choices))
    if serving := named or only_for:
        return Need("feature", name, serving)
    known = [feature for family in _families(facts, models) for feature in (*family.features, TEXT_CONFIG)]
    feature = next((feature for feature in known if feature.name == name), None)
    ids = drafts.only_for(name, without)
    who = described(ids) or "no contract or fragment is for it"
    detail = f"{who}: {feature.text}" if feature else "no models row says what it is"
    kind: GapKind = feature.kind if feature else "model structure"
    return Need("feature", name, (), (Gap(kind=kind, subject=name, detail=detail),), ids)


def _reading(facts: Facts, rows: Iterable[Rule], choices: Mapping[str, Choice]) -> tuple[str, ...]:
    """Ids of the rows that are for this format of weights: what of the model's structure keeps them from serving is
    another gap."""
    otherwise = facts.model_copy(update={"model": facts.model.model_copy(update={"weights": NO_FORMAT})})

    def is_for(row: Rule) -> bool:
        here, there = (predicate(row.applies_to).failing(f, choices) for f in (facts, otherwise))
        other = {name for part in here for name in part.names()}
        structure = WEIGHTS not in other and all(name.startswith("model.") for name in other)
        return structure and any(WEIGHTS in part.names() for part in there)

    return tuple(row.id for row in rows if is_for(row))


def _weights(facts: Facts, reading: tuple[str, ...], drafts: Drafts) -> Need:
    stored = facts.model.weights
    if reading:
        return Need("weights", stored, reading)
    ids = drafts.naming([WEIGHTS])
    who = described(ids) or "no contract or fragment is for that"
    gap = Gap(kind="weight format", subject=stored, detail=f"the checkpoint stores its matrices as {stored}; {who}")
    return Need("weights", stored, (), (gap,), ids)


def _platform(facts: Facts, about: Sequence[Platform]) -> Need:
    machine = facts.platform
    rows = tuple(p.id for p in about if p.status == "verified")
    if rows:
        return Need("platform", machine.name, rows)
    detail = f"no row of the platforms table applies to {machine.accelerator} {machine.name}"
    if about:
        ids = ", ".join(p.id for p in about)
        detail = f"the row {ids} describes it and is a draft: no engine of this knowledge base has run there"
    return Need("platform", machine.name, (), (Gap(kind="platform backend", subject=machine.name, detail=detail),))


def _operator(operator: PlannedOperator) -> Need:
    """One that is not usable is a gap only where nothing is known to use instead: a Target's list is a permission."""
    name, usable = operator.operator.name, operator.operator.state == "usable"
    if usable or operator.fallback:
        return Need("operator", name, (), note=operator.words)
    detail = f"{operator.words}. No platform row names a fallback; `enginesmith doctor --probe` tries it again"
    return Need("operator", name, (), (Gap(kind="operator", subject=name, detail=detail),), note=operator.words)


def _parallelism(facts: Facts, parallelism: Iterable[Parallelism], drafts: Drafts) -> Need:
    count = facts.platform.count
    live = [row for row in parallelism if row.status != "deprecated"]
    against = {row.id: hindrances(row, facts) for row in live}
    if rows := tuple(row.id for row in live if row.status == "verified" and not against[row.id]):
        return Need("parallelism", str(count), rows)
    alone = facts.model_copy(update={"platform": facts.platform.model_copy(update={"count": 1})})
    ids = drafts.only_for("", alone)
    detail = f"no row of the parallelism table spreads this model over {count} devices"
    if about := [row.id for row in live if not against[row.id]]:
        detail = described(about, "row")
    elif live:
        near = nearest(live, facts).id
        detail += f"; the nearest, {near}, does not: {' and '.join(against[near])}"
    parts = "; ".join(filter(None, (detail, described(ids))))
    gap = Gap(kind="parallel partition", subject=f"{count} devices", detail=parts)
    return Need("parallelism", str(count), (), (gap,), ids)


def _only_described(draft: Contract) -> Need:
    """A draft that the facts ask for and that no other gap has named."""
    gap = Gap(kind=BY_MODULE.get(draft.module, "operator"), subject=draft.id, detail=described((draft.id,)))
    return Need("contract", draft.id, (), (gap,), (draft.id,))


def _contract(
    contract: Contract,
    facts: Facts,
    knowledge: Knowledge,
    choices: Mapping[str, Choice],
    tests: set[str],
    drafts: Drafts,
) -> Need:
    gaps: list[Gap] = []
    ids: tuple[str, ...] = ()
    filed = [fragment for fragment in knowledge.fragments.values() if fragment.contract == contract.id]
    served = tuple(fragment.id for fragment in filed if applies(fragment.applies_to, facts, choices))
    if contract.module and not served:  # without a module it is the whole engine that fulfils the contract
        gap, names = why(contract, facts, filed, choices)
        ids = drafts.naming(names)
        detail = "; ".join(filter(None, (gap.detail, described(ids))))
        gaps.append(gap.model_copy(update={"detail": detail}))
    gaps += unfounded_gaps(contract, facts, knowledge)
    for name in contract.decisions.keys() - choices.keys():
        detail = f"none of the options {contract.decisions[name]} of {name} is open to this Target"
        gaps.append(Gap(kind=BY_MODULE.get(contract.module, "operator"), subject=contract.id, detail=detail))
    if contract.test not in tests:
        detail = f"its test {contract.test!r} is not among the test contracts"
        gaps.append(Gap(kind="test", subject=contract.id, detail=detail))
    return Need("contract", contract.id, served, tuple(gaps), ids)
