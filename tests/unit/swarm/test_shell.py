"""The walls round a coding agent: what it may read and write, and that no process of its is left."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from ckb.errors import UserError
from gpu_actors import bubblewrap, layers
from gpu_actors.bubblewrap import program_roots
from roles.authors.cli.shell import Command, Finished
from swarm.shell import ConfinedShell, need_commands
from swarm.target import parse_target

needs_bubblewrap = pytest.mark.skipif(not layers.bubblewrap(), reason="bubblewrap is not there or does not work here")
LOOKS = """
import importlib.util, json, os, pathlib, sys
found = {}
for name, path in json.loads(sys.argv[1]).items():
    try:
        found[name] = sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read()[:20]
    except OSError as error:
        found[name] = type(error).__name__
for name, path in json.loads(sys.argv[2]).items():
    try:
        pathlib.Path(path).write_text("x")
        found[name] = "written"
    except OSError as error:
        found[name] = type(error).__name__
spec = importlib.util.find_spec("ray")
found["ray"] = spec is not None and spec.origin is not None
found["pids"] = len([name for name in os.listdir("/proc") if name.isdigit()])
print(json.dumps(found))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a run whose plan nobody else may read, and a folder for the agent."""
    folder = tmp_path / "home"
    for name in ("runs/r", "cache", "shown", "kept"):
        (folder / name).mkdir(parents=True)
    (folder / "runs/r/plan.json").write_text('{"draw": 1}')
    (folder / "shown/notes.txt").write_text("read me")
    monkeypatch.setenv("ENGINESMITH_HOME", str(folder))
    return folder


def run(tmp_path: Path, script: str, *arguments: str, deadline_s: float = 60, **more: object) -> Finished:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(script)
    argv = (sys.executable, str(folder / "agent.py"), *arguments)
    return ConfinedShell("auto").run(Command(argv, folder, deadline_s, **more))  # type: ignore[arg-type]


@needs_bubblewrap
def test_an_agent_sees_the_system_itself_and_what_is_named(tmp_path: Path, home: Path) -> None:
    reads = {"run": home / "runs", "shown": home / "shown/notes.txt", "tmp": "/tmp", "hosts": "/etc/hosts"}
    writes = {"own": tmp_path / "work/x", "kept": home / "kept/x", "shown!": home / "shown/x", "system": "/usr/x"}
    said = [json.dumps({name: str(path) for name, path in places.items()}) for places in (reads, writes)]
    finished = run(tmp_path, LOOKS, *said, read=("shown",), write=("kept",))
    found = json.loads(finished.output)
    assert found["run"] == "FileNotFoundError"
    assert found["shown"] == "read me"
    assert "pytest" not in str([name for name in found["tmp"] if not name.startswith("pytest-of")])
    assert found["hosts"]
    assert (found["own"], found["kept"], found["shown!"], found["system"]) == (
        "written",
        "written",
        "OSError",
        "OSError",
    )
    assert not found["ray"], "it is a package that a candidate may not import, and so is every framework"
    assert found["pids"] < 10, "the processes of the machine are not its own"
    assert (home / "kept/x").read_text() == "x"
    assert "open: the network" in finished.isolation


@needs_bubblewrap
def test_what_is_hidden_stays_hidden_under_what_is_shown(tmp_path: Path) -> None:
    for name in ("prefix/bin", "prefix/runs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "prefix/runs/plan.json").write_text("{}")
    program = tmp_path / "prefix/bin/agent"
    shutil.copy("/bin/ls", program)
    words = bubblewrap.agent(layers.bubblewrap(), program, read=(), write=(), hide=[tmp_path / "prefix/runs"])
    assert str(tmp_path / "prefix") in words, "its own installation is shown"
    assert words[words.index(str(tmp_path / "prefix/runs")) - 1] == "--tmpfs"


def test_a_program_brings_its_installation_along_and_nobodys_home() -> None:
    user = Path.home()
    assert program_roots(Path("/opt/agent/bin/agent")) == [Path("/opt/agent")] * 2
    assert program_roots(user / "bin/agent") == [user / "bin"] * 2
    assert program_roots(user / "agent") == [user / "agent"] * 2
    assert program_roots(Path("/agent")) == [Path("/agent")] * 2


@needs_bubblewrap
def test_at_the_deadline_no_process_is_left(tmp_path: Path, home: Path) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    script = f"""
import subprocess, sys, time
for n in range(3):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "{mark}"], start_new_session=n > 0)
print("started", flush=True)
time.sleep(300)
"""
    finished = run(tmp_path, script, deadline_s=4)
    assert (finished.status, finished.output) == (None, "started\n")
    assert finished.ended == "it ran longer than its deadline of 4 s"
    lines = [pid / "cmdline" for pid in Path("/proc").iterdir() if pid.name.isdigit()]
    assert [path for path in lines if path.exists() and mark.encode() in path.read_bytes()] == []


@needs_bubblewrap
def test_a_command_that_leaves_something_running_ends_all_the_same(tmp_path: Path, home: Path) -> None:
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(300)']"
    script = f"import subprocess, sys\nsubprocess.Popen({sleeper})\nprint('done')\n"
    started = time.monotonic()
    finished = run(tmp_path, script)
    assert (finished.status, finished.output, finished.ended) == (0, "done\n", "")
    assert time.monotonic() - started < 30, "nobody waits for what holds its output open"


def test_a_place_that_is_not_there_or_holds_the_runs_is_refused(tmp_path: Path, home: Path) -> None:
    with pytest.raises(UserError, match="read of a cli author: nowhere is not there"):
        run(tmp_path, "", read=("nowhere",))
    with pytest.raises(UserError, match=r"write of a cli author: .* holds ENGINESMITH_HOME"):
        run(tmp_path, "", write=(str(home.parent),))


def test_without_bubblewrap_nothing_runs_unless_the_target_says_so(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "bubblewrap", lambda: "")
    with pytest.raises(UserError, match=r"nothing here can confine .*install bubblewrap .*or set `sandbox: none`"):
        run(tmp_path, "print(1)")
    folder = tmp_path / "work"
    command = Command((sys.executable, "-c", "print(1)"), folder, 60)
    assert ConfinedShell("none").run(command).output == "1\n"


def test_a_run_is_not_begun_with_a_command_that_could_not_answer(home: Path) -> None:
    def need(sandbox: str = "none", **fields: object) -> None:
        cli = {"kind": "cli", "command": f"{sys.executable} {{prompt_file}}", "most_usd": 0, **fields}
        authors = {"judge": {"kind": "ensemble", "members": [{"kind": "composer"}, cli]}}
        need_commands(parse_target({"model": {"path": "m"}, "authors": authors, "sandbox": sandbox}, "t.yaml"))

    need()
    with pytest.raises(UserError, match="the command 'no-such-agent' is not there"):
        need(command="no-such-agent {prompt_file}")
    with pytest.raises(UserError, match="the environment variable NO_SUCH_KEY"):
        need(environment=["NO_SUCH_KEY"])
    with pytest.raises(UserError, match="write of a cli author: nowhere is not there"):
        need(write=["nowhere"])
