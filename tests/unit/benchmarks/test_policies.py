"""What policies are worth on landscapes whose truth is known, in small, and the page that says it."""

from itertools import pairwise

import pytest

from benchmarks.policies.landscape import Landscape
from benchmarks.policies.run_landscape import HEADING, PAGE, SEARCHES, Row, Search, compared, page_with


def test_a_landscape_is_a_function_of_its_seed_and_neighbours_resemble_each_other() -> None:
    first, again, other = Landscape(8, 2, 1), Landscape(8, 2, 1), Landscape(8, 2, 2)
    assert first.worth == again.worth
    assert first.worth != other.worth
    assert len(first.points) == 256
    assert all(first.worth[a] >= first.worth[b] for a, b in pairwise(first.points))
    assert len(first.best(0.1)) == 26
    assert max(first.worth, key=first.worth.__getitem__) in first.best(0.01)
    with pytest.raises(ValueError, match="between 0 and n - 1 = 7, got 8"):
        Landscape(8, 8, 0)


def test_where_no_choice_depends_on_another_each_is_worth_the_same_everywhere() -> None:
    worth = Landscape(6, 0, 3).worth
    for place in range(6):
        gains = {round(worth[*p[:place], 1, *p[place + 1 :]] - worth[*p[:place], 0, *p[place + 1 :]], 9) for p in worth}
        assert len(gains) == 1


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_counts_each_measured_tree_once_and_the_start_not_at_all(name: str) -> None:
    landscape = Landscape(12, 3, 200)
    search = Search(landscape, landscape.points[1500], 1)
    reached = search.until(SEARCHES[name](), landscape.best(0.1))
    assert len(set(search.measured)) == len(search.measured)
    assert search.start not in search.measured
    if reached:
        assert search.measured[reached - 1] in landscape.best(0.1)
        assert not set(search.measured[: reached - 1]) & landscape.best(0.1)


def test_evolution_needs_fewer_trees_than_random_choice_and_from_a_good_design_the_issue_tracker_does_too() -> None:
    """On landscapes that the page doesn't have. Of 8 the chance to be better on 7 without being so is 3.5%."""
    names = ["issue_tracker", "evolutionary", "random"]
    tracker, evolutionary, by_chance = compared(names, range(300, 308), 12, worst=0.5)
    assert evolutionary.mean < by_chance.mean
    assert tracker.mean < by_chance.mean
    assert tracker.against(by_chance).better >= 6


def test_the_sign_test_counts_landscapes_and_leaves_ties_out() -> None:
    mine, theirs = Row("a", (1.0, 2.0, 3.0, 4.0, 5.0), 3, 0), Row("b", (2.0, 3.0, 4.0, 5.0, 5.0), 4, 0)
    test = mine.against(theirs)
    assert (test.better, test.worse, test.p) == (4, 0, 1 / 16)
    assert theirs.against(mine).p == 1.0
    assert mine.against(mine).p == 1.0


def test_the_page_keeps_what_is_written_by_hand_and_holds_a_table_of_every_search() -> None:
    page = PAGE.read_text(encoding="utf-8")
    by_hand, _, section = page.partition(HEADING)
    assert page_with("new\n", page) == f"{by_hand}{HEADING}new\n"
    for name in SEARCHES:
        assert section.count(f"| {name} |") == 2
