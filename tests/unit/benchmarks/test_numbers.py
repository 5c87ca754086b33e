"""Metrics, statistics, floors and prompts."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from benchmarks import prompts
from benchmarks.metrics import METRICS, find_metric, goodput, user_metric
from benchmarks.roofline.floor import Machine, floor, prefill_flops
from benchmarks.stats import log_ratio, paired_ratio, percentile, summarise
from ckb.errors import UserError
from tests.unit.gpu_actors import tiny


@dataclass(frozen=True)
class Timed:
    ttft_ms: float
    tpot_ms: float
    new_tokens: int = 11

    @property
    def latency_ms(self) -> float:
        return self.ttft_ms + 10 * self.tpot_ms


@dataclass(frozen=True)
class Process:
    load_s: float = 2.5
    peak_rss_bytes: int = 1 << 30


ROWS = [Timed(100.0, 10.0), Timed(200.0, 20.0), Timed(300.0, 90.0)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttft_ms", 200.0),
        ("tpot_ms", 20.0),
        ("tpot_mean_ms", 40.0),
        ("tpot_p50_ms", 20.0),
        ("tpot_p95_ms", 83.0),
        ("latency_p99_ms", 1184.0),
        ("output_tok_s", 1000 * 33 / 1800),
        ("decode_tok_s", 50.0),
        ("requests_s", 1000 * 3 / 1800),
    ],
)
def test_a_metric_is_what_its_definition_says(name: str, value: float) -> None:
    assert METRICS[name].value(ROWS) == pytest.approx(value)


def test_every_metric_has_a_unit_a_direction_and_a_definition() -> None:
    assert len(METRICS) == 20
    assert {m.direction for m in METRICS.values()} == {"min", "max"}
    assert all(m.unit and m.definition and m.name == name for name, m in METRICS.items())


def test_metrics_of_a_process_need_the_process() -> None:
    assert METRICS["peak_memory_bytes"].value(ROWS, Process()) == 1 << 30
    assert METRICS["startup_s"].value([], Process()) == 2.5
    with pytest.raises(UserError, match="startup_s is of an engine's process"):
        METRICS["startup_s"].value(ROWS)
    with pytest.raises(UserError, match="tpot_ms has no valid row"):
        METRICS["tpot_ms"].value([])


def test_goodput_counts_requests_that_keep_every_bound() -> None:
    assert goodput({"ttft_ms": 250, "tpot_ms": 15}).value(ROWS) == pytest.approx(1000 / 1800)
    with pytest.raises(UserError, match="found nothing"):
        goodput({})
    with pytest.raises(UserError, match=r"objective\.metric is 'speed'; known are ttft_ms"):
        find_metric("speed")


def test_percentiles_and_spreads() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert percentile([7.0], 0.99) == 7.0
    summary = summarise([1.0, 2.0, 6.0])
    assert (summary.mean, summary.median, round(summary.sd, 3), summary.count) == (3.0, 2.0, 2.646, 3)


def test_a_paired_interval_sees_through_drift_that_both_sides_share() -> None:
    drift = [1.0, 1.5, 2.0, 3.0, 2.5]
    ratio = paired_ratio([20 * d for d in drift], [10 * d * (1 + 0.01 * (i % 2)) for i, d in enumerate(drift)])
    assert 1.97 < ratio.low < ratio.value < ratio.high < 2.01
    wide = paired_ratio([1.0, 2.0, 1.0], [1.5, 1.0, 1.2])
    assert wide.low < 1 < wide.high
    with pytest.raises(ValueError, match="no pairs"):
        paired_ratio([], [])


def test_the_interval_of_three_pairs_is_students_and_that_of_one_pair_says_nothing() -> None:
    logs = [0.1, 0.2, 0.3]
    half = 4.303 * 0.1 / 3**0.5
    found = log_ratio([logs])
    assert [math.log(x) for x in (found.low, found.value, found.high)] == pytest.approx([0.2 - half, 0.2, 0.2 + half])
    even = log_ratio([logs, logs, logs])
    assert math.log(even.high / even.value) == pytest.approx(2.447 * 0.1 / 3), "three cells: 6 degrees of freedom"
    noisy = log_ratio([logs, [0.2, 0.2, 0.2]])
    assert math.log(noisy.high / noisy.value) == pytest.approx(half / 2), "a quiet cell lends no degrees of freedom"
    alone = paired_ratio([2.0], [1.0])
    assert (alone.low, alone.value, alone.high) == pytest.approx((0.001, 2.0, 1000.0))
    assert log_ratio([logs, [5.0]]).low == pytest.approx(0.001)


def test_the_floor_is_bytes_over_bandwidth_and_operations_over_rate() -> None:
    facts, machine = tiny.facts(), Machine(read_gb_s=10.0, peak_gflop_s=100.0)
    moved = facts.model.decode_bytes(10 + 4, "float32")
    assert floor("tpot_ms", facts, 10, 8, machine) == pytest.approx(moved / 10e9 * 1e3)
    assert floor("tpot_p99_ms", facts, 10, 8, machine) == floor("tpot_ms", facts, 10, 8, machine)
    assert floor("decode_tok_s", facts, 10, 8, machine) == pytest.approx(1000 / floor("tpot_ms", facts, 10, 8, machine))
    latency = floor("ttft_ms", facts, 10, 8, machine) + 7 * floor("tpot_ms", facts, 10, 8, machine)
    assert floor("latency_ms", facts, 10, 8, machine) == pytest.approx(latency)
    assert floor("output_tok_s", facts, 10, 8, machine) == pytest.approx(8000 / latency)
    assert all(floor(name, facts, 10, 8, machine) >= 0 for name in METRICS)
    slow = Machine(read_gb_s=1e6, peak_gflop_s=1.0)
    assert floor("ttft_ms", facts, 10, 8, slow) == pytest.approx(prefill_flops(facts.model, 10) / 1e6)


def test_prompts_have_exact_lengths_differ_by_seed_and_are_real_text(tmp_path: Path) -> None:
    tiny.write_tokenizer(tmp_path / "tokenizer.json", 384)
    lengths = [1, 11, 256, 20_000]
    first, again, other = (prompts.cut(tmp_path, lengths, seed) for seed in (1, 1, 2))
    assert [len(p) for p in first] == lengths
    assert first == again
    assert all(a != b for a, b in zip(first[1:], other[1:], strict=True))
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = tokenizer.decode(first[2])
    assert any(text[1:-1] in prompts.text(name) for name in prompts.languages())
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        prompts.cut(tmp_path / "nowhere", [3], 0)


def test_there_are_at_least_six_languages_and_they_do_not_repeat_themselves() -> None:
    assert len(prompts.languages()) >= 6
    for name in prompts.languages():
        paragraphs = prompts.text(name).split("\n\n")
        assert len(paragraphs) == len(set(paragraphs)) >= 5


def test_a_metric_of_the_users_is_never_computed_from_timed_rows() -> None:
    metric = user_metric("user.speed", "max")
    assert (metric.name, metric.direction) == ("user.speed", "max")
    with pytest.raises(UserError, match="printed by the user's benchmark"):
        metric.value(ROWS)
