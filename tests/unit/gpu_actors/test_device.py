"""Leases, the paired benchmark, the profile and the user's commands, on tiny engines."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from ckb.errors import UserError
from gpu_actors import processes
from gpu_actors.bench import bench_engine, summary_table
from gpu_actors.benchmark_jobs import Arm, ArmResult, Benchmark, BenchmarkJob, Row, Scenario
from gpu_actors.device import Device
from gpu_actors.lease import Lease
from gpu_actors.user import parse_metrics, run_user_benchmark, run_user_checker
from tests.unit.gpu_actors import tiny

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("device")
    tiny.write_checkpoint(folder / "llama", "llama")
    return folder


HOLDER = """
import sys, time
from pathlib import Path
from gpu_actors.lease import Lease
with Lease(("cpu",), exclusive=False, folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_timing_waits_for_gates_gates_share_and_a_dead_holder_lets_go(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with Lease(("cpu",), exclusive=False, patience_s=0, folder=tmp_path):
        pass
    with (
        pytest.raises(UserError, match="device cpu has been leased"),
        Lease(("cpu",), exclusive=True, patience_s=0.1, folder=tmp_path),
    ):
        pass
    holder.kill()
    holder.communicate()
    with (
        Lease(("cpu",), exclusive=True, patience_s=5, folder=tmp_path),
        pytest.raises(UserError),
        Lease(("cpu",), exclusive=False, patience_s=0, folder=tmp_path),
    ):
        pass


def test_every_user_of_the_host_may_open_a_lease_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with Lease(("cpu",), exclusive=True, folder=tmp_path / "leases"):
            pass
    finally:
        assert os.umask(before) == 0o077, "it belongs to the whole process: other threads write files meanwhile"
    assert (tmp_path / "leases").stat().st_mode & 0o7777 == 0o1777
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "leases").iterdir()} == {0o666}


ONCE = """            said = globals().setdefault("SAID", [])
            said.append(token)
            yield (token + 7) % 384 if 12 < len(said) <= 24 else token
"""
"""Wrong in one generation of 12 tokens, the one after the warm-up."""


def test_arms_take_turns_on_the_same_prompts_and_wrong_ones_are_rows_that_do_not_count(work: Path) -> None:
    edits = {
        "right": {},
        "rubbish": {"engine.py": ("            yield token\n", "            yield (token + 1) % 384\n")},
        "once": {"engine.py": ("            yield token\n", ONCE)},
        "crashes": {"kernels.py": ("    torch.set_num_threads(THREADS)", "    import os; os.abort()")},
    }
    trees = {name: tiny.write_engine(work / name, "llama", edit) for name, edit in edits.items()}  # type: ignore[arg-type]
    arms = [Arm(name=name, engine=tiny.engine_job(tree, work / "llama")) for name, tree in trees.items()]
    job = BenchmarkJob(
        arms=tuple(arms),
        scenarios=(Scenario(prompt_tokens=9, new_tokens=12),),
        repeats=2,
        startup=True,
        checkpoint=str(work / "llama"),
        facts=tiny.facts(),
    )
    found = Device("cpu", work / "cache", work / "leases").benchmark(job)
    status = {arm.arm: arm.status for arm in found.arms}
    assert status == {"right": "OK", "rubbish": "WRONG", "once": "WRONG", "crashes": "CRASHED"}
    assert all(arm.load_s > 0 and arm.peak_rss_bytes > 50 << 20 for arm in found.arms if arm.status == "OK")
    rows = {name: [row for row in found.rows if row.arm == name] for name in trees}
    assert len(rows["right"]) >= 2
    assert all(row.latency_ms == pytest.approx(row.ttft_ms + 11 * row.tpot_ms) for row in rows["right"])
    assert all("by the logits of right" in (row.void or "") or row.foreign_cpu > 0.05 for row in rows["rubbish"])
    assert all(row.void for row in rows["rubbish"])
    assert not rows["crashes"]
    assert all(row.void for row in rows["once"]), "one wrong generation makes an engine wrong"
    groups: dict[int, list[str]] = {}
    for row in sorted(found.rows, key=lambda row: row.order):
        groups.setdefault(row.group, []).append(row.arm)
    assert all(sorted(turns) == ["once", "right", "rubbish"] for turns in groups.values()), "timed beside each other"
    first, second = list(groups.values())[:2]
    assert first != second, "the order rotates"
    assert found.read_gb_s > 1
    assert len(found.no_floor) == 1
    assert found.no_floor[0].startswith("9 + 12 tokens: ")
    assert "less than twice the last-level cache" in found.no_floor[0]
    assert found.device_seconds >= found.seconds


SLOW = """            import time
            time.sleep(0.03)
            yield token
"""
WATCHFUL = """            import threading, time
            seen = globals().setdefault("SEEN", {})
            if not seen:
                seen |= {"at": time.monotonic(), "pause": 0.0, "tokens": 0}
                def tick():
                    while True:
                        time.sleep(0.005)
                        now = time.monotonic()
                        seen["pause"] = max(seen["pause"], now - seen["at"])
                        seen["at"] = now
                threading.Thread(target=tick, daemon=True).start()
            seen["tokens"] += 1
            if seen["tokens"] > 24:
                raise RuntimeError(f"longest pause: {seen['pause']:.3f} s")
            yield token
"""
"""Has a thread that never rests, and says in its third generation of 12 tokens for how long it could not run."""


def test_an_arm_is_stopped_while_another_one_is_timed(work: Path) -> None:
    """What it does with the machine while it should wait for a request would slow the others down."""
    edits = {"slow": SLOW, "watchful": WATCHFUL}
    arms = []
    for name, lines in edits.items():
        tree = tiny.write_engine(work / name, "llama", {"engine.py": ("            yield token\n", lines)})
        arms.append(Arm(name=name, engine=tiny.engine_job(tree, work / "llama")))
    job = BenchmarkJob(
        arms=tuple(arms),
        scenarios=(Scenario(prompt_tokens=9, new_tokens=12),),
        repeats=2,
        checkpoint=str(work / "llama"),
        facts=tiny.facts(),
    )
    found = Device("cpu", work / "cache", work / "leases").benchmark(job)
    details = {arm.arm: (arm.status, arm.detail) for arm in found.arms}
    assert details["slow"][0] == "OK", details
    assert details["watchful"][0] == "CRASHED", details
    pause = float(details["watchful"][1].partition("longest pause: ")[2].split()[0])
    assert pause > 12 * 0.03


TREE = """
import os, sys, time
for _ in range(2):
    if os.fork() == 0:
        break
while True:
    sum(range(1000))
"""


def test_a_stopped_tree_rests_as_a_whole_and_goes_on() -> None:
    root = subprocess.Popen([sys.executable, "-c", TREE])
    try:
        while len(processes.tree(root.pid)) < 3:
            time.sleep(0.01)
        processes.stop(root.pid)
        time.sleep(0.05)
        members = processes.tree(root.pid)
        before = [processes.cpu_seconds([pid]) for pid in members]
        time.sleep(0.3)
        assert [processes.cpu_seconds([pid]) for pid in members] == before
        processes.resume(root.pid)
        deadline = time.monotonic() + 30
        while any(processes.cpu_seconds([pid]) == was for pid, was in zip(members, before, strict=True)):
            assert time.monotonic() < deadline, "a member never went on"
            time.sleep(0.05)
    finally:
        for pid in processes.tree(root.pid):
            os.kill(pid, signal.SIGKILL)
        root.wait()


def test_a_profile_names_the_parts_of_a_step(work: Path) -> None:
    tree = tiny.write_engine(work / "profiled", "llama")
    found = Device("cpu", work / "cache", work / "leases").profile(tiny.engine_job(tree, work / "llama"))
    assert {"linear", "attention", "rms_norm", "head", "rest"} <= found.shares.keys()
    assert found.shares["head"] > found.shares["linear"] / 40, "one of fifteen products is the head's"
    assert sum(found.shares.values()) == pytest.approx(1, abs=0.01)
    assert found.step_ms > 0
    assert found.device_seconds > 0
    assert found.failure == ""
    assert found.read_gb_s > 1
    assert "less than twice the last-level cache" in found.no_floor


def test_an_engine_that_dies_under_the_profiler_is_a_row_and_whoever_waited_for_the_device_said_so(
    work: Path, tmp_path: Path
) -> None:
    edit = {"kernels.py": ("    torch.set_num_threads(THREADS)", "    import os; os.abort()")}
    tree = tiny.write_engine(work / "waits", "llama", edit)
    now = tmp_path / "now.txt"
    device = Device("cpu", work / "cache", tmp_path / "leases", now=now)
    job = tiny.engine_job(tree, work / "llama")
    found = device.profile(job)
    assert found.failure.startswith("CRASHED: the process ended without an answer")
    assert found.shares == {}
    assert not now.exists(), "nobody was waited for"
    start = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        with Lease(("cpu",), exclusive=True, folder=tmp_path / "leases"):
            asked = pool.submit(device.profile, job)
            while not now.exists() and time.monotonic() < start + 20:
                time.sleep(0.05)
            time.sleep(2)
        found = asked.result()
    assert now.read_text() == "waiting for the device cpu: another run on this host holds it\n"
    assert [path.name for path in tmp_path.glob("now*")] == ["now.txt"]
    assert 0 < found.device_seconds < time.monotonic() - start - 1.9, "the wait does not count"


def test_verdicts_that_share_a_device_pass_its_turnstile_without_a_word(tmp_path: Path) -> None:
    said: list[str] = []

    def leased(_: int) -> None:
        with Lease(("cpu",), exclusive=False, folder=tmp_path, on_wait=said.append):
            time.sleep(0.01)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leased, range(64)))
    assert said == []


def row(arm: str, repeat: int, tpot: float, void: str | None = None) -> Row:
    times = {"ttft_ms": 5.0, "tpot_ms": tpot, "latency_ms": 5 + 127 * tpot, "decode_tok_s": 1000 / tpot}
    place = {"prompt_tokens": 11, "new_tokens": 128, "repeat": repeat, "order": repeat}
    return Row(arm=arm, **place, **times, foreign_cpu=0.0, void=void)  # type: ignore[arg-type]


def test_the_table_shows_each_arm_its_ratio_and_why_a_row_is_missing() -> None:
    rows = [row("engine", i, 10.0 + i) for i in range(3)] + [row("huggingface", i, 20.0 + 2 * i) for i in range(3)]
    rows += [row("other", 0, 1.0, void="foreign processes used 40% of the machine")]
    arms = tuple(
        ArmResult(arm=name, status="OK", load_s=1.5, peak_rss_bytes=1 << 30, not_judged=said)
        for name, said in (
            ("engine", ("whether cuda-0 was at work is not judged",)),
            ("huggingface", ()),
            ("other", ()),
        )
    )
    benchmark = Benchmark(
        rows=tuple(rows), arms=arms, read_gb_s=20.0, repeats=3, warmup=1, prompts="words", device="cpu", seconds=1.0,
        no_floor=("11 + 128 tokens: it fits",),
    )  # fmt: skip
    console = Console(width=200, record=True)
    console.print(summary_table(benchmark, tiny.facts()))
    text = console.export_text()
    assert "2.00 [2.00, 2.00]" in text
    assert "11.0 / 11.0 / 1.0" in text
    assert "foreign processes used 40% of the machine" in text
    assert "peak memory 1.00 GiB" in text
    assert "held to no floor of memory: 11 + 128 tokens: it fits" in text
    assert "whether cuda-0 was at work is not judged" in text


def test_a_context_that_is_too_short_for_the_benchmark_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="made for 96 tokens in all; this benchmark needs 139"):
        bench_engine(tmp_path, tmp_path, tiny.facts(), tmp_path, full=True)


def test_metrics_are_found_among_other_output() -> None:
    output = (
        'hello\n{"metric": "score", "value": 1}\n{"metric": "score", "value": 2.5}\n{"metric": "x", "value": "no"}\n[1]'
    )
    assert parse_metrics(output) == {"score": 2.5}


CHECKER = """
import json, os, pathlib, sys
engine, checkpoint = map(pathlib.Path, sys.argv[-2:])
assert (engine / "engine.py").exists() and (checkpoint / "config.json").exists()
mode = sys.argv[1]
if mode == "hang":
    import time
    time.sleep(60)
if mode == "measure":
    print(json.dumps({"metric": "lines", "value": len((engine / "engine.py").read_text().splitlines())}))
sys.exit(3 if mode == "fail" else 0)
"""


def test_the_user_s_commands_end_in_a_typed_result(work: Path) -> None:
    script = work / "check it.py"
    script.write_text(CHECKER)
    engine = tiny.engine_job(tiny.write_engine(work / "checked", "llama"), work / "llama")

    def run(mode: str, seconds: float = 30.0, benchmark: bool = False) -> tuple[str, str, dict[str, float]]:
        action = run_user_benchmark if benchmark else run_user_checker
        found = action(f"python {json.dumps(str(script))} {mode}", (script,), engine, work / "cache", seconds)
        return found.status, found.summary, found.metrics

    assert run("pass")[0] == "PASS"
    assert run("fail")[:1] == ("FAIL",)
    assert "exit status 3" in run("fail")[1]
    assert run("hang", 0.5)[0] == "TIMEOUT"
    assert run("measure", benchmark=True)[2] == {"lines": 45.0}
    assert "printed no line of the form" in run("pass", benchmark=True)[1]
    with pytest.raises(UserError, match="there is no program 'nothing-of-that-name'"):
        run_user_checker("nothing-of-that-name", (), engine, work / "cache", 1.0)
