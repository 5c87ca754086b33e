"""What takes more of the machine than it was given, and what does not want to end: with each kind of walls."""

import ast
import inspect
import os
import sys
import time
from pathlib import Path

import pytest

from ckb.errors import UserError
from gpu_actors import allowance, cgroups, layers, processes
from gpu_actors.cgroups import Group, mounts
from gpu_actors.layers import Layer
from gpu_actors.sandbox import Confinement, Sandbox
from tests.unit.gpu_actors.test_attacks import WALLS
from tests.unit.gpu_actors.walls import without

WAYS: dict[str, frozenset[Layer]] = {**WALLS, "no cgroup": WALLS["neither"] | {"cgroups"}}
LIMITS = {"memory_bytes": 300 << 20, "disk_bytes": 50 << 20, "file_bytes": 20 << 20, "cpu_seconds": 2, "tasks": 400}
FORK_BOMB = "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
GREED = {
    "many processes": (FORK_BOMB, ("it started more than 256 processes", "its resident memory of")),
    "many threads": (
        "import threading\nthreads = []\ntry:\n    while len(threads) < 5000:\n"
        "        threads.append(threading.Thread(target=time.sleep, args=(60,), daemon=True))\n"
        "        threads[-1].start()\n"
        "except RuntimeError:\n    print(len(threads) < 420, flush=True)\nos._exit(7)",
        ("exit status 7",),
    ),
    "much memory": (
        "x = []\nwhile True:\n    x.append(b'x' * (64 << 20))", ("its resident memory of", "its memory reached"),
    ),
    "many files": (
        "for i in range(10_000):\n    open(f'{i}', 'wb').write(b'x' * (1 << 20))\ntime.sleep(60)",
        ("bytes to the disk; the limit is 52,428,800",),
    ),
    "a file without a name": (
        "os.truncate(os.open('x', os.O_CREAT | os.O_RDWR), 0)\nfds = []\nfor i in range(10_000):\n"
        "    fds.append(os.open('x', os.O_CREAT | os.O_RDWR)); os.unlink('x'); os.write(fds[-1], b'x' * (1 << 20))\n"
        "    if i == 300:\n        time.sleep(60)",
        ("bytes to the disk; the limit is 52,428,800",),
    ),
    "one large file": ("open('x', 'wb').write(b'x' * (30 << 20))", ("exit status 1", "exit status 153")),
    "much output": ("while True:\n    os.write(1, b'x' * 65536)", ("it wrote more than 64 MiB to stdout",)),
    "much time": ("while True:\n    pass", ("exit status 137", "exit status 152")),
}  # fmt: skip


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> frozenset[Layer]:
    if request.param == "bubblewrap" and not layers.bubblewrap():
        pytest.skip("bubblewrap is not installed, or does not work here")
    return WAYS[request.param]


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-B", "-c", "import os, signal, sys, time\n" + code, *arguments]


def named(word: str) -> list[int]:
    """Processes whose command line holds a word, this one left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("name", GREED)
def test_what_takes_too_much_is_ended_and_leaves_nothing(way: frozenset[Layer], name: str) -> None:
    code, reasons = GREED[name]
    word = f"greed-{os.getpid()}-{name.replace(' ', '-')}"
    with Sandbox(python(code, word), without(way, **LIMITS)) as child:
        status = child.wait(60)
        assert status is not None, "it still runs"
        child.drain()
        found = f"{child.killed or ''} exit status {status}"
        private, isolation = child.private, child.isolation
    assert any(reason in found for reason in reasons), (found, child.output[-300:])
    if name == "many threads" and "the number of processes" not in isolation:
        assert child.output.strip() == "True", "the kernel counts threads too"
    assert named(word) == []
    assert not private.exists()


def test_whatever_does_not_want_to_end_ends_with_its_group(way: frozenset[Layer]) -> None:
    """It ignores what it can, begins sessions, forks twice, forks all the time, and stops itself."""
    word = f"stays-{os.getpid()}"
    code = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGTTOU):
    signal.signal(number, signal.SIG_IGN)
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(0, 64)
        while True:
            if os.fork():
                os._exit(0)
            time.sleep(0.002)
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
print("ready", flush=True)
time.sleep(600)
"""
    with Sandbox(python(code, word), without(way)) as child:
        deadline = time.monotonic() + 30
        while "ready" not in child.output and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        assert child.running
    deadline = time.monotonic() + 5
    while named(word) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert named(word) == []


def test_a_folder_that_fills_up_is_emptied_although_it_is_kept_for_later(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    code = f"for i in range(1000):\n    open(f'{kernels}/{{i}}', 'wb').write(b'x' * (1 << 20))\ntime.sleep(60)"
    with Sandbox(python(code), Confinement(disk_bytes=20 << 20, write=(kernels,))) as child:
        assert child.wait(60) is not None
        assert "to the disk" in (child.killed or "")
    assert list(kernels.iterdir()) == []
    with Sandbox(python(f"open('{kernels}/x', 'w')"), Confinement(write=(kernels,))) as child:
        assert child.wait(60) == 0, child.output
    assert (kernels / "x").exists(), "what does no harm stays for the next verdict"


def test_empty_files_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "FILE_LIMIT", 500)
    code = "for i in range(2000):\n    open(f'{i}', 'w').close()\ntime.sleep(60)"
    with Sandbox(python(code), Confinement()) as child:
        assert child.wait(60) is not None
        assert "more than 500 files" in (child.killed or "")


def test_a_folder_that_nobody_may_look_into_is_removed_with_the_others(way: frozenset[Layer]) -> None:
    code = "os.makedirs('a/b/c')\nopen('a/b/c/x', 'w').close()\nos.chmod('a/b', 0)\nos.chmod('a', 0o500)"
    with Sandbox(python(code), without(way)) as child:
        assert child.wait(60) == 0, child.output
    assert not child.private.exists()


def test_programs_are_found_by_whoever_asks_whether_they_may_be_run(way: frozenset[Layer]) -> None:
    """A compiler that finds itself on the PATH, and Python's `which`, ask by access(2): that is another question than
    whether it works, for somebody who reads by a capability."""
    code = """
import shutil, subprocess
assert os.access(sys.executable, os.X_OK)
assert shutil.which("c++"), os.environ["PATH"]
open("a.cpp", "w").write("int main() { return 7; }")
subprocess.run(["c++", "a.cpp", "-o", "a"], check=True)
sys.exit(subprocess.run(["./a"]).returncode)
"""
    with Sandbox(python(code), without(way)) as child:
        assert child.wait(60) == 7, child.output


def test_what_a_tree_left_in_its_kernels_is_code_of_nobody_else(tmp_path: Path, way: frozenset[Layer]) -> None:
    """Neither the launcher nor the interpreter of a later child takes a module from there or from its home."""
    kernels, marks = tmp_path / "kernels", tmp_path / "marks"
    kernels.mkdir()
    marks.mkdir()
    plant = f"import os; open('{marks}/ran', 'w').close()\n"
    for name in ("sitecustomize.py", "usercustomize.py", "json.py", "rules.py", "sandbox.pth"):
        (kernels / name).write_text(plant)
    environment = {"PYTHONPATH": str(kernels), "HOME": str(kernels)}
    code = f"import json\nfrom pathlib import Path\nprint(json.__file__.startswith('{kernels}'))"
    rules = without(way, write=(kernels, marks), environment=environment)
    with Sandbox(python(code), rules) as child:
        assert child.wait(60) == 0, child.output
        child.drain()
        assert child.output.strip() == "False"
    assert list(marks.iterdir()) == []


def test_a_later_child_of_a_tree_owns_what_an_earlier_one_left(tmp_path: Path, way: frozenset[Layer]) -> None:
    """And nothing to which it only made a second name: that would be another's file."""
    kernels, foreign = tmp_path / "kernels", tmp_path / "foreign"
    (kernels / "a").mkdir(parents=True)
    foreign.write_text("x")
    os.link(foreign, kernels / "second-name")
    (kernels / "link").symlink_to(foreign)
    (kernels / "a" / "old").write_text("x")
    code = (
        f"open('{kernels}/a/old', 'a').write('y'); open('{kernels}/a/new', 'w').write('z'); os.utime('{kernels}/a/old')"
    )
    for _ in range(2):
        with Sandbox(python(code), without(way, write=(kernels,))) as child:
            assert child.wait(60) == 0, child.output
    assert (kernels / "a" / "old").read_text() == "xyy"
    assert foreign.stat().st_uid == os.getuid()


@pytest.mark.skipif("processes" not in cgroups.places(), reason="no control group can be made here")
def test_a_group_limits_counts_and_goes() -> None:
    group = Group(64 << 20, 5)
    try:
        pid = os.fork()
        if pid == 0:
            for file in group.files:
                Path(file).write_text("0")
            children = 0
            try:
                while children < 50:
                    if os.fork() == 0:
                        time.sleep(60)
                    children += 1
            except OSError:
                os._exit(children)
            os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4, "five with their parent"
        assert len(group.members()) == 4
    finally:
        group.kill()
        group.remove()
    assert not any(Path(file).exists() for file in group.files)


def test_our_own_group_is_found_in_a_machine_and_in_a_container() -> None:
    first = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    pids = "39 31 0:36 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    second = "41 31 0:38 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    own = "8:pids:/docker/abc\n4:memory:/jobs/one\n1:name=systemd:/\n"
    memory = Path("/sys/fs/cgroup/memory/jobs/one")
    assert mounts(first + pids, own) == ({"memory": memory, "pids": Path("/sys/fs/cgroup/pids")}, None)
    slice_ = "0::/user.slice/user-1000.slice/session.scope\n"
    assert mounts(second, slice_) == ({}, Path("/sys/fs/cgroup/user.slice/user-1000.slice/session.scope"))


OPEN = {
    "nothing but the first layers of an old kernel": (
        {"landlock": 1, "namespaces": [], "bubblewrap": [], "sealed": False, "uid": None, "devices": []},
        ["TCP", "signals to processes of its user", "names and sizes", "modes and times", "truncation"],
    ),
    "namespaces": (
        {"landlock": 7, "namespaces": ["user", "network", "pid", "ipc", "mount"], "bubblewrap": [], "sealed": True,
         "uid": None, "devices": []},
        ["names and sizes"],
    ),
    "a device without bubblewrap": (
        {"landlock": 4, "namespaces": [], "bubblewrap": [], "sealed": False, "uid": 2_000_000_001,
         "devices": ["/dev/x"]},
        ["Unix sockets with a path", "abstract Unix sockets", "names and sizes"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_what_stays_open_is_said_of_each_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    applied, expected = OPEN[name]
    monkeypatch.setattr(layers, "is_root", lambda: False)
    group = Group(1 << 30, 10, use=False)
    found = layers.left_open(applied, group)  # type: ignore[arg-type]
    wanted = [*expected, "memory between two looks"]
    assert len(found) == len(wanted), found
    assert all(any(line.startswith(word) for line in found) for word in wanted), found


def test_every_phrase_of_what_stays_open_is_on_the_page_and_the_layers_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader looks for the words of a record in docs/sandbox.md."""
    monkeypatch.setattr(layers, "is_root", lambda: True)
    worst = {"landlock": 1, "namespaces": [], "bubblewrap": [], "sealed": False, "uid": None, "devices": ["/dev/x"]}
    found = layers.left_open(worst, Group(1 << 30, 10, use=False))
    (table,) = (node for node in ast.walk(ast.parse(inspect.getsource(layers.left_open))) if isinstance(node, ast.Dict))
    assert len(found) == len(table.keys), "a phrase that the worst machine does not print"
    page = (Path(__file__).parents[3] / "docs" / "sandbox.md").read_text(encoding="utf-8")
    assert [phrase for phrase in (*found, layers.NOTHING_OPEN) if phrase not in page] == []
    rows = [line.split("|")[1].strip().lower() for line in page.splitlines() if line.startswith("| ")]
    first = rows.index("cgroups")
    assert rows[first : first + len(layers.LAYERS)] == list(layers.LAYERS)


def test_without_a_layer_that_is_needed_nothing_runs(tmp_path: Path) -> None:
    for layer in layers.NEEDED:
        kernels = tmp_path / layer
        kernels.mkdir()
        rules = without({layer}, write=(kernels,))
        before = handles()
        with pytest.raises(UserError, match=f"{layer} can't be applied here"):
            Sandbox(python(f"open('{kernels}/ran', 'w')"), rules)
        assert list(kernels.iterdir()) == []
        assert handles() == before, "nothing of the attempt is left"


def handles() -> tuple[int, list[int]]:
    """What this process holds: descriptors and children."""
    return len(list(Path("/proc/self/fd").iterdir())), processes.tree(os.getpid())
