"""The sandbox of a parent that is not root, tried by root as `nobody`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.gpu_actors.test_attacks import WALLS

ROOT = Path(__file__).parents[3]
PYTHON = Path("/usr/bin/python3")
"""Ours may lie in a folder of root's."""
NOBODY = 65534
PARENT = """
import json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
from gpu_actors import layers
from gpu_actors.sandbox import Confinement, Sandbox
code = '''
import json, os, sys
found = {"forks": 0}
try:
    os.chmod(sys.argv[1], 0)
    found["chmod"] = "done"
except OSError as error:
    found["chmod"] = error.errno
try:
    while found["forks"] < 1000:
        if os.fork() == 0:
            import time; time.sleep(60)
        found["forks"] += 1
except OSError:
    pass
print(json.dumps(found))
'''
rules = type("Without", (Confinement,), {"without": frozenset(json.loads(sys.argv[2]))})(tasks=60)
with Sandbox([sys.executable, "-I", "-S", "-c", code, sys.argv[3]], rules) as child:
    assert child.wait(60) == 0, child.output
    child.drain()
    print(json.dumps({"isolation": child.isolation, "bubblewrap": layers.bubblewrap()} | json.loads(child.output)))
"""


def nobody(*command: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[]
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("name", WALLS)
def test_it_is_limited_and_says_what_stays_open(name: str) -> None:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    version = (
        f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}; sys.path += {packages}; import psutil"
    )
    if not PYTHON.exists() or nobody(str(PYTHON), "-c", f"{version}; open({str(ROOT / 'AGENTS.md')!r})").returncode:
        pytest.skip("no python of the system that is like ours, or a checkout that nobody else can read")
    own = Path("/var/tmp") / f"enginesmith-own-{os.getpid()}"
    own.write_text("x")
    os.chown(own, NOBODY, NOBODY)
    try:
        arguments = (json.dumps([str(ROOT), *packages]), json.dumps(sorted(WALLS[name])), str(own))
        done = nobody(str(PYTHON), "-B", "-c", PARENT, *arguments)
    finally:
        own.unlink()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["forks"] < 60, "the limit counts its own processes, whatever else this user runs"
    still_open = found["isolation"].partition("open: ")[2]
    assert ("modes and times" in still_open) == (found["chmod"] == "done"), found
    assert "memory between two looks" in still_open
