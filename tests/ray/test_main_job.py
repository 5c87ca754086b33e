"""The main job on tiny checkpoints, through the command line: killed and resumed, and as a Ray job."""

import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.ray.chaos import chaos
from tests.ray.whole_run import REPOSITORY, check_finished, environment, make_home


@pytest.mark.timeout(2400)
def test_a_run_that_is_killed_three_times_ends_like_an_undisturbed_one_and_does_nothing_twice(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    assert chaos(tmp_path, 3, random.Random(seed)) == ""


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
