"""Puts a command behind walls as a JSON specification says, watches over it, and reports what took effect.

    python -I -S confine.py SPECIFICATION.json

The first of two stages. Stand-alone: standard library only. Two processes: a watcher that stays outside and ends the
whole group when its own parent is gone, and the confined one, which joins its cgroups, enters namespaces of its own
(bubblewrap makes them where the specification holds its command line, we do otherwise) and becomes rules.py, which
applies the rest.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID_NODEV_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2 | 0x4 | 0x8, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_READ_ONLY, ATTR_NO_SETUID = 442, -100, 0x8000, 0x1, 0x2
PR_SET_CHILD_SUBREAPER = 36
INSIDE = ("own_network", "own_proc", "sealed")
"""What the second stage is told of where it is."""
ALL = ("network", "pid", "ipc", "mount")


def check(result: int, what: str) -> int:
    """Raises OSError for the -1 of a C call."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def enter_namespaces() -> tuple[str, ...]:
    """As many namespaces as the kernel grants, by name."""
    user = 0 if os.getuid() == 0 else NEWUSER
    for flags, names in (
        (NEWNET | NEWPID | NEWIPC | NEWNS, ALL),
        (NEWNET | NEWIPC, ("network", "ipc")),
    ):
        if user and not usable(user | flags):
            continue
        if LIBC.unshare(user | flags) == 0:
            if user:
                map_own_ids()
            return names
    return ()


def usable(flags: int) -> bool:
    """Whether a child gets along in such namespaces. Some systems grant a user namespace and then nothing in it
    (AppArmor on Ubuntu 24.04), and there is no way back out of it."""
    pid = os.fork()
    if pid == 0:
        try:
            check(LIBC.unshare(flags), "unshare")
            map_own_ids()
            loopback_up()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def map_own_ids() -> None:
    uid, gid = os.getuid(), os.getgid()
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack_from("16sH", fcntl.ioctl(sock, 0x8913, request))[1]
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14s", b"lo", flags | 1, b""))


def read_only(writable: list[str]) -> bool:
    """Makes every mount read-only and without setuid, but for the folders that are given: where a file's owner is also
    the candidate's user, Landlock would let it change modes and times. False, and nothing changed, on a kernel before
    5.12."""
    for folder in writable:
        check(LIBC.mount(folder.encode(), folder.encode(), None, MS_BIND, None), f"bind {folder}")
    if not set_attributes("/", ATTR_READ_ONLY | ATTR_NO_SETUID, 0, recursive=True):
        return False
    for folder in writable:
        check(set_attributes(folder, 0, ATTR_READ_ONLY, recursive=False) - 1, f"writable {folder}")
    return True


def set_attributes(path: str, on: int, off: int, *, recursive: bool) -> bool:
    attributes = struct.pack("QQQQ", on, off, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    return bool(LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, attributes, len(attributes)) == 0)


def own_mounts(spec: dict[str, Any]) -> dict[str, bool]:
    """A view of the mounts that the watcher does not share: read-only, with a /proc that shows the group alone. Some
    containers forbid one or the other."""
    check(LIBC.unshare(NEWNS), "unshare mounts")
    check(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    sealed = read_only(spec["folders"])
    proc = LIBC.mount(b"proc", b"/proc", b"proc", MS_NOSUID_NODEV_NOEXEC, None) == 0
    os.chdir(spec["private"])  # until now it was there by the mount below
    if sealed and not proc:
        set_attributes("/proc", 0, ATTR_READ_ONLY, recursive=False)  # threads write their names there
    return {"sealed": sealed, "own_proc": proc}


def start(spec: dict[str, Any], spaces: tuple[str, ...], told: int) -> None:
    """Becomes the second stage, inside. `told`: the pipe for bubblewrap's word on which process is which."""
    for file in spec["cgroups"]:
        with open(file, "w") as procs:  # noqa: PTH123
            procs.write("0")
    if spec["bubblewrap"]:
        known = dict.fromkeys(INSIDE, True)
    else:
        known = dict.fromkeys(INSIDE, False) | {"own_network": "network" in spaces}
        if "network" in spaces:
            loopback_up()
        if "mount" in spaces:
            known |= own_mounts(spec)
    inside = [sys.executable, "-I", "-S", "-B", spec["rules"], sys.argv[1], json.dumps(known)]
    if spec["bubblewrap"]:
        inside = [*spec["bubblewrap"], "--info-fd", str(told), "--", *inside]
        os.set_inheritable(told, True)
    else:
        os.write(told, json.dumps({"child-pid": 0} | known).encode())
        os.close(told)
    os.execv(inside[0], inside)


def watch(pid: int, spec: dict[str, Any]) -> int:
    """Waits for the confined process; ends it when our own parent is gone. Returns its exit status, when whatever it
    left behind has ended too: its orphans are ours, however often they forked and whatever session they began."""
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    alone = False
    while True:
        done, status = os.waitpid(-1, os.WNOHANG)
        if done == pid:
            end_orphans()
            if alone or os.getppid() != parent:  # a child may notice the lost parent before we do, and leave
                clear(spec)
            return status
        if done:
            continue
        if os.getppid() != parent:
            alone = True
            send(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.5)


def clear(spec: dict[str, Any]) -> None:
    """What the parent would have removed: its groups and the private folder."""
    import shutil

    for file in spec["cgroups"]:
        for _ in range(200):  # the kernel counts an ended process for some milliseconds more
            try:
                os.rmdir(os.path.dirname(file))  # noqa: PTH106, PTH120
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)
    shutil.rmtree(spec["private"], ignore_errors=True)


def end_orphans() -> None:
    """Ends and reaps all descendants of this process. They are stopped first: of a group that forks all the time, each
    that was killed would make room for another, and one that is stopped keeps its place."""
    stopped: set[int] = set()
    while fresh := descendants() - stopped:
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        send(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def descendants() -> set[int]:
    """Ids of the processes that come from this one and have not ended."""
    below: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                below.setdefault(int(parent), []).append(int(name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        members = below.get(waiting.pop(), [])
        found.update(members)
        waiting += members
    return found


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        spec = json.load(file)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    spaces = enter_namespaces() if spec["namespaces"] else ()
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(heard)
        start(spec, spaces, told)
    os.close(told)
    with os.fdopen(heard, encoding="utf-8") as answer:
        inside = json.loads(answer.read() or "{}")
    inside["pid"] = inside.pop("child-pid", 0) or pid
    if spec["bubblewrap"]:
        spaces = ALL if os.getuid() == 0 else ("user", *ALL)
        inside = {"pid": inside["pid"]} | dict.fromkeys(INSIDE, True)
    inside["namespaces"] = spaces
    os.write(spec["report"], json.dumps(inside).encode() + b"\n")
    os.closerange(0, 3)
    os.close(spec["report"])
    for fd in spec["keep"]:
        os.close(fd)
    status = watch(pid, spec)
    if os.WIFSIGNALED(status):
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
