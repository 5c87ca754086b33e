"""Small candidates that try to get out of the sandbox. Each prints `done` if it did, or what it ran into.

They run with the words of `CANDIDATE`, and `HOST` is what there is to reach (test_attacks.py): everything in it is open
to every user, so that nothing but a layer of the sandbox stands in between.
"""

from dataclasses import dataclass
from typing import Literal

from gpu_actors.layers import Layer

CANDIDATE = """
import ctypes, errno, json, os, pathlib, resource, signal, socket, stat, subprocess, sys, time
HOST = json.loads(sys.argv[1])
HOME = os.environ["HOME"]
LIBC = ctypes.CDLL(None, use_errno=True)

class Refused(Exception):
    pass

def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result

def echoes(sock, address):
    sock.settimeout(2)
    sock.connect(address)
    sock.send(b"hello")
    if sock.recv(5) != b"hello":
        raise Refused

WATCHER = os.getppid()

def outcome(code):
    attack = {"__name__": "candidate"}
    try:
        exec(compile(code, "<attack>", "exec"), globals() | attack)
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    except BaseException as error:
        return type(error).__name__

found = {}
for name, code in json.loads(sys.argv[2]).items():
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(told, outcome(code).encode())
        os._exit(0)
    os.close(told)
    found[name] = os.read(heard, 100).decode()
    os.close(heard)
    os.waitpid(pid, 0)
print(json.dumps(found))
"""
"""Makes each attack in a process of its own."""


@dataclass(frozen=True)
class Attack:
    """One attempt."""

    code: str
    by: tuple[Layer, ...] | Literal["limits", "launch"]
    """The layers of which each contains it alone where there are no namespaces: without them it succeeds. `limits`:
    these and dropped capabilities, which come with any sandbox: it succeeds with `sandbox: none`. `launch`: what is not
    handed over when a child is started, and contained even then."""


ATTACKS = {
    "reads a file of the host": Attack("open(HOST['secret']).read()", ("landlock",)),
    "reads a file of the host through a link": Attack(
        "os.symlink(HOST['secret'], HOME + '/link'); open(HOME + '/link').read()", ("landlock",)
    ),
    "gives a file of the host a second name": Attack(
        "os.link(HOST['secret'], HOME + '/name'); open(HOME + '/name').read()", ("landlock",)
    ),
    "reads a disk": Attack("open(HOST['disk'], 'rb').read(1)", ("landlock",)),
    "reads the environment of the host": Attack("os.environ['ENGINESMITH_SECRET']", "launch"),
    "preloads a library of the host's environment": Attack("os.environ['LD_PRELOAD']", "launch"),
    "reads the environment of the parent": Attack(
        "open(f\"/proc/{HOST['victim']}/environ\").read()", "limits"
    ),
    "connects by TCP": Attack("echoes(socket.socket(), ('127.0.0.1', HOST['tcp']))", ("landlock",)),
    "sends by UDP": Attack(
        "echoes(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), ('127.0.0.1', HOST['udp']))", ("seccomp",)
    ),
    "connects to a Unix socket": Attack("echoes(socket.socket(socket.AF_UNIX), HOST['unix'])", ("seccomp",)),
    "connects to an abstract socket": Attack(
        "echoes(socket.socket(socket.AF_UNIX), '\\0' + HOST['abstract'])", ("seccomp", "landlock")
    ),
    "opens a socket to the hypervisor": Attack("socket.socket(40, socket.SOCK_STREAM)", ("seccomp",)),
    "writes to shared memory": Attack("open(HOST['shm'], 'w').write('x')", ("landlock",)),
    "kills the parent": Attack("os.kill(HOST['victim'], signal.SIGTERM)", ("landlock", "identity")),
    "stops the parent": Attack("os.kill(HOST['victim'], signal.SIGSTOP)", ("landlock", "identity")),
    "signals everything": Attack("os.kill(-1, 0)", ("seccomp",)),
    "stops its watcher": Attack(
        "if not WATCHER:\n    raise Refused\nos.kill(WATCHER, signal.SIGSTOP); os.kill(WATCHER, signal.SIGCONT)",
        ("landlock", "identity"),
    ),
    "traces": Attack("call(LIBC.ptrace(0, 0, 0, 0))", ("seccomp",)),
    "makes a namespace": Attack("call(LIBC.unshare(0x10000000))", ("seccomp",)),
    "makes a namespace by clone": Attack(
        "pid = call(LIBC.syscall(HOST['clone'], 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))\n"
        "if pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)",
        ("seccomp",),
    ),
    "uses io_uring": Attack("call(LIBC.syscall(425, 4, ctypes.create_string_buffer(120)))", ("seccomp",)),
    "mounts": Attack("call(LIBC.mount(b'none', HOME.encode(), b'tmpfs', 0, None)); LIBC.umount2(HOME.encode(), 2)",
                     "limits"),
    "makes a device": Attack("os.mknod(HOME + '/disk', 0o666 | stat.S_IFBLK, os.makedev(7, 99))", "limits"),
    "runs a setuid program": Attack(
        "if int(subprocess.run([HOST['setuid'], '-u'], capture_output=True, check=True).stdout):\n    raise Refused",
        ("identity",),
    ),
    "raises its limits": Attack(
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "try:\n    resource.setrlimit(resource.RLIMIT_NOFILE, (101, 101))\nexcept ValueError:\n    raise Refused",
        "limits",
    ),
    "raises the limit of its control group": Attack(
        "groups = [line.split(':') for line in open('/proc/self/cgroup').read().split()]\n"
        "(path,) = [path for _, names, path in groups if names == 'memory']\n"
        "inside = next(p for p in (HOST['groups'] + path, HOST['groups'] + '/' + path.rsplit('/', 1)[1])"
        " if os.path.exists(p))\n"
        "open(inside + '/memory.limit_in_bytes', 'w').write(str(1 << 40))",
        ("landlock", "identity"),
    ),
    "writes to the reference": Attack("open(HOST['reference'], 'a').write('x')", ("landlock",)),
    "writes to the checkpoint": Attack("open(HOST['checkpoint'], 'a').write('x')", ("landlock",)),
    "truncates the checkpoint": Attack("os.truncate(HOST['checkpoint'], 0)", ("landlock",)),
    "takes the checkpoint from its reader": Attack("os.chmod(HOST['checkpoint'], 0)", ("identity",)),
    "writes to the kernels of another tree": Attack("open(HOST['kernels'] + '/x.so', 'w').write('x')", ("landlock",)),
    "removes the kernels of another tree": Attack("os.unlink(HOST['kernels'] + '/right.so')", ("landlock",)),
    "writes to a descriptor of the host": Attack("os.write(HOST['descriptor'], b'x')", "launch"),
}  # fmt: skip
