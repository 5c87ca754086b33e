"""Implementer: decides a full assignment and composes the tree that it stands for."""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ckb.errors import KnowledgeGap
from ckb.records import Choice
from ckb.space import Assignment, Unsatisfiable, complete, decisions, open_space, selection
from roles.author import NoAnswer
from roles.authors.composer.assembly import compose
from roles.briefs import ImplementerAnswer, ImplementerBrief

DIFFERENT = 8
"""How many neighbouring seeds start from different choices, where a Target leaves that many open."""


def implement(brief: ImplementerBrief) -> ImplementerAnswer:
    """The whole tree for the contracts given. A contract without a fragment is named as missing.

    Raises NoAnswer when the change that is asked for contradicts the Target, or nothing new comes of a pair.
    """
    try:
        choices = decide(brief)
        parts = selection(brief.contracts, brief.fragments, brief.facts, choices)
    except KnowledgeGap as gap:
        return ImplementerAnswer(files=brief.files, summary=f"blocked: {gap}", missing_contract=gap.contract)
    except Unsatisfiable as error:
        raise NoAnswer(f"issue {brief.issue}: {error}") from error
    if (pair := brief.combination) and choices in (brief.choices, pair.measured):
        known = "the plain merge" if choices == pair.measured else "what is on main"
        raise NoAnswer(
            f"nothing new comes of {pair.merged.candidate} and {pair.lost.candidate}: together they are {known}"
        )
    files, spans = compose(parts, brief.facts, choices)
    return ImplementerAnswer(files=files, choices=choices, spans=spans, summary=summary(brief, choices))


def decide(brief: ImplementerBrief) -> Assignment:
    """A hypothesis changes what it names in the incumbent; seed 0 keeps the incumbent, or takes the defaults; another
    seed, or evidence against the last attempt, draws a valid alternative. A free hand changes one thing."""
    if brief.free:
        return one_change(brief)
    if brief.change or (brief.seed == 0 and not brief.failures):
        return complete(brief.change, brief.contracts, brief.fragments, brief.facts, prefer=brief.choices)
    evidence = " ".join(failure.gate + failure.summary for failure in brief.failures)
    return draw(brief, random.Random(f"{brief.seed} {evidence}"))


def one_change(brief: ImplementerBrief) -> Assignment:
    """The incumbent with one decision or parameter changed at random, by the seed and by what failed last time.

    Raises Unsatisfiable when nothing can be changed alone."""
    space = open_space(brief.contracts, brief.fragments, brief.facts)
    moves = [
        (name, value)
        for name in sorted(space.keys() & brief.choices.keys())
        for value in space[name]
        if value != brief.choices[name]
    ]
    evidence = " ".join(failure.gate + failure.summary for failure in brief.failures)
    random.Random(f"{brief.seed} {evidence}").shuffle(moves)
    for name, value in moves:
        with suppress(Unsatisfiable, KnowledgeGap):
            return complete({name: value}, brief.contracts, brief.fragments, brief.facts, prefer=brief.choices)
    raise Unsatisfiable(f"none of {len(moves)} changes of one choice can be made")


def draw(brief: ImplementerBrief, rng: random.Random) -> Assignment:
    """An assignment at random, as far as its choices go together; without evidence against one, those of neighbouring
    seeds are different ones."""
    space = open_space(brief.contracts, brief.fragments, brief.facts)
    wanted = {name: rng.choice(space[name]) for name in sorted(space)}
    names = [name for name in decisions(brief.contracts) if name in space]
    if brief.failures:
        rng.shuffle(names)
    else:
        wanted |= numbered(brief.seed, {name: space[name] for name in names})
    fixed: Assignment = {}
    for name in names:
        try:
            complete({**fixed, name: wanted[name]}, brief.contracts, brief.fragments, brief.facts)
        except (Unsatisfiable, KnowledgeGap):
            continue  # it does not go with what was drawn before
        fixed[name] = wanted[name]
    return complete(fixed, brief.contracts, brief.fragments, brief.facts, prefer=wanted)


def numbered(seed: int, space: Mapping[str, Sequence[Choice]]) -> Assignment:
    """The digits of `seed`, one a decision, for the first decisions: at least eight seeds in a row differ in them."""
    chosen: Assignment = {}
    different = 1
    for name, options in space.items():
        if different >= DIFFERENT:
            break
        seed, digit = divmod(seed, len(options))
        chosen[name] = options[digit]
        different *= len(options)
    return chosen


def summary(brief: ImplementerBrief, choices: Assignment) -> str:
    """One line: what was decided, and for a hypothesis what was changed."""
    if brief.change or brief.free:
        changed = {name: value for name, value in choices.items() if brief.choices.get(name) != value}
        return "changed " + ", ".join(f"{name} = {value}" for name, value in changed.items())
    return "composed with " + ", ".join(f"{name} = {choices[name]}" for name in decisions(brief.contracts))
