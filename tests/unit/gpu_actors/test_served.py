"""Servers as arms of a benchmark: how they are asked, counted and ended, and what is said when they misbehave."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from benchmarks import prompts
from benchmarks.baselines.presets import parse
from benchmarks.baselines.records import Baseline
from ckb.errors import UserError
from gpu_actors import processes
from gpu_actors.benchmark_jobs import BenchmarkJob, Scenario
from gpu_actors.child import ChildFailure, Event
from gpu_actors.sandbox import free_port
from gpu_actors.served import ServerRunner
from gpu_actors.server_process import ServerProcess
from tests.unit.gpu_actors import tiny

STAND_IN = Path(__file__).parent / "stand_in_server.py"
PROMPT, NEW = 9, 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_checkpoint(tmp_path_factory.mktemp("served") / "llama", "llama")


def command(checkpoint: Path, *more: str) -> list[str]:
    return [sys.executable, str(STAND_IN), str(checkpoint), "--port", "{port}", *more]


def job(checkpoint: Path, accelerator: str = "cpu") -> BenchmarkJob:
    scenario = Scenario(prompt_tokens=PROMPT, new_tokens=NEW)
    facts = tiny.facts()
    facts = facts.model_copy(update={"platform": facts.platform.model_copy(update={"accelerator": accelerator})})
    return BenchmarkJob(arms=(), scenarios=(scenario,), checkpoint=str(checkpoint), facts=facts)


@contextmanager
def started(
    checkpoint: Path, *more: str, preset: str = "", ready_s: float = 60.0, accelerator: str = "cpu"
) -> Iterator[ServerRunner]:
    baseline = Baseline(command=tuple(command(checkpoint, *more)), folder="/", preset=preset, ready_s=ready_s)
    runner = ServerRunner("other", baseline, job(checkpoint, accelerator), checkpoint.parent)
    try:
        yield runner
    finally:
        runner.child.close()


def said(runner: ServerRunner, checkpoint: Path) -> list[Event]:
    (prompt,) = prompts.cut(checkpoint, [PROMPT], seed=5, through_text=True)
    return list(runner.stream(prompt, NEW, 60.0))


@pytest.mark.parametrize(
    ("dialect", "preset", "counted", "prompt"),
    [
        ("vllm", "vllm", "token ids", "token ids"),
        ("old-vllm", "vllm", "usage", "token ids"),
        ("vllm", "", "token ids", "token ids"),
        ("sglang", "sglang", "token ids", "token ids"),
        ("increments", "sglang", "token ids", "token ids"),
        ("old-vllm", "tensorrt_llm", "usage", "token ids"),
        ("mlx", "mlx_lm", "token ids", "text"),
        ("text", "", "usage", "text"),
    ],
)
def test_each_dialect_is_asked_for_what_it_can_give(
    checkpoint: Path, dialect: str, preset: str, counted: str, prompt: str
) -> None:
    accelerator = "cuda" if preset == "tensorrt_llm" else "cpu"
    with started(checkpoint, "--dialect", dialect, preset=preset, accelerator=accelerator) as runner:
        runner.load(60.0)
        setting = runner.setting
        assert (setting.counted, setting.asked.partition(" over")[0]) == (counted, prompt)
        events = said(runner, checkpoint)
        known = [(300 + 7 * i) % 384 for i in range(NEW)]
        assert [event.value for event in events] == (known if counted == "token ids" else [None] * NEW)
        assert [event.at_ns for event in events] == sorted(event.at_ns for event in events)
        assert events[-1].at_ns > events[0].at_ns
        with pytest.raises(ChildFailure, match="gives no logits"):
            runner.logits([1], [0], 1.0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ("--fault", "exits"),
            "it ended before it served anything; it ended with exit status 1; its last output: no such",
        ),
        (("--fault", "never"), r"did not serve within 2 s \(.*refused.*loading for ever"),
        (("--fault", "no-openai"), r"did not serve within 2 s \(/v1/models answers 404"),
        (("--fault", "500"), "HTTP 500: .*it has a bad day"),
        (("--fault", "short"), "asked for 12 tokens, found 9"),
        (("--fault", "adds"), "it read 10 tokens where 9 were meant"),
        (("--fault", "no-usage", "--dialect", "text"), "neither token ids nor usage"),
        (("--fault", "one-piece"), "all 12 tokens came in one piece"),
        (("--fault", "dies"), "CRASHED: .*it ended with exit status 3; its last output: out of memory"),
        (("--fault", "hang"), "TIMEOUT: .*within the deadline"),
        (("--context", "20"), "its context is 20 tokens, this benchmark needs 21"),
    ],
)
def test_what_is_wrong_before_the_clock_runs_is_said_with_the_servers_last_lines(
    checkpoint: Path, more: tuple[str, ...], words: str
) -> None:
    ready_s = 2.0 if {"never", "no-openai", "hang"} & set(more) else 60.0
    with (
        started(checkpoint, *more, ready_s=ready_s) as runner,
        pytest.raises(UserError, match=rf"(?s)the baseline other \(.*{words}"),
    ):
        runner.load(60.0)


def test_start_up_ends_where_it_serves_and_its_log_is_kept(checkpoint: Path) -> None:
    with started(checkpoint, "--fault", "slow") as runner:
        ready_ns = runner.load(60.0)
        answering_s = 0.05 * NEW
        assert time.perf_counter_ns() - ready_ns > 0.9e9 * answering_s, "the answer that finds the way is no start-up"
        assert ready_ns > runner.child.started_ns
    with started(checkpoint, "--fault", "exits") as runner:
        log = checkpoint.parent / "baselines" / "other.log"
        with pytest.raises(UserError, match=rf"\(log: {log}\)"):
            runner.load(60.0)
    command_line, *lines = log.read_text().splitlines()
    assert command_line.endswith("--fault exits")
    assert lines == ["no such model, says the stand-in"]


def test_several_tokens_in_a_piece_are_counted_one_by_one(checkpoint: Path) -> None:
    for dialect, preset in (("vllm", "vllm"), ("sglang", "sglang"), ("text", "")):
        with started(checkpoint, "--fault", "pieces", "--dialect", dialect, preset=preset) as runner:
            runner.load(60.0)
            times = [event.at_ns for event in said(runner, checkpoint)]
            assert len(times) == NEW
            if dialect != "text":
                assert len(set(times)) == NEW / 3


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("dies", "CRASHED", "its last output: out of memory"),
        ("hang", "TIMEOUT", "did not answer within the deadline"),
        ("500", "RAISED", "HTTP 500"),
        ("adds", "PROTOCOL", "it read 10 tokens"),
        ("one-piece", "PROTOCOL", "all 12 tokens came in one piece"),
    ],
)
def test_what_goes_wrong_while_the_clock_runs_is_a_failure_of_the_arm(
    checkpoint: Path, fault: str, kind: str, words: str
) -> None:
    with started(checkpoint, "--fault", fault, "--after", "1") as runner:
        runner.load(60.0)
        begun = time.monotonic()
        with pytest.raises(ChildFailure, match=words) as caught:
            said(runner, checkpoint)
        assert caught.value.kind == kind
        assert time.monotonic() - begun < 30, "a server that hangs must not spend the benchmark's time"


def test_a_deadline_that_has_passed_is_a_timeout_of_the_arm(checkpoint: Path) -> None:
    """One arm of a group may use up the benchmark's time; the next is asked with less than none."""
    with started(checkpoint) as runner:
        runner.load(60.0)
        for deadline_s in (0.0, -3.0):
            with pytest.raises(ChildFailure, match="the deadline had passed") as caught:
                list(runner.stream([300] * PROMPT, NEW, deadline_s))
            assert caught.value.kind == "TIMEOUT"


def test_a_server_ends_with_everything_that_it_started(checkpoint: Path) -> None:
    script = f"{shlex.join([sys.executable, str(STAND_IN), str(checkpoint)])} --port {{port}} & sleep 600 & wait"
    runner = ServerRunner(
        "other", Baseline(command=("/bin/sh", "-c", script), folder="/"), job(checkpoint), checkpoint.parent
    )
    try:
        runner.load(60.0)
        assert isinstance(runner.child, ServerProcess)
        members = processes.tree(runner.child.sandbox.pid)
        assert len(members) >= 3
    finally:
        runner.child.close()
    assert not [pid for pid in members if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


@contextmanager
def listening(checkpoint: Path, *more: str) -> Iterator[int]:
    port = free_port()
    words = [word.replace("{port}", str(port)) for word in command(checkpoint, *more)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()


def test_a_url_is_asked_and_left_alone(checkpoint: Path) -> None:
    with listening(checkpoint, "--model", "org/LLAMA") as port:
        baseline = parse(f"http://localhost:{port}/v1")
        assert baseline
        assert baseline.url == f"http://localhost:{port}/v1"
        runner = ServerRunner("other", baseline, job(checkpoint), checkpoint.parent)
        begun = time.monotonic()
        while time.monotonic() < begun + 20 and runner.child.sandbox.pid > 1 << 29:
            time.sleep(0.1)  # until it listens
            runner = ServerRunner("other", baseline, job(checkpoint), checkpoint.parent)
        runner.load(60.0)
        assert runner.local
        assert processes.start_time(runner.child.sandbox.pid), "its processor time counts as ours while it is timed"
        assert len(said(runner, checkpoint)) == NEW
        setting = runner.setting
        assert (setting.version, setting.dtype, setting.graph, setting.tensor_parallel) == ("1.2.3", None, None, None)
        assert set(setting.not_given) == {"logits", "peak_memory_bytes", "startup_s"}
        runner.child.close()
        assert not runner.child.alive, "what is not alive as ours is never stopped"
        assert len(said(runner, checkpoint)) == NEW, "it goes on: others may use it"


@pytest.mark.parametrize(
    ("model", "asked", "words"),
    [
        ("qwen3-8b", "", "serves qwen3-8b, the engine's checkpoint is llama; name the model: URL#MODEL"),
        ("qwen3-8b", "#qwen4", "no model 'qwen4'; it serves qwen3-8b"),
        ("qwen3-8b", "#qwen3-8b", ""),
    ],
)
def test_another_model_at_a_url_is_refused_unless_it_is_named(
    checkpoint: Path, model: str, asked: str, words: str
) -> None:
    with listening(checkpoint, "--model", model) as port:
        baseline = parse(f"http://127.0.0.1:{port}{asked}")
        assert baseline
        runner = ServerRunner("other", baseline, job(checkpoint), checkpoint.parent)
        if words:
            with pytest.raises(UserError, match=words):
                runner.load(60.0)
        else:
            runner.load(60.0)


def test_nobody_at_a_url_and_no_openai_server_are_said(checkpoint: Path) -> None:
    for words, more in (("did not serve within 1 s .*refused", None), ("answers 404, so it is no OpenAI", "no-openai")):
        with listening(checkpoint, "--fault", more or "") as port:
            asked = port if more else free_port()
            baseline = Baseline(url=f"http://127.0.0.1:{asked}/v1", ready_s=1.0 if not more else 20.0)
            with pytest.raises(UserError, match=words):
                ServerRunner("other", baseline, job(checkpoint), checkpoint.parent).load(60.0)


def test_the_server_of_an_engine_of_ours_is_a_baseline_like_any_other(checkpoint: Path, tmp_path: Path) -> None:
    tree = tiny.write_engine(tmp_path / "other", "llama")
    words = (sys.executable, "-m", f"{tree.name}.server", "{checkpoint}", "--port", "{port}")
    runner = ServerRunner("other", Baseline(command=words, folder=str(tmp_path)), job(checkpoint), checkpoint.parent)
    try:
        runner.load(120.0)
        assert (runner.setting.counted, runner.takes_text) == ("usage", False)
        assert "whether it can ignore end tokens is not known" in " ".join(runner.setting.notes)
        events = said(runner, checkpoint)
        assert [event.value for event in events] == [None] * NEW
    finally:
        runner.child.close()
