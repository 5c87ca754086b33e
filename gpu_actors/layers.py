"""The layers of the sandbox: which there are, in what order, which this machine has, and what is open without each.

The one place that says so. A record's `isolation` is made here from what a child reported.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from gpu_actors.cgroups import Group

Layer = Literal["cgroups", "identity", "bubblewrap", "namespaces", "landlock", "seccomp"]
LAYERS: dict[Layer, str] = {
    "cgroups": "hard limits on the memory and on the number of processes of the whole group",
    "identity": "a root parent's child has a user id that owns nothing",
    "bubblewrap": "namespaces, and mounts that hold nothing but what the child is given",
    "namespaces": "network, pid, ipc and mount namespaces of our own making, where there is no bubblewrap",
    "landlock": "an allow-list of files; TCP ports, signals and abstract sockets where there are no namespaces",
    "seccomp": "refuses calls and kinds of sockets that no engine needs",
}
"""In the order in which they are put on. Limits (drivers/rules.py, allowance.py) and a clean environment come with
each."""
NEEDED: tuple[Layer, ...] = ("landlock", "seccomp")
"""Without these nothing generated is run, unless a Target says `sandbox: none`."""
NOTHING_OPEN = "nothing known"
UNUSED_IDS = 2_000_000_000
"""Where no distribution hands out user ids."""
SPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")


def is_root() -> bool:
    """Whether this process is the machine's root, whom limits on processes do not bind and who owns its files."""
    return os.getuid() == 0


@cache
def has_unused_ids() -> bool:
    """Whether this process may take any user id: root of a machine or of a container that shares its ids."""
    with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123
        ranges = [tuple(map(int, line.split())) for line in file]
    return is_root() and any(first <= UNUSED_IDS < first + count for first, _, count in ranges)


@cache
def bubblewrap() -> str:
    """The program, if it is there and works; otherwise empty."""
    program = shutil.which("bwrap")
    true = shutil.which("true")
    if not program or not true:
        return ""
    user = () if is_root() else ("--unshare-user",)
    argv = [program, *SPACES, *user, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", true]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return program if done.returncode == 0 else ""


def describe(applied: Mapping[str, Any], groups: Group) -> str:
    """What was in force, in words, and what stayed open: `LAYER; LAYER; open: ...`."""
    if not applied["confine"]:
        return "sandbox: none (a clean environment only)"
    spaces = applied["namespaces"]
    words = [
        f"Landlock ABI {applied['landlock']}" if applied["landlock"] else "no Landlock",
        "seccomp" if applied["seccomp"] else "no seccomp",
        ("bubblewrap: own " if applied["bubblewrap"] else "own ") + ", ".join(spaces) + " namespace"
        if spaces
        else "no namespaces",
        "own /proc" if applied["own_proc"] else "host /proc",
        "read-only mounts" if applied["sealed"] else "mounts as the host's",
        "a user id that owns nothing" if applied["uid"] is not None else "the user id of its parent",
        f"cgroup for {' and '.join(groups.kinds)}" if groups.kinds else "no cgroup",
        "rlimits; memory, processes, disk and output watched; clean environment",
    ]
    left = left_open(applied, groups)
    return "; ".join([*words, "open: " + (", ".join(left) or NOTHING_OPEN)])


def left_open(applied: Mapping[str, Any], groups: Group) -> list[str]:
    """What the layers in force can't contain. Those of NEEDED are."""
    spaces, version = applied["namespaces"], applied["landlock"]
    own_id, walled = applied["uid"] is not None, "network" in spaces
    # a device's libraries talk to each other through such sockets, so they are not refused beside one
    unix = bool(applied["devices"]) and not applied["bubblewrap"]
    found = {
        "TCP (Landlock before ABI 4)": not walled and version < 4,
        "Unix sockets with a path that its user may write": unix,
        "abstract Unix sockets (Landlock before ABI 6)": unix and not walled and version < 6,
        "signals to processes of its user (Landlock before ABI 6)": "pid" not in spaces and version < 6 and not own_id,
        "names and sizes of the host's files": not applied["bubblewrap"],
        "modes and times of the files that its user owns": not applied["sealed"] and not own_id,
        "truncation of files that it may only read (Landlock before ABI 3)": version < 3 and not applied["sealed"],
        "the number of processes between two looks": "processes" not in groups.kinds and not own_id and is_root(),
        "memory between two looks": "memory" not in groups.kinds,
    }
    return [name for name, is_open in found.items() if is_open]
