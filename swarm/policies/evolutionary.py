"""Evolution over whole trees (AlphaEvolve, and VibeServe's second policy): islands, a Pareto ranking, crossover.

The first round founds the islands: whole designs drawn at random. Then each issue starts from its parent's commit and
changes choices of it: one or two taken from another parent, or one at random.
What an earlier round gave nothing for may be a parent; what beats the incumbent is merged, as under every policy. It
asks no role: the population is its memory. All draws come from the seed and the round.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckb.criteria import TREE, Criterion
from ckb.records import Choice
from roles.briefs import Hypothesis, PolicyTool, RoleName
from swarm.events import Issue
from swarm.issues import performance_issue
from swarm.policies.base import Assignment, Counsel, Known, Next, Tree

ISLANDS = 2
"""Populations that keep to themselves, so that one early winner doesn't take all places."""
MIGRATION = 3
"""Every so many rounds an island may also take parents from the first front of the island before it."""
CROSSOVER = 0.3
"""Share of children with two parents; the others have one change of their own."""
TAKEN = 2
"""Most choices that a child takes from its second parent: where choices depend on each other, half of one design and
half of another is a third one that resembles neither."""
GREED = 2.5
"""How much more often a better parent is chosen: the best one in 92% of all draws."""
DRAWS = 30
"""How often a child is drawn anew because it is known or can't be made, before all neighbours are gone through."""
NOTHING_LEFT = "no tree that is new can be made from the population by one change"
CHANGED = Criterion(part="activation", command=TREE, metric="changed_lines", comparison=">", value=0)


@dataclass(frozen=True)
class Child:
    """A tree to be made."""

    parent: Tree
    other: Tree | None
    """The second parent of a crossover."""
    change: dict[str, Choice]
    whole: dict[str, Choice]
    """Its whole assignment."""


class Evolutionary:
    """A round has as many children as it is wide, the islands in turn."""

    tools: Mapping[PolicyTool, tuple[RoleName, ...]] = {}

    def next(self, known: Known, counsel: Counsel) -> Next:
        rng = random.Random(f"{known.seed} {known.round}")
        seen = [dict(one) for one in known.asked]
        parents = [ranked(pool(known, island)) for island in range(ISLANDS)]
        issues: list[Issue] = []
        for place in range(known.width):
            island = (known.round * known.width + place) % ISLANDS
            if child := self._child(known, counsel, rng, parents[island], seen):
                seen.append(child.whole)
                issues.append(issue_of(known, len(issues) + 1, child, island))
        return Next(tuple(issues), known.memory, stop=not issues, reason="" if issues else NOTHING_LEFT)

    def _child(
        self, known: Known, counsel: Counsel, rng: random.Random, parents: list[Tree], seen: list[dict[str, Choice]]
    ) -> Child | None:
        """A new tree that can be made: the novelty check comes before anything that costs. None if there is no such."""
        for parent, other, change in (*drawn(known, rng, parents), *neighbours(known, parents)):
            whole = counsel.completed(change, parent.choices) if change else None
            if whole and whole not in seen:
                return Child(parent, other, change, whole)
        return None


Idea = tuple[Tree, Tree | None, dict[str, Choice]]
"""(parent, second parent, change)."""


def drawn(known: Known, rng: random.Random, parents: Sequence[Tree]) -> Iterator[Idea]:
    """Children by chance: from good parents more often."""
    for _ in range(DRAWS):
        parent = parents[min(int(rng.expovariate(GREED)), len(parents) - 1)]
        if known.round == 1:
            yield parent, None, dict(rng.choice(m) for m in by_name(moves_of(known, parent)) if rng.random() < 0.5)
            continue
        other = second(rng, parents, parent) if rng.random() < CROSSOVER else None
        change = crossed(rng, parent, other) if other else {}
        if not change:
            moves = list(moves_of(known, parent))
            other, change = None, dict([rng.choice(moves)]) if moves else {}
        yield parent, other, change


def neighbours(known: Known, parents: Sequence[Tree]) -> Iterator[Idea]:
    """Every single change of every parent, the best parent first: so that a small space is gone through to its end."""
    for parent in parents:
        for name, value in moves_of(known, parent):
            yield parent, None, {name: value}


def moves_of(known: Known, tree: Tree) -> Iterator[tuple[str, Choice]]:
    """Each other value of the choices that a tree makes; parameters of fragments that it doesn't use change nothing."""
    for name, values in known.space.items():
        if name in tree.choices:
            yield from ((name, value) for value in values if value != tree.choices[name])


def by_name(moves: Iterator[tuple[str, Choice]]) -> list[list[tuple[str, Choice]]]:
    return [list(group) for _, group in itertools.groupby(moves, key=lambda move: move[0])]


def crossed(rng: random.Random, parent: Tree, other: Tree) -> dict[str, Choice]:
    """Some of the choices that both make and in which they differ, as the other has them."""
    differ = [n for n in sorted(parent.choices.keys() & other.choices.keys()) if parent.choices[n] != other.choices[n]]
    taken = rng.sample(differ, min(len(differ), rng.randint(1, TAKEN)))
    return {name: other.choices[name] for name in taken}


def second(rng: random.Random, parents: Sequence[Tree], first: Tree) -> Tree | None:
    """Of two good ones the one that differs more from the first parent: equals have nothing to exchange."""
    others = [tree for tree in parents if tree is not first]
    if not others:
        return None
    picked = [others[min(int(rng.expovariate(GREED)), len(others) - 1)] for _ in range(2)]
    return max(picked, key=lambda tree: distance(tree.choices, first.choices))


def pool(known: Known, island: int) -> list[Tree]:
    """Who may be a parent on an island: its own measured trees, the engine of the stages, and at times migrants."""
    measured = [tree for tree in known.trees if tree.objectives]
    own = [tree for tree in measured if tree.island in (island, None)]
    if known.round % MIGRATION or ISLANDS == 1:
        return own
    neighbour = [tree for tree in measured if tree.island == (island - 1) % ISLANDS]
    return own + (fronts(neighbour)[0] if neighbour else [])


def ranked(trees: Sequence[Tree]) -> list[Tree]:
    """Parents, best first: by Pareto front; in one front by the Target's objective; equals by how far they are from
    the others, and then in the order in which they came."""
    return [
        tree
        for front in fronts(trees)
        for tree in sorted(front, key=lambda tree: (-tree.objectives[0], -novelty(tree, trees)))
    ]


def fronts(trees: Sequence[Tree]) -> list[list[Tree]]:
    """Trees by Pareto front: those of the first, the archive, are beaten by none."""
    left, found = list(trees), []
    while left:
        front = [tree for tree in left if not any(dominates(other, tree) for other in left)]
        found.append(front)
        left = [tree for tree in left if all(tree is not other for other in front)]
    return found


def dominates(one: Tree, other: Tree) -> bool:
    """Whether a tree is nowhere worse, and somewhere better."""
    pairs = list(zip(one.objectives, other.objectives, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def novelty(tree: Tree, trees: Sequence[Tree]) -> float:
    """Mean number of choices in which a tree differs from the others."""
    return sum(distance(tree.choices, other.choices) for other in trees) / max(1, len(trees) - 1)


def distance(one: Assignment, other: Assignment) -> int:
    same = sum(name in other and other[name] == value for name, value in one.items())
    return len(one.keys() | other.keys()) - same


def issue_of(known: Known, place: int, child: Child, island: int) -> Issue:
    words = ", ".join(f"{name} = {value}" for name, value in child.change.items())
    source = f", as {child.other.candidate} has it" if child.other else ""
    idea = Hypothesis(
        title=f"{words} in the tree of {child.parent.candidate}{source}",
        change=child.change,
        expected_effect=0.0,
        acceptance=f"{known.metric} improves over what is on main in a paired benchmark, its interval clear of zero",
        falsification="the interval of the paired effect includes zero or lies below it, or a gate fails",
        criteria=(CHANGED,),
    )
    parents = tuple(tree.candidate for tree in (child.parent, child.other) if tree)
    return performance_issue(known.round, place, idea, child.parent.commit, island=island, parents=parents)
