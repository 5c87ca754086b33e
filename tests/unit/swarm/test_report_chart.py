"""The trajectory's geometry, and the words for numbers."""

from itertools import pairwise

import pytest

from swarm.report.chart import LABEL_GAP, Axis, Level, Shot, draw, linear_ticks, spread_labels
from swarm.report.words import duration, money, number, signed, size

FLOOR = Level("roofline", 17.0, "floor")
REFERENCE = Level("Hugging Face", 104.0, "huggingface")


def shot(name: str, value: float | None, *, merged: bool = False, group: str = "round 1") -> Shot:
    return Shot(name, group, value, "kept" if merged else "discarded", merged, "note")


def test_smaller_values_lie_lower_and_the_incumbent_steps_from_merge_to_merge() -> None:
    shots = [shot("a", 60.0, merged=True), shot("b", 70.0), shot("c", 40.0, merged=True)]
    chart = draw(shots, [FLOOR, REFERENCE], "ms", 1000, 400, labels=True)
    a, b, c = chart.points
    assert b.y < a.y < c.y, "y grows downwards"
    assert chart.incumbent == f"M{a.x} {a.y} H{c.x} V{c.y} H{chart.right}"
    rules = {rule.kind: rule for rule in chart.rules}
    assert rules["huggingface"].y < b.y
    assert rules["floor"].y > c.y
    assert rules["incumbent"].label == "incumbent 40 ms"
    assert not chart.logarithmic


def test_a_linear_axis_starts_at_zero_and_a_wide_range_is_logarithmic() -> None:
    linear = Axis.over([40.0, 100.0], top=0, bottom=100)
    assert linear.y(0) == 100
    assert linear.y(0) - linear.y(50) == pytest.approx(linear.y(50) - linear.y(100), abs=0.2)
    wide = Axis.over([1.0, 100.0], top=0, bottom=100)
    assert wide.logarithmic
    assert wide.y(1) - wide.y(10) == pytest.approx(wide.y(10) - wide.y(100), abs=0.2)


def test_a_candidate_without_a_measurement_lies_in_the_strip_below_the_plot() -> None:
    chart = draw([shot("a", None), shot("b", 50.0)], [], "ms", 400, 300, labels=False)
    assert chart.points[0].y == chart.strip_y > chart.bottom > chart.points[1].y
    assert chart.incumbent == ""


def test_an_empty_run_can_be_drawn() -> None:
    chart = draw([], [], "ms", 400, 300, labels=True)
    assert chart.points == ()
    assert chart.bands == ()


def test_bands_are_named_as_far_as_there_is_room() -> None:
    shots = [shot(str(i), 50.0, group=f"round {i // 4}") for i in range(40)]
    wide = draw(shots, [], "ms", 1100, 300, labels=False)
    narrow = draw(shots, [], "ms", 360, 300, labels=False)
    assert [band.label for band in wide.bands] == [f"round {i}" for i in range(10)]
    assert [band.label for band in narrow.bands] == [str(i) for i in range(10)]


def test_labels_keep_their_order_and_do_not_overlap() -> None:
    placed = spread_labels([50.0, 52.0, 48.0, 200.0], top=0, bottom=210)
    assert placed[2] < placed[0] < placed[1] < placed[3]
    ordered = sorted(placed)
    assert all(b - a >= LABEL_GAP for a, b in pairwise(ordered))


@pytest.mark.parametrize(
    ("high", "ticks"), [(108.0, [0, 25, 50, 75, 100]), (0.9, [0, 0.2, 0.4, 0.6, 0.8]), (5.0, [0, 1, 2, 3, 4, 5])]
)
def test_ticks_are_round_numbers(high: float, ticks: list[float]) -> None:
    assert linear_ticks(high) == pytest.approx(ticks)


def test_numbers_read_as_a_person_writes_them() -> None:
    assert [number(v) for v in (None, 0, 0.0412, 4.123, 42.0, 99.96, 412.4, 41200.0)] == [
        "–", "0", "0.0412", "4.12", "42.0", "100", "412", "41,200",
    ]  # fmt: skip
    assert [signed(v) for v in (None, 0.034, -0.012)] == ["–", "+3.4%", "−1.2%"]
    assert [duration(s) for s in (4.13, 42.4, 200, 7500)] == ["4.1 s", "42 s", "3 min 20 s", "2 h 5 min"]
    assert [size(b) for b in (900 << 20, 3 << 30)] == ["900 MiB", "3.00 GiB"]
    assert [money(u) for u in (0, 0.0031, 12.5)] == ["$0.00", "$0.0031", "$12.50"]
