"""What a child can't do, tried for real: one process makes all attempts and prints what happened."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_actors import cgroups, processes
from gpu_actors.sandbox import Confinement, Sandbox, wait_for

ATTEMPTS = """
import json, os, pathlib, socket, subprocess, sys
secret_file, port, parent, packages, readable, writable = sys.argv[1:]

def attempt(action):
    try:
        action()
        return "done"
    except BaseException as error:
        return type(error).__name__

def import_transformers():
    sys.path.insert(0, packages)
    import transformers

pathlib.Path("source.cpp").write_text("int main() { return 7; }")
compiled = subprocess.run(["g++", "source.cpp", "-o", "program"], capture_output=True, text=True)
print(json.dumps({
    "environment": sorted(os.environ),
    "read a file outside": attempt(lambda: open(secret_file).read()),
    "read a file that is allowed": attempt(lambda: open(readable).read()),
    "write to what is only readable": attempt(lambda: open(readable, "a").write("x")),
    "write to the kernel cache": attempt(lambda: open(writable + "/kernel", "w").write("x")),
    "write to the system": attempt(lambda: open("/usr/enginesmith", "w").write("x")),
    "connect to the host": attempt(lambda: socket.create_connection(("127.0.0.1", int(port)), 2)),
    "listen on its own loopback": attempt(lambda: socket.create_server(("127.0.0.1", 0))),
    "signal the parent": attempt(lambda: os.kill(int(parent), 0)),
    "read the parent's environment": attempt(lambda: open(f"/proc/{parent}/environ").read()),
    "import transformers": attempt(import_transformers),
    "dump core": __import__("resource").getrlimit(4)[1],
    "compile": subprocess.run(["./program"]).returncode if compiled.returncode == 0 else compiled.stderr,
    "home": os.environ["HOME"],
    "user": __import__("getpass").getuser(),
}))
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-B", "-c", code, *arguments]


def alive(name: str) -> list[int]:
    """Processes whose command line holds a word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if name.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_the_host_is_out_of_reach_and_the_tools_of_a_kernel_build_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_SECRET", "x")
    secret, readable, writable = tmp_path / "secret", tmp_path / "readable", tmp_path / "kernels"
    secret.write_text("x")
    readable.write_text("x")
    writable.mkdir()
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = (str(secret), str(listener.getsockname()[1]), str(os.getpid()), packages)
        argv = python(ATTEMPTS, *arguments, str(readable), str(writable))
        with Sandbox(argv, Confinement(read=(readable,), write=(writable,))) as child:
            status = wait_for(child, time.monotonic() + 60)
            child.drain()
            assert status == 0, child.output
            found = json.loads(child.output)
            private = child.private
    if "network open" in child.isolation or "no Landlock" in child.isolation:
        pytest.skip(f"this kernel confines less: {child.isolation}")
    assert "ENGINESMITH_SECRET" not in found["environment"]
    assert found["home"] == str(private)
    assert found["user"] == "engine"
    assert not private.exists()
    done = {name for name, outcome in found.items() if outcome == "done"}
    assert done == {"read a file that is allowed", "write to the kernel cache", "listen on its own loopback"}
    assert found["import transformers"] == "PermissionError"
    assert found["dump core"] == 0
    assert found["compile"] == 7


def test_a_daemon_that_left_its_session_ends_with_the_group() -> None:
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sleep = "import time; time.sleep(600)"
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", sleep, "daemon-of-the-test"])
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""
    with Sandbox(python(code), Confinement()) as child:
        deadline = time.monotonic() + 30
        while not alive("daemon-of-the-test") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive("daemon-of-the-test"), child.output
        assert wait_for(child, time.monotonic()) is None
        assert child.killed == "it ran past its deadline"
    for _ in range(100):
        if not alive("daemon-of-the-test"):
            return
        time.sleep(0.05)
    pytest.fail("the daemon outlived its sandbox")


def test_an_orphan_that_nobody_saw_ends_with_the_group_also_without_a_pid_namespace() -> None:
    """It forks twice, begins a session and loses its parent before the harness has looked at the tree once."""
    code = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)", "orphan-unseen"])
    os._exit(0)
os.wait()
"""
    with Sandbox(python(code), Confinement(mode="none")) as child:
        child.sample_s = 60.0
        assert child.wait(30) == 0, child.output
        assert alive("orphan-unseen") == [], "when the group has ended, it has ended"


def test_no_process_can_signal_every_other_one() -> None:
    """Without a pid namespace that would be the harness as well. Signal 0 only asks whether it may."""
    code = (
        "import os\ntry:\n    os.kill(-1, 0)\nexcept OSError as error:\n    print(error.errno)\nos.kill(os.getpid(), 0)"
    )
    with Sandbox(python(code), Confinement()) as child:
        assert child.wait(30) == 0, child.output
        child.drain()
        if "no seccomp" in child.isolation:
            pytest.skip("this machine has no seccomp filter of ours")
        assert child.output.strip() == str(errno.EPERM)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = bytearray(400 << 20)\nimport time\ntime.sleep(60)", "its resident memory of"),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "it wrote more than 64 MiB"),
    ],
)
def test_what_takes_too_much_is_ended(code: str, reason: str) -> None:
    with Sandbox(python(code), Confinement(memory_bytes=200 << 20)) as child:
        assert child.wait(30) is not None
        assert child.killed is not None
        assert child.killed.startswith(reason)
        assert len(child.output) <= 64 * 1024


def test_a_group_ends_when_its_parent_is_killed() -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from gpu_actors.sandbox import Confinement, Sandbox
child = Sandbox([sys.executable, "-c", "import time; time.sleep(600)", "orphan-of-the-test"], Confinement())
print(child.pid, child.private, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    first, private_name = parent.stdout.readline().split()
    pid, private = int(first), Path(private_name)
    started = processes.start_time(pid)
    assert started
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while processes.start_time(pid) == started and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes.start_time(pid) != started
    while left(parent.pid, private) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left(parent.pid, private) == [], "its watcher removes what the parent would have removed"


def test_who_is_given_the_number_of_a_child_that_ended_is_left_alone() -> None:
    """Numbers come round within minutes on a busy machine."""
    sleeps = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)'])"
    stranger = subprocess.Popen([sys.executable, "-I", "-c", sleeps])
    try:
        while len(processes.tree(stranger.pid)) < 2:
            time.sleep(0.02)
        with Sandbox(python("pass"), Confinement()) as child:
            assert child.wait(30) == 0
            child.pid = child._process.pid = stranger.pid
            time.sleep(0.3)
        assert len(processes.tree(stranger.pid)) == 2
        assert stranger.poll() is None
    finally:
        for pid in processes.tree(stranger.pid):
            os.kill(pid, signal.SIGKILL)
        stranger.wait()


def left(pid: int, private: Path) -> list[Path]:
    """Control groups and private folder of a parent that is gone."""
    groups = [group for place in cgroups.places().values() for group in place.glob(f"enginesmith-{pid}-*")]
    return [*groups, *([private] if private.exists() else [])]


def test_memory_is_counted_over_the_whole_tree() -> None:
    code = """
import subprocess, sys
code = "x = b'x' * (100 << 20); print(flush=True); import time; time.sleep(60)"
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
x = b'x' * (100 << 20)
print("ready", flush=True)
import time
time.sleep(60)
"""
    with Sandbox(python(code), Confinement()) as child:
        deadline = time.monotonic() + 30
        while child.peak_rss_bytes < 200 << 20 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert 200 << 20 <= child.peak_rss_bytes < 300 << 20, child.output


def test_a_user_namespace_that_is_granted_and_good_for_nothing_is_not_entered() -> None:
    """As AppArmor has it on Ubuntu 24.04: `unshare` succeeds, and what comes after it is refused."""
    code = """
import os, sys
sys.path.insert(0, sys.argv[1])
from gpu_actors.drivers import confine
os.getuid = lambda: 1000
entered = []
class Granting:
    def unshare(self, flags):
        entered.append(flags)
        return 0  # and the process stays where it was, where it may not map its ids
confine.LIBC = Granting()
print(confine.enter_namespaces(), entered)
"""
    argv = [sys.executable, "-c", code, str(Path(__file__).parents[3])]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "() []\n"


def test_no_caller_can_leave_out_a_layer_of_the_sandbox() -> None:
    with pytest.raises(TypeError, match="without"):
        Confinement(without=frozenset({"seccomp"}))  # type: ignore[call-arg]
    ours = Path(cgroups.__file__).parent
    kinds = [path for path in ours.rglob("*.py") if "(Confinement)" in path.read_text(encoding="utf-8")]
    assert kinds == [], "another kind of sandbox, which could"
