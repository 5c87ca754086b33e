"""The policies as pure functions: the same knowledge and seed give the same issues, and none is asked for twice."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest

from ckb.records import Choice
from roles.briefs import Hypothesis, OrchestratorAnswer, RoleName
from swarm.policies import POLICIES, tools_of
from swarm.policies.base import Assignment, Known, Tree
from swarm.policies.evolutionary import ISLANDS, MIGRATION, NOTHING_LEFT, Evolutionary, fronts, pool, ranked
from swarm.policies.issue_tracker import MOST_FILED, IssueTracker
from swarm.policies.issue_tracker import NOTHING_LEFT as NO_DIRECTION
from swarm.policies.ralph import Ralph
from swarm.target import PolicyName

SPACE: dict[str, tuple[Choice, ...]] = {"a": (0, 1, 2), "b": ("x", "y"), "c": (False, True), "d": (1, 2, 4, 8)}
START: dict[str, Choice] = {"a": 0, "b": "x", "c": False, "d": 1}


class Counsel:
    """Roles whose answers are given; `refused`: choices that can't be made together."""

    def __init__(self, hypotheses: Sequence[Hypothesis] = (), refused: Assignment | None = None):
        self.given = tuple(hypotheses)
        self.refused = refused
        self.asked = 0

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        self.asked += 1
        return self.given

    def order(self, hypotheses: Sequence[Hypothesis]) -> OrchestratorAnswer:
        self.asked += 1
        return OrchestratorAnswer(dispatch=tuple(range(len(hypotheses)))[::-1], memory="noted")

    def completed(self, change: Assignment, start: Assignment) -> dict[str, Choice] | None:
        whole = {**start, **change}
        return None if self.refused and self.refused.items() <= whole.items() else whole


def tree(name: str, island: int | None = None, *objectives: float, **choices: Choice) -> Tree:
    return Tree(name, f"commit-{name}", {**START, **choices}, "no gain", 1, island, (), objectives)


def known(number: int, *trees: Tree, width: int = 4, seed: int = 0) -> Known:
    start = Tree("s4-c0", "commit-s4-c0", START, "gain", objectives=(0.0, 0.0))
    every = (start, *trees)
    return Known(number, width, seed, "tpot_ms", SPACE, start, every, tuple(t.choices for t in every), "before")


POPULATION = (
    tree("r1-1-c0", 0, 0.3, 0.0, a=1),
    tree("r1-2-c0", 1, 0.2, 0.0, b="y"),
    tree("r1-3-c0", 0, -0.1, 0.0, d=4),
    tree("r1-4-c0", 1, c=True),
)
"""The last one failed its gates: nothing was measured."""


def test_every_policy_that_a_target_may_name_is_there() -> None:
    assert POLICIES.keys() == set(get_args(PolicyName))


def test_the_issue_tracker_follows_its_roles_and_says_why_it_ends() -> None:
    ideas = [Hypothesis(title=t, change={}, expected_effect=0, acceptance="", falsification="") for t in "ab"]
    decided = POLICIES["issue_tracker"]().next(known(3), Counsel(ideas))
    assert [(i.id, i.title, i.base) for i in decided.issues] == [
        ("r3-1", "b", "commit-s4-c0"),
        ("r3-2", "a", "commit-s4-c0"),
    ]
    assert (decided.memory, decided.stop, decided.reason) == ("noted", False, "")
    assert POLICIES["issue_tracker"]().next(known(3), Counsel()).reason == NO_DIRECTION


def idea(title: str, **change: Choice) -> Hypothesis:
    return Hypothesis(title=title, change=change, expected_effect=0.1, acceptance="a", falsification="f")


def test_what_roles_filed_is_put_to_the_orchestrator_before_the_evaluator_s_ideas_and_no_change_twice() -> None:
    filed = (idea("filed", a=1), idea("free code"))
    seen = replace(known(3), backlog=filed)
    decided = IssueTracker().next(seen, Counsel([idea("the same change", a=1), idea("another", a=2)]))
    assert [issue.title for issue in decided.issues] == ["another", "free code", "filed"], (
        "this counsel dispatches the last one first"
    )
    many = replace(known(3), backlog=tuple(idea(f"idea {i}") for i in range(MOST_FILED + 3)))
    assert len(IssueTracker().next(many, Counsel()).issues) == MOST_FILED


def test_a_tool_of_a_policy_is_for_the_roles_that_it_names() -> None:
    given = {name: [role for role in get_args(RoleName) if tools_of(name, role)] for name in POLICIES}
    assert given == {"issue_tracker": ["implementer", "judge", "evaluator"], "evolutionary": [], "ralph": []}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_decides_the_same_again(name: str) -> None:
    seen = known(2, *POPULATION)
    first, second = (POLICIES[name]().next(seen, Counsel()) for _ in range(2))
    assert first == second


def test_every_child_is_new_can_be_made_and_starts_from_a_measured_parent_on_its_island() -> None:
    for seed, number in itertools.product(range(20), (1, 2, 3, 4)):
        population = POPULATION if number > 1 else ()
        seen = known(number, *population, seed=seed)
        counsel = Counsel(refused={"a": 2, "c": True})
        decided = Evolutionary().next(seen, counsel)
        trees = {t.candidate: t for t in seen.trees}
        whole = []
        for issue in decided.issues:
            parent = trees[issue.parents[0]]
            assert issue.hypothesis
            assert issue.hypothesis.change
            assert issue.base == parent.commit
            assert parent.objectives, "it was measured"
            if number % MIGRATION:
                assert all(trees[name].island in (issue.island, None) for name in issue.parents)
            whole.append(counsel.completed(issue.hypothesis.change, parent.choices))
        assert len(decided.issues) == 4
        assert None not in whole
        assert all(one not in [dict(t.choices) for t in seen.trees] for one in whole), (seed, number)
        assert all(one != other for one, other in itertools.combinations(whole, 2)), (seed, number)
        assert {issue.island for issue in decided.issues} == set(range(ISLANDS))
        assert counsel.asked == 0, "it pays for no role"


def test_a_crossover_takes_what_another_parent_has() -> None:
    crossed = [
        issue
        for seed in range(40)
        for issue in Evolutionary().next(known(2, *POPULATION, seed=seed), Counsel()).issues
        if len(issue.parents) == 2
    ]
    assert crossed
    values = {t.candidate: t.choices for t in known(2, *POPULATION).trees}
    for issue in crossed:
        assert issue.hypothesis
        assert issue.hypothesis.change.items() <= values[issue.parents[1]].items()
        assert issue.parents[1] in issue.title


def test_other_seeds_try_other_trees() -> None:
    tried = {str(Evolutionary().next(known(2, *POPULATION, seed=seed), Counsel()).issues) for seed in range(5)}
    assert len(tried) == 5


def test_a_small_space_is_gone_through_to_its_end_and_then_the_search_stops() -> None:
    space: dict[str, tuple[Choice, ...]] = {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
    start: dict[str, Choice] = dict.fromkeys(space, 0)
    first = Tree("s4-c0", "s", start, "gain", objectives=(0.0, 0.0))
    trees, tried = [first], [dict(first.choices)]
    for number in itertools.count(1):
        seen = Known(number, 2, 0, "m", space, first, tuple(trees), tuple(tried))
        decided = Evolutionary().next(seen, Counsel())
        if decided.stop:
            break
        for issue in decided.issues:
            base = next(t for t in trees if t.commit == issue.base)
            assert issue.hypothesis
            tried.append({**base.choices, **issue.hypothesis.change})
            trees.append(Tree(issue.id, issue.id, tried[-1], "no gain", number, issue.island, (), (0.0, 0.0)))
    assert decided.reason == NOTHING_LEFT
    assert len(tried) == 8
    assert len({str(sorted(one.items())) for one in tried}) == 8


def test_parents_stand_in_pareto_fronts_and_equals_in_order_of_novelty() -> None:
    fast = tree("fast", 0, 0.3, -0.5, a=1)
    small = tree("small", 0, -0.2, 0.5, a=2)
    worse = tree("worse", 0, 0.2, -0.5, b="y")
    alike, apart = tree("alike", 0, 0.3, -0.5, a=1, d=2), tree("apart", 0, 0.3, -0.5, a=2, b="y", c=True, d=8)
    assert [[t.candidate for t in front] for front in fronts([worse, small, fast])] == [["small", "fast"], ["worse"]]
    assert next(t.candidate for t in ranked([worse, small, alike, fast, apart])) == "apart"
    assert [t.candidate for t in ranked([worse, small, fast])] == ["fast", "small", "worse"]


def test_islands_exchange_their_best_in_some_rounds_alone() -> None:
    def names(number: int, island: int) -> set[str]:
        return {t.candidate for t in pool(known(number, *POPULATION), island)}

    assert names(MIGRATION - 1, 0) == {"s4-c0", "r1-1-c0", "r1-3-c0"}
    assert names(MIGRATION, 0) == names(MIGRATION - 1, 0) | {"r1-2-c0"}
    assert names(MIGRATION, 1) == {"s4-c0", "r1-2-c0", "r1-1-c0"}, "what another one dominates stays at home"


def test_ralph_gives_out_one_free_issue_from_the_latest_accepted_tree_each_time_with_another_seed() -> None:
    tip = replace(POPULATION[0], standing="gain")
    rounds = [Ralph().next(replace(known(n, *POPULATION), incumbent=tip), Counsel()) for n in (1, 2)]
    (first,), (second,) = (decided.issues for decided in rounds)
    assert first.title == second.title
    assert first.hypothesis == second.hypothesis
    assert first.hypothesis
    assert first.hypothesis.change == {}
    assert {first.base, second.base} == {"commit-r1-1-c0"}
    assert first.seed != second.seed
    assert not any(decided.stop for decided in rounds)
