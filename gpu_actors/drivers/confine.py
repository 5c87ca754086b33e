"""Confines itself as a JSON specification says, reports what took effect, and becomes the given command.

    python -I -S confine.py SPECIFICATION.json      # which it removes: {"argv": [...], "read": [...], ...}

Stand-alone: standard library only. Two processes: a watcher that stays outside the namespaces and ends the whole
group when its own parent is gone, and the confined one. The layers, each used where the kernel allows it:

rlimits      file size, open files, core dumps, CPU time
namespaces   user (when not root), network, pid, ipc and mount; loopback is up; /proc shows the group alone
capabilities dropped, with no_new_privs
Landlock     files: an allow-list for reading and one for writing; TCP ports where there is no network namespace;
             no signals to processes outside
seccomp      a list of calls that no engine needs (ptrace, mount, bpf, keyctl, ...)
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID_NODEV_NOEXEC, MS_REC, MS_PRIVATE = 0x2 | 0x4 | 0x8, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 1, 38, 24, 22, 36
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446

# Landlock rights: those of a file, and all of them by version of the interface.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1

# Calls refused with EPERM, by machine. Networking and files are the business of the other layers.
REFUSED = {
    # ptrace, process_vm_readv/writev, mount, umount2, pivot_root, swapon/off, reboot, init/delete/finit_module,
    # kexec_load, kexec_file_load, perf_event_open, bpf, userfaultfd, add_key, request_key, keyctl, setns, unshare,
    # io_uring_setup, open_by_handle_at
    "x86_64": (0xC000003E, (101, 310, 311, 165, 166, 155, 167, 168, 169, 175, 176, 313, 246, 320, 298, 321, 323,
                            248, 249, 250, 308, 272, 425, 304)),
    "aarch64": (0xC00000B7, (117, 270, 271, 40, 39, 41, 224, 225, 142, 105, 106, 273, 104, 294, 241, 280, 282,
                             217, 218, 219, 268, 97, 425, 265)),
}  # fmt: skip


KILL = {"x86_64": 62, "aarch64": 129}
"""kill(-1, ...) is refused: without a pid namespace it means every process of this user, ours too."""


def check(result: int, what: str) -> int:
    """Raises OSError for the -1 of a C call."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def set_limits(limits: dict[str, int]) -> None:
    kinds = {
        "file_bytes": resource.RLIMIT_FSIZE,
        "open_files": resource.RLIMIT_NOFILE,
        "cpu_seconds": resource.RLIMIT_CPU,
        "processes": resource.RLIMIT_NPROC,
    }
    for name, value in limits.items():
        hard = resource.getrlimit(kinds[name])[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kinds[name], (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def enter_namespaces() -> tuple[str, ...]:
    """As many namespaces as the kernel grants, by name."""
    user = 0 if os.getuid() == 0 else NEWUSER
    for flags, names in (
        (NEWNET | NEWPID | NEWIPC | NEWNS, ("network", "pid", "ipc", "mount")),
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


def own_proc() -> bool:
    """Mounts a /proc of the new pid namespace. Some containers forbid it."""
    LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    return bool(LIBC.mount(b"proc", b"/proc", b"proc", MS_NOSUID_NODEV_NOEXEC, None) == 0)


def drop_capabilities() -> None:
    for capability in range(64):
        if LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header = struct.pack("Ii", 0x20080522, 0)
    if LIBC.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def landlock(spec: dict[str, Any], private_proc: bool, ports: list[int] | None) -> int:
    """Applies the file (and, without a network namespace, port) rules. Returns the version of the interface, or 0."""
    version = LIBC.syscall(LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return 0
    rights = (1 << 13) - 1
    rights |= (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0) | (IOCTL_DEV if version >= 5 else 0)
    ruleset = struct.pack("Q", rights)
    if version >= 4:
        ruleset += struct.pack("Q", 0 if ports is None else BIND_TCP | CONNECT_TCP)
    if version >= 6:
        ruleset += struct.pack("Q", 3)  # no abstract sockets of, and no signals to, processes outside
    fd = check(LIBC.syscall(LANDLOCK_CREATE, ruleset, len(ruleset), 0), "landlock_create_ruleset")
    read = EXECUTE | READ_FILE | READ_DIR
    proc = ["/proc"] if private_proc else ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"]
    for paths, allowed in (
        (spec["read"] + proc, read),
        (spec["list"], READ_DIR),
        (spec["write"], rights),
        # a CUDA driver names its threads, or does not start
        (["/proc/self/task"] if spec["devices"] else [], WRITE_FILE | TRUNCATE),
    ):
        for path in paths:
            allow_path(fd, path, allowed & rights)
    for port in ports or []:
        rule = struct.pack("QQ", BIND_TCP | CONNECT_TCP, port)
        check(LIBC.syscall(LANDLOCK_ADD, fd, 2, rule, 0), "landlock_add_rule")
    check(LIBC.syscall(LANDLOCK_RESTRICT, fd, 0), "landlock_restrict_self")
    os.close(fd)
    return int(version)


def allow_path(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # a system folder that this distribution doesn't have
    try:
        if not os.path.isdir(path):  # noqa: PTH112
            rights &= FILE_RIGHTS
        rule = struct.pack("=Qi", rights, fd)
        check(LIBC.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
    finally:
        os.close(fd)


def seccomp() -> bool:
    """Refuses the calls of the list for this machine. A call through another architecture's table is refused too."""
    if platform.machine() not in REFUSED:
        return False
    arch, calls = REFUSED[platform.machine()]
    refuse, allow = 0x00050000 | errno.EPERM, 0x7FFF0000
    load, jump_equal, ret = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 4), (jump_equal, 1, 0, arch), (ret, 0, 0, refuse), (load, 0, 0, 0)]
    program += [(jump_equal, len(calls) - i + 3, 0, number) for i, number in enumerate(calls)]
    everyone, first_argument = 0xFFFFFFFF, 16  # its lower half: a pid has 32 bits
    program += [(jump_equal, 0, 2, KILL[platform.machine()]), (load, 0, 0, first_argument)]
    program += [(jump_equal, 1, 0, everyone), (ret, 0, 0, allow), (ret, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filter_ = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    return bool(LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(filter_), 0, 0) == 0)


def confine(spec: dict[str, Any], namespaces: tuple[str, ...]) -> dict[str, Any]:
    """Applies every layer to this process. Returns what took effect."""
    private_proc = "pid" in namespaces and own_proc()
    if "network" in namespaces:
        loopback_up()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if namespaces or os.getuid() == 0:
        drop_capabilities()
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    version = landlock(spec, private_proc, None if "network" in namespaces else [spec["port"]])
    return {
        "namespaces": namespaces,
        "proc": private_proc,
        "landlock": version,
        "seccomp": seccomp(),
        "ports": "network" not in namespaces and version >= 4,
    }


def watch(pid: int) -> int:
    """Waits for the confined process; ends it when our own parent is gone. Returns its exit status, when whatever it
    left behind has ended too: its orphans are ours, however often they forked and whatever session they began."""
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        done, status = os.waitpid(-1, os.WNOHANG)
        if done == pid:
            end_orphans()
            return status
        if done:
            continue
        if os.getppid() != parent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.5)


def end_orphans() -> None:
    """Ends and reaps all children of this process, and theirs, which are its own then."""
    while True:
        for child in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    """Ids of the processes whose parent this one is."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        spec = json.load(file)
    os.unlink(sys.argv[1])  # noqa: PTH108
    report = spec["report"]
    set_limits(spec["limits"])
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    namespaces = enter_namespaces() if spec["confine"] else ()
    pid = os.fork()
    if pid:
        os.write(report, json.dumps({"pid": pid}).encode() + b"\n")
        os.closerange(0, 3)
        os.close(report)
        for fd in spec["keep"]:
            os.close(fd)
        status = watch(pid)
        if os.WIFSIGNALED(status):
            os._exit(128 + os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status))
    applied = confine(spec, namespaces) if spec["confine"] else {}
    os.write(report, json.dumps(applied).encode() + b"\n")
    os.close(report)
    os.execve(spec["argv"][0], spec["argv"], os.environ)


if __name__ == "__main__":
    main()
