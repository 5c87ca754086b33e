"""Applies to itself the limits and filters of a JSON specification, says what took effect, and becomes its command.

    python -I -S rules.py SPECIFICATION.json        # which it removes

The second of two stages, started by confine.py inside whatever namespaces there are. Stand-alone: standard library
only. In this order, since each needs what the next one takes away:

rlimits      file size, open files, core dumps, CPU time; processes and threads, unless a cgroup counts them
identity     of a root parent: an unused user id, which owns nothing, with the one capability to read what it does not
             own (Landlock says what that is; interpreters and checkpoints lie in folders of root's)
capabilities dropped, with no_new_privs: no setuid program gives any back
Landlock     files: an allow-list for reading and one for writing; TCP ports where there is no network namespace;
             no signals and no abstract sockets to processes outside
seccomp      calls that no engine needs (ptrace, mount, bpf, ...), other namespaces, and kinds of sockets
"""

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import struct
import sys
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_CAP_AMBIENT = (
    1, 28, 38, 24, 22, 47,
)  # fmt: skip
CAP_DAC_READ_SEARCH = 2
NO_SETUID_FIXUP = 1 << 2 | 1 << 3
"""Set, and locked."""
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446

# Landlock rights: those of a file, and all of them by version of the interface.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1

# Calls refused with EPERM, by machine. Files are the business of Landlock.
REFUSED = {
    # ptrace, process_vm_readv/writev, mount, umount2, pivot_root, chroot, swapon/off, reboot, init/delete/finit_module,
    # kexec_load, kexec_file_load, perf_event_open, bpf, userfaultfd, add_key, request_key, keyctl, setns, unshare,
    # io_uring_setup/enter/register, open_by_handle_at, name_to_handle_at, open_tree, move_mount, fsopen, fsconfig,
    # fsmount, fspick, mount_setattr, pidfd_getfd, process_madvise, kcmp, acct, quotactl, syslog, fanotify_init,
    # settimeofday, clock_settime, adjtimex, clock_adjtime
    "x86_64": (0xC000003E, (101, 310, 311, 165, 166, 155, 161, 167, 168, 169, 175, 176, 313, 246, 320, 298, 321, 323,
                            248, 249, 250, 308, 272, 425, 426, 427, 304, 303, 428, 429, 430, 431, 432, 433, 442, 438,
                            440, 312, 163, 179, 103, 300, 164, 227, 159, 305)),
    "aarch64": (0xC00000B7, (117, 270, 271, 40, 39, 41, 51, 224, 225, 142, 105, 106, 273, 104, 294, 241, 280, 282,
                             217, 218, 219, 268, 97, 425, 426, 427, 265, 264, 428, 429, 430, 431, 432, 433, 442, 438,
                             440, 272, 89, 60, 116, 262, 170, 112, 171, 266)),
}  # fmt: skip
KILL, SOCKET, CLONE, CLONE3 = (
    {"x86_64": 62, "aarch64": 129},
    {"x86_64": 41, "aarch64": 198},
    {"x86_64": 56, "aarch64": 220},
    435,
)
NEW_NAMESPACE = 0x7E020000
"""Flags of clone for a new mount, cgroup, uts, ipc, user, pid or network namespace."""
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, SOCK_STREAM = 1, 2, 10, 16, 1
LOAD, EQUAL, GREATER_EQUAL, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
Line = tuple[int, int, int, int]


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
        "tasks": resource.RLIMIT_NPROC,
    }
    for name, value in limits.items():
        hard = resource.getrlimit(kinds[name])[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kinds[name], (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def tasks_of(uid: int) -> int:
    """How many processes and threads a user has here."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
        except OSError:
            continue  # it has ended
    return count


def become(uid: int | None) -> None:
    """Takes an unused identity, where one is given, and lets go of every capability but the one that goes with it."""
    kept = 0 if uid is None else 1 << CAP_DAC_READ_SEARCH
    for capability in range(64):
        if not kept >> capability & 1 and LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # no such capability, or no right to drop any: then there is none to keep either
    if uid is not None:
        # keeps capabilities when ids change; and access(2), by which programs are found, asks with them
        check(LIBC.prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0), "securebits")
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = struct.pack("Ii", 0x20080522, 0)
    check(LIBC.capset(header, struct.pack("6I", kept, kept, kept, 0, 0, 0)), "capset")
    if kept:
        check(LIBC.prctl(PR_CAP_AMBIENT, 2, CAP_DAC_READ_SEARCH, 0, 0), "ambient")


def landlock(spec: dict[str, Any]) -> int:
    """Applies the file (and, without a network namespace, port) rules. Returns the version of the interface, or 0."""
    version = LIBC.syscall(LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return 0
    own_network = spec["own_network"]
    rights = (1 << 13) - 1
    rights |= (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0) | (IOCTL_DEV if version >= 5 else 0)
    ruleset = struct.pack("Q", rights)
    if version >= 4:
        ruleset += struct.pack("Q", 0 if own_network else BIND_TCP | CONNECT_TCP)
    if version >= 6:
        ruleset += struct.pack("Q", 3)  # no abstract sockets of, and no signals to, processes outside
    fd = check(LIBC.syscall(LANDLOCK_CREATE, ruleset, len(ruleset), 0), "landlock_create_ruleset")
    read = EXECUTE | READ_FILE | READ_DIR
    proc = ["/proc"] if spec["own_proc"] else ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"]
    # a CUDA driver names its threads, or does not start; so does that of a process which this one starts. Whoever is
    # root may write more there than names
    threads = ["/proc"] if spec["own_proc"] and os.geteuid() != 0 else ["/proc/self/task"]
    for paths, allowed in (
        (spec["read"] + proc, read),
        (spec["list"], READ_DIR),
        (spec["write"], rights),
        (threads if spec["devices"] else [], WRITE_FILE | TRUNCATE),
    ):
        for path in paths:
            allow_path(fd, path, allowed & rights)
    if version >= 4 and not own_network:
        rule = struct.pack("QQ", BIND_TCP | CONNECT_TCP, spec["port"])
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


def argument(number: int) -> Line:
    """Loads the lower half of a call's argument: flags, families and pids have 32 bits."""
    return (LOAD, 0, 0, 16 + 8 * number)


def program(machine: str, *, own_network: bool, unix: bool) -> list[Line]:
    """The filter: lines of classic BPF, of which the first that returns decides."""
    arch, calls = REFUSED[machine]
    refuse: Line = (RETURN, 0, 0, ERRNO | errno.EPERM)
    allow: Line = (RETURN, 0, 0, ALLOW)
    lines: list[Line] = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), refuse, (LOAD, 0, 0, 0)]
    if machine == "x86_64":
        lines += [(GREATER_EQUAL, 0, 1, 0x40000000), refuse]  # the x32 table, whose numbers are others
    for number in calls:
        lines += [(EQUAL, 0, 1, number), refuse]
    lines += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]  # its flags can't be read here; clone's can
    inet = [(EQUAL, 2, 0, AF_INET), (EQUAL, 1, 0, AF_INET6), refuse]
    kinds = [allow] if own_network else [argument(1), (AND, 0, 0, 0xF), (EQUAL, 1, 0, SOCK_STREAM), refuse, allow]
    for number, body in (
        # to -1 is to every process of this user, ours too, where there is no pid namespace
        (KILL[machine], [argument(0), (EQUAL, 0, 1, 0xFFFFFFFF), refuse, allow]),
        (CLONE[machine], [argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACE), refuse, allow]),
        # Landlock and network namespaces leave sockets that have a path alone; UDP has no ports for Landlock
        (SOCKET[machine], [argument(0), (EQUAL, 0, 1, AF_NETLINK), allow,
                           *([(EQUAL, 0, 1, AF_UNIX), allow] if unix else []), *inet, *kinds]),
    ):  # fmt: skip
        lines += [(EQUAL, 0, len(body), number), *body]
    return [*lines, allow]


def seccomp(*, own_network: bool, unix: bool) -> bool:
    """Installs the filter for this machine. A call through another architecture's table is refused too."""
    if platform.machine() not in REFUSED:
        return False
    lines = program(platform.machine(), own_network=own_network, unix=unix)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    filter_ = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
    return bool(LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(filter_), 0, 0) == 0)


def confine(spec: dict[str, Any]) -> dict[str, Any]:
    """Applies every layer of this stage to this process. Returns what took effect."""
    limits = spec["limits"]
    if spec["uid"] is None and not spec["own_proc"]:
        limits |= {"tasks": limits["tasks"] + tasks_of(os.getuid())}  # the limit is on all of a user's in a namespace
    set_limits(limits)
    become(spec["uid"])
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # which a change of identity takes back
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    off = spec["without"]
    return {
        "landlock": 0 if "landlock" in off else landlock(spec),
        "seccomp": "seccomp" not in off and seccomp(own_network=spec["own_network"], unix=bool(spec["devices"])),
    }


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        spec = json.load(file)
    spec |= json.loads(sys.argv[2])
    applied = confine(spec) if spec["confine"] else {}
    os.unlink(sys.argv[1])  # noqa: PTH108
    if lacking := [layer for layer in spec["needed"] if not applied[layer]]:
        sys.exit(f"{' and '.join(lacking)} can't be applied here (Linux {platform.release()}, {platform.machine()})")
    os.write(spec["report"], json.dumps(applied).encode() + b"\n")
    os.close(spec["report"])
    os.execve(spec["argv"][0], spec["argv"], os.environ)


if __name__ == "__main__":
    main()
