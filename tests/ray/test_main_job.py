"""The main job on tiny checkpoints, through the command line: killed and resumed, and as a Ray job."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ckb.store import Store
from swarm.journal import read_events
from swarm.state import RunState
from swarm.workspace import Workspace
from tests.ray.whole_run import REPOSITORY, environment, make_home, start, state_of, wait_until


def check_finished(home: Path, run: Path) -> RunState:
    """What every accepted run leaves behind."""
    state = state_of(run)
    assert state.finished
    assert state.finished.outcome == "accepted", state.finished
    engine = home / state.released.path
    manifest = json.loads((engine / "manifest.json").read_text())
    assert manifest["tree"] == state.released.tree
    assert manifest["lines"] <= 1200
    assert (engine / "report.html").is_file()
    assert (run / "report.html").is_file()
    branches = [b for b in Workspace(run).branches() if b.startswith("candidate/")]
    assert len(branches) >= 3
    assert len({c.submitted.tree for c in state.candidates.values()}) >= 3
    for candidate in state.candidates.values():
        assert candidate.decided, f"{candidate.id} has no row that says what became of it"
    store = Store(home / "store")
    assert state.consolidated.version == state.plan.ckb_version + 1
    assert state.consolidated.version <= store.latest
    return state


def nothing_twice(run: Path) -> None:
    """No issue opened, closed or merged twice, and no verdict of one purpose made twice on one attempt."""
    events = read_events(run)
    for kind, key in {
        "issue_opened": lambda e: e.issue.id,
        "issue_closed": lambda e: e.issue,
        "merged": lambda e: e.candidate,
        "candidate_decided": lambda e: e.candidate,
        "candidate_submitted": lambda e: (e.candidate, e.attempt),
        "verdict_made": lambda e: (e.candidate, e.attempt, e.purpose),
        "consolidated": lambda e: e.version,
        "engine_released": lambda e: e.path,
    }.items():
        keys = [key(event) for event in events if event.kind == kind]
        assert len(keys) == len(set(keys)), f"{kind} twice: {keys}"


@pytest.mark.timeout(600)
def test_a_killed_driver_is_resumed_and_nothing_is_done_twice(tmp_path: Path) -> None:
    home = make_home(tmp_path / "my home", "llama", layers=2)
    run = home / "runs" / "killed"
    driver = start(home, "generate", "target.yaml", "--run-dir", str(run))
    wait_until(run, "merged", driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    before = [event.model_dump() for event in read_events(run)]
    again = start(home, "resume", str(run))
    output, _ = again.communicate(timeout=400)
    assert again.returncode == 0, output[-4000:]
    assert [event.model_dump() for event in read_events(run)][: len(before)] == before
    check_finished(home, run)
    nothing_twice(run)


@pytest.mark.timeout(600)
@pytest.mark.slow  # three minutes; the whole run below a killed driver goes through the same lines
def test_a_job_submitted_to_a_cluster_makes_a_qwen3_engine(tmp_path: Path) -> None:
    """From a copy of the project without models/, on a cluster that asks for a token. The other test has the round."""
    home = make_home(tmp_path / "home", "qwen3", layers=4, rounds=0)
    copy = tmp_path / "copy"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in filter(None, tracked.stdout.split("\0")):
        if not name.startswith("tests/") and (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, copy / name)
    shutil.copy(home / "target.yaml", copy / "targets" / "tiny.yaml")
    env = environment(home, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0123456789abcdef" * 4, RAY_USAGE_STATS_ENABLED="0")
    del env["PYTHONPATH"]
    ray = str(Path(sys.executable).parent / "ray")
    port, dashboard = "26379", "28265"
    head = [ray, "start", "--head", "--block", "--port", port, "--dashboard-port", dashboard, "--num-cpus", "4"]
    folder = tempfile.mkdtemp(prefix="es-")  # short: Ray's socket names must fit into 107 bytes
    log = (tmp_path / "cluster.log").open("w")
    cluster = subprocess.Popen([*head, "--temp-dir", folder], env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        submit = [ray, "job", "submit", "--address", f"http://127.0.0.1:{dashboard}", "--working-dir", "."]
        command = [sys.executable, "-m", "swarm", "generate", "targets/tiny.yaml", "--run-dir", str(home / "job")]
        wait_for_port(int(dashboard), tmp_path / "cluster.log")
        job = subprocess.run(
            [*submit, "--", *command], cwd=copy, env=env, capture_output=True, text=True, timeout=500, check=False
        )
        assert job.returncode == 0, job.stdout[-6000:] + job.stderr[-2000:]
    finally:
        cluster.send_signal(signal.SIGTERM)
        cluster.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
    state = check_finished(home, home / "job")
    assert "k_norm" in (home / state.released.path / "weights.py").read_text()


def wait_for_port(port: int, log: Path) -> None:
    for _ in range(900):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}: {log.read_text()[-2000:]}")
