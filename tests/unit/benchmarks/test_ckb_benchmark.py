"""The benchmark of the knowledge base, small: its figures are those of the store, and a missed bar is said."""

import math
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.ckb import __main__ as command
from benchmarks.ckb import contention, scale
from benchmarks.ckb.bars import Measure, missed, quantile


def test_a_value_meets_its_bar_or_misses_it() -> None:
    for measure, is_missed in (
        (Measure("a", 2, "s"), False),
        (Measure("a", 2, "s", most=2), False),
        (Measure("a", 2.001, "s", most=2), True),
        (Measure("a", math.nan, "s", most=2), True),
        (Measure("a", 0, "errors", exactly=0), False),
        (Measure("a", 1, "rows", exactly=0), True),
        (Measure("a", 799, "rows", exactly=800), True),
    ):
        assert measure.missed is is_missed, measure
        assert missed([measure]) == ["a"] * is_missed


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert [quantile(values, share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert quantile([7], 0.99) == 7
    assert math.isnan(quantile([], 0.5))


def test_both_parts_count_what_is_in_the_store(tmp_path: Path) -> None:
    measures = {m.what: m for m in contention.measure(tmp_path / "a", 2, 3)}
    assert measures["commits"].value == measures["rows that are there exactly once"].value == 6
    measures = {m.what: m for m in scale.measure(tmp_path / "b", 8, 5, seed=0)}
    assert measures["rows"].value == 40
    assert measures["log: versions found"].value == 9
    assert missed(m for m in measures.values() if m.unit not in ("s", "MB")) == []


def test_a_missed_bar_ends_with_status_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command.main)
    arguments = ["contention", "--processes", "1", "--commits", "2", "--folder", str(tmp_path)]
    for longest, status in ((1e9, 0), (0, 1)):
        for bar in ("P50_MS", "P99_MS", "LONGEST_MS"):
            monkeypatch.setattr(contention, bar, longest)
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == status, done.output
        assert ("missed: wait for a commit, p50" in done.output.replace("\n", " ")) == bool(status)
        assert list(tmp_path.iterdir()) == [], "the store is removed"
