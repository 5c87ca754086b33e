"""The main job on tiny checkpoints, through the command line: killed and resumed, and as a Ray job."""

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

from swarm.journal import read_events
from tests.ray.whole_run import (
    REPOSITORY,
    check_finished,
    environment,
    make_home,
    nothing_twice,
    start,
    wait_until,
)


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
