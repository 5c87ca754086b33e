"""Baselines beside an engine in one paired run, and what is said of them."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.baselines.records import Baseline, Setting
from ckb.errors import UserError
from gpu_actors.bench import baselines, bench_engine, setting_table, summary_table
from gpu_actors.benchmark_jobs import Arm, ArmResult, Benchmark, BenchmarkJob, Row, Scenario
from gpu_actors.device import Device
from tests.unit.gpu_actors import tiny
from tests.unit.gpu_actors.test_served import STAND_IN

NEW = 12


def server(checkpoint: Path, name: str, *more: str, preset: str = "") -> Arm:
    words = (sys.executable, str(STAND_IN), str(checkpoint), "--port", "{port}", *more)
    return Arm(name=name, baseline=Baseline(command=words, folder="/", preset=preset))


def text_of(*tables: object) -> str:
    console = Console(width=240, record=True, markup=False)
    for table in tables:
        console.print(table)
    return console.export_text()


@pytest.mark.slow  # a minute and a half: six arms in turn
def test_servers_take_turns_with_an_engine_and_what_they_say_is_judged_by_it(tmp_path: Path) -> None:
    """The last three say numbers that mean nothing; the one that tells no ids can't be judged, and says so."""
    checkpoint = tiny.write_checkpoint(tmp_path / "llama", "llama")
    tree = tiny.write_engine(tmp_path / "right", "llama")
    arms = (
        Arm(name="engine", engine=tiny.engine_job(tree, checkpoint)),
        server(checkpoint, "served", "--engine", str(tree), "--compute", "{dtype}", preset="vllm"),
        server(checkpoint, "in-pieces", "--engine", str(tree), "--fault", "pieces", *SGLANG, preset="sglang"),
        server(checkpoint, "wrong"),
        server(checkpoint, "dies", "--fault", "dies", "--after", "3"),
        server(checkpoint, "untold", "--dialect", "text"),
    )
    job = BenchmarkJob(
        arms=arms,
        scenarios=(Scenario(prompt_tokens=9, new_tokens=NEW),),
        repeats=2,
        startup=True,
        checkpoint=str(checkpoint),
        facts=tiny.facts(),
    )
    found = Device("cpu", tmp_path / "cache", tmp_path / "leases").benchmark(job)
    results = {arm.arm: arm for arm in found.arms}
    status = {name: result.status for name, result in results.items()}
    details = {name: result.detail for name, result in results.items()}
    right = {"engine": "OK", "served": "OK", "in-pieces": "OK", "untold": "OK"}
    assert status == {**right, "wrong": "WRONG", "dies": "CRASHED"}, details
    assert "by the logits of engine" in details["wrong"]
    assert "out of memory, says the stand-in" in details["dies"]
    groups: dict[int, list[str]] = {}
    for row in sorted(found.rows, key=lambda row: row.order):
        groups.setdefault(row.group, []).append(row.arm)
    assert all({"engine", "served", "untold"} <= set(turns) for turns in groups.values()), "timed beside each other"
    assert len({tuple(turns) for turns in groups.values()}) > 1, "the order rotates"
    for row in found.rows:
        after = NEW - 3 if row.arm == "in-pieces" else NEW - 1
        assert row.latency_ms == pytest.approx(row.ttft_ms + after * row.tpot_ms), "TPOT leaves out the first piece"
    assert results["served"].peak_rss_bytes > 50 << 20
    assert results["served"].load_s > 0.1
    told = {name: result.setting for name, result in results.items() if result.setting}
    assert set(told) == set(results)
    assert told["served"].version == "1.2.3"
    assert "--enforce-eager" in told["served"].command.split(), "the candidate's step is eager"
    assert (told["served"].dtype, told["served"].graph, told["served"].counted) == ("float32", "eager", "token ids")
    assert told["untold"].counted == "usage"
    assert "not judged at all" in told["untold"].not_given["logits"]


SGLANG = ("--dialect", "sglang")


def row(arm: str, repeat: int, tpot: float) -> Row:
    times = {"ttft_ms": 5.0, "tpot_ms": tpot, "latency_ms": 5 + 31 * tpot, "decode_tok_s": 1000 / tpot}
    return Row(arm=arm, prompt_tokens=64, new_tokens=32, repeat=repeat, order=repeat, foreign_cpu=0.0, **times)  # type: ignore[arg-type]


def setting(**fields: object) -> Setting:
    usual = {"version": "1", "dtype": "float32", "tensor_parallel": 1, "graph": "graph", "asked": "a pipe"}
    return Setting.model_validate(usual | fields)


def test_the_tables_name_what_differs_and_what_an_arm_cannot_give() -> None:
    missing = {"peak_memory_bytes": "its process is not ours", "startup_s": "it ran already"}
    arms = (
        ArmResult(arm="engine", status="OK", load_s=1.5, peak_rss_bytes=1 << 30, setting=setting()),
        ArmResult(arm="vllm", status="OK", load_s=9.0, peak_rss_bytes=2 << 30, setting=setting(graph="eager")),
        ArmResult(
            arm="far",
            status="OK",
            setting=setting(
                version="9.9", dtype=None, graph=None, not_given=missing | {"read_bandwidth": "on another machine"}
            ),
        ),
    )
    tpot = {"engine": 10.0, "vllm": 20.0, "far": 5.0}
    rows = tuple(row(arm, i, value) for arm, value in tpot.items() for i in range(3))
    benchmark = Benchmark(
        rows=rows, arms=arms, read_gb_s=20.0, repeats=3, warmup=1, prompts="words", device="cpu", seconds=1.0
    )
    text = text_of(summary_table(benchmark, tiny.facts()), setting_table(benchmark))
    assert "graph eager (the candidate: graph)" in text
    assert "dtype not known (the candidate: float32)" in text
    assert "2.00 [2.00, 2.00]" in text, "the engine's speed over vllm"
    assert "0.50 [0.50, 0.50]" in text, "and over the other"
    assert "TPOT is 2.00 [2.00, 2.00] times that of far, which is faster" in text
    assert "peak memory N/A (its process is not ours)" in text
    assert "ready in N/A (it ran already)" in text
    assert "startup_s: N/A, it ran already" in text
    (far,) = [line for line in text.splitlines() if "64 + 32" in line and " far " in line]
    assert "N/A" in far, "its share of another machine's bandwidth is not computed from this one's"
    assert "9.9" in text


def test_a_baseline_that_cannot_be_asked_ends_the_benchmark_and_leaves_no_process(tmp_path: Path) -> None:
    checkpoint = tiny.write_checkpoint(tmp_path / "llama", "llama")
    tree = tiny.write_engine(tmp_path / "right", "llama")
    arm = server(checkpoint, "short", "--fault", "exits")
    with pytest.raises(UserError, match=r"the baseline short .*no such model, says the stand-in"):
        bench_engine(tree, checkpoint, tiny.facts(), tmp_path / "cache", against=(arm,))


def test_arms_are_hugging_face_unless_others_are_named_and_have_names_of_their_own() -> None:
    assert [(arm.name, arm.baseline) for arm in baselines(())] == [("huggingface", None)]
    python, port = sys.executable, "--port {port}"
    named = baselines([f"{python} a/serve.py {port}", "huggingface", f"{python} b/serve.py {port}"])
    assert [arm.name for arm in named] == ["serve.py", "huggingface", "serve.py-2"]
    assert [arm.name for arm in baselines([f"{python} -m latest.server {port}"])] == ["latest.server"]
    assert [arm.name for arm in baselines([f"sh engine {port}"])] == ["sh"]
    assert [arm.name for arm in baselines(["http://127.0.0.1:8000/v1", "http://127.0.0.1:8001"])] == [
        "127.0.0.1:8000",
        "127.0.0.1:8001",
    ]
    twice = baselines([f"{python} engine {port}"] * 2)
    assert [arm.name for arm in twice] == ["engine-2"], "named twice, timed once, and never as the engine itself"
