"""What an answer must fulfil beside its schema: it may only speak of what its brief gave."""

from collections.abc import Iterable

from ckb.predicate import Predicate, PredicateError
from ckb.records import Choice
from roles import briefs as b
from roles.author import Answer, AnyBrief

ENGINE_MODULES = (
    "kernels.py",
    "cache.py",
    "weights.py",
    "model.py",
    "sampler.py",
    "scheduler.py",
    "engine.py",
    "server.py",
)
"""The files of an engine, and so the write scope of an implementer."""


MOST_FILED = 8
"""Ideas that one answer may file: a role has other work to do."""


def faults(brief: AnyBrief, answer: Answer) -> list[str]:
    """One line for each thing that is wrong with the answer, for its author to mend."""
    filed = list(_filed(brief, answer)) if isinstance(answer, b.MayFile) else []
    return filed + _own_faults(brief, answer)


def filing_faults(brief: AnyBrief, idea: b.Hypothesis) -> list[str]:
    """What is wrong with an idea that a role files: it must be able to fail, and name what the brief knows."""
    wrong = [f"{name} is empty" for name in ("title", "acceptance", "falsification") if not getattr(idea, name).strip()]
    if not idea.expected_effect > 0:
        wrong.append(f"expected_effect is {idea.expected_effect:g}: nothing is tried that promises no gain")
    options: dict[str, tuple[Choice, ...]] = dict(getattr(brief, "space", {}))
    for contract in getattr(brief, "contracts", ()):
        options |= contract.decisions
    wrong += _known("decision or parameter", idea.change, sorted({*options, *brief.choices}))
    for name, value in idea.change.items():
        if name in options and value not in options[name]:
            wrong.append(f"{name} is one of {list(options[name])}, not {value!r}")
        elif name in brief.choices and value == brief.choices[name]:
            wrong.append(f"{name} is {value!r} already")
    return wrong


def _filed(brief: AnyBrief, answer: b.MayFile) -> Iterable[str]:
    if answer.filed and "file_issue" not in brief.tools:
        yield f"filed holds {len(answer.filed)} ideas, and nobody takes them here: leave it out"
        return
    if len(answer.filed) > MOST_FILED:
        yield f"filed holds {len(answer.filed)} ideas, at most {MOST_FILED} are taken of one answer"
    for i, idea in enumerate(answer.filed):
        yield from (f"filed[{i}]: {wrong}" for wrong in filing_faults(brief, idea))


def _own_faults(brief: AnyBrief, answer: Answer) -> list[str]:
    match brief, answer:
        case b.ImplementerBrief(), b.ImplementerAnswer():
            return list(_implementer(brief, answer))
        case b.ReviewerBrief(), b.ReviewerAnswer():
            return list(_reviewer(brief, answer))
        case b.EvaluatorBrief(), b.EvaluatorAnswer():
            return list(_evaluator(brief, answer))
        case b.OrchestratorBrief(), b.OrchestratorAnswer():
            return list(_orchestrator(brief, answer))
        case b.AnalystBrief(), b.AnalystAnswer():
            return list(_known("contract", [answer.contract], [c.id for c in brief.contracts]))
        case b.ConsolidatorBrief(), b.ConsolidatorAnswer():
            return list(_consolidator(brief, answer))
    return []


def _known(what: str, named: Iterable[str], known: Iterable[str]) -> Iterable[str]:
    allowed = list(known)
    for name in named:
        if name not in allowed:
            yield f"there is no {what} {name!r}; there are {', '.join(map(repr, allowed)) or 'none'}"


def _implementer(brief: b.ImplementerBrief, answer: b.ImplementerAnswer) -> Iterable[str]:
    if answer.missing_contract is not None:
        yield from _known("contract", [answer.missing_contract], [c.id for c in brief.contracts])
        return
    yield from _known("engine file", answer.files, ENGINE_MODULES)
    if answer.files == brief.files:
        yield "no file differs from the tree that you were given"
    for contract in brief.contracts:
        for name, options in contract.decisions.items():
            if name in answer.choices and answer.choices[name] not in options:
                yield f"decision {name} is one of {list(options)}, not {answer.choices[name]!r}"
            needs = Predicate(contract.decision_requires.get(f"{name}={answer.choices.get(name)}", ""))
            for part in needs.failing(brief.facts, answer.choices):
                yield f"decision {name} = {answer.choices[name]!r} is open only if {part.text}"
    for name, value in brief.change.items():
        if answer.choices.get(name, value) != value:
            yield f"the issue asks for {name} = {value!r}, not {answer.choices[name]!r}"


def _reviewer(brief: b.ReviewerBrief, answer: b.ReviewerAnswer) -> Iterable[str]:
    yield from _known("contract", [f.contract for f in answer.findings], [c.id for c in brief.contracts])
    modules = {c.module for c in brief.contracts}  # a finding may be that the whole file is missing
    yield from _known("file", [f.file for f in answer.findings], sorted({*brief.files, *modules}))


def _evaluator(brief: b.EvaluatorBrief, answer: b.EvaluatorAnswer) -> Iterable[str]:
    if len(answer.hypotheses) > brief.wanted:
        yield f"{len(answer.hypotheses)} hypotheses, at most {brief.wanted} are wanted"
    for hypothesis in answer.hypotheses:
        yield from _known("decision or parameter", hypothesis.change, brief.space)
        for name, value in hypothesis.change.items():
            if name in brief.space and value not in brief.space[name]:
                yield f"{name} is one of {list(brief.space[name])}, not {value!r}"
        if hypothesis.change and {**brief.choices, **hypothesis.change} in brief.tried:
            yield f"{hypothesis.title!r} was tried already"


def _orchestrator(brief: b.OrchestratorBrief, answer: b.OrchestratorAnswer) -> Iterable[str]:
    last = len(brief.hypotheses) - 1
    if bad := [i for i in answer.dispatch if not 0 <= i <= last]:
        yield f"dispatch holds {bad}, the hypotheses are numbered 0 to {last}"
    if len(set(answer.dispatch)) != len(answer.dispatch):
        yield "dispatch names a hypothesis twice"
    if len(answer.dispatch) > brief.parallel:
        yield f"{len(answer.dispatch)} hypotheses dispatched, {brief.parallel} fit into a round"
    if not answer.dispatch and not answer.stop:
        yield "dispatch is empty: choose hypotheses, or say stop"


def _measurement(row: b.Lesson) -> str:
    """What was measured of which change: a role may word it, not alter it."""
    return row.model_dump_json(include={"change", "metric", "effect", "interval"})


def _supported(brief: b.ConsolidatorBrief, row: b.Lesson) -> Iterable[str]:
    """A claim is filed under what it rests on, so that runs that found the same meet there."""
    mended = [item.id for item in brief.mended]
    if row.fixed:
        yield from _known("mended gate", [row.fixed], mended)
        if row.kind == "optimisation" or row.change:
            yield f"experience {row.id!r} names a mended gate, which says nothing of how fast a change is"
    elif row.effect is None and row.signal != "tentative":
        yield f"experience {row.id!r} is {row.signal}, and has neither a measured effect nor a gate that it mended"
    if row.effect is not None:
        yield from _known("measured row", [row.id], [found.id for found in brief.measured])
    if not row.applies_to.strip():
        yield f"applies_to of experience {row.id!r} is empty: it names the class of targets for which the rule holds"


def _consolidator(brief: b.ConsolidatorBrief, answer: b.ConsolidatorAnswer) -> Iterable[str]:
    measured = {_measurement(row) for row in brief.measured}
    for experience in answer.experience:
        if experience.effect is not None and _measurement(experience) not in measured:
            yield (
                f"experience {experience.id!r} states the effect {experience.effect} (interval {experience.interval}) "
                f"of {experience.change} on {experience.metric or 'speed'}, which nobody measured"
            )
        yield from _supported(brief, experience)
        low, high = experience.interval or (0.0, 0.0)
        if experience.effect is not None and experience.signal != "tentative" and low <= 0 <= high:
            yield f"experience {experience.id!r} is {experience.signal}, and its interval holds zero: it is tentative"
        yield from _condition(brief, experience)


def _condition(brief: b.ConsolidatorBrief, row: b.Lesson) -> Iterable[str]:
    """A claim holds for a class of targets that the present one is in."""
    about = f"applies_to of experience {row.id!r}"
    try:
        condition = Predicate(row.applies_to)
        if unknown := condition.unknown(row.change):
            yield f"{about} asks for {', '.join(sorted(unknown))}: no such facts"
            return
        against = [part.text for part in condition.failing(brief.facts, row.change) if not part.choices()]
    except PredicateError as error:  # it does not parse, or compares what can't be compared
        yield f"{about}: {error}"
        return
    if against:
        yield f"{about} leaves this target out: {' and '.join(against)}"
