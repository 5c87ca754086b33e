"""The command line of bubblewrap for one child: mounts that hold what the child is given, and nothing else.

Whole folders are mounted; which files below them may be read is Landlock's business, inside. A root parent makes no
user namespace, in which the child would still be root towards files: it hands over the capabilities with which the
second stage takes an unused user id.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpu_actors import readable
from gpu_actors.layers import SPACES, is_root

IDENTITY = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_DAC_READ_SEARCH")


def command(
    program: str, *, read: Sequence[Path], write: Sequence[Path], devices: Sequence[str], folder: Path
) -> list[str]:
    """Everything but the command inside, which starts in `folder`. `read` and `write`: files and folders."""
    argv = [program, *SPACES, "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    if is_root():
        argv += [word for capability in IDENTITY for word in ("--cap-add", capability)]
    else:
        argv += ["--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid())]
    argv += ["--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc"]
    interpreter = (Path(sys.prefix), Path(sys.base_prefix), *readable.site_folders())
    shown: list[Path] = []
    for name in sorted({*map(Path, readable.SYSTEM), *interpreter, *read}, key=lambda path: (len(path.parts), path)):
        argv += _mount(name, shown)
    for path in dict.fromkeys(write):
        argv += ["--bind", str(path), str(path)]
    for device in devices:
        argv += ["--dev-bind", device, device]
    return [*argv, "--chdir", str(folder)]


NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki",
           "/etc/ca-certificates", "/etc/passwd", "/etc/group")  # fmt: skip
"""What a program needs to reach a server by its name and to believe it."""
AGENT_SPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")


def agent(program: str, own: Path, *, read: Sequence[Path], write: Sequence[Path], hide: Sequence[Path]) -> list[str]:
    """The same for a coding agent, whose program is `own`: with the network of the machine, and with frameworks, and
    what is to be hidden, covered where they lie in what it is shown."""
    argv = [program, *AGENT_SPACES, "--die-with-parent", "--cap-drop", "ALL"]
    if not is_root():
        argv += ["--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid())]
    argv += ["--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc"]
    system = [Path(name) for name in readable.SYSTEM]
    roots = [*system, *program_roots(own), *read]
    shown: list[Path] = []
    for name in sorted({*roots, *map(Path, NETWORK)}, key=lambda path: (len(path.parts), path)):
        argv += _mount(name, shown)
    for path in dict.fromkeys((*readable.hidden(system), *hidden_by_name(roots[len(system) :]))):
        argv += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    for path in hide:
        argv += ["--tmpfs", str(path)] if any(path.is_relative_to(folder) for folder in shown) else []
    for path in dict.fromkeys(write):
        argv += ["--bind", str(path), str(path)]
    return argv


def hidden_by_name(roots: Iterable[Path]) -> Iterator[Path]:
    """What may not be read below some roots, under each name that it is shown by: a root that is a link is shown under
    its own name too."""
    for root in roots:
        real = root.resolve()
        for path in readable.hidden([root]):
            yield from dict.fromkeys((path, root / path.relative_to(real)))


def program_roots(own: Path) -> list[Path]:
    """Where a program and what it links to are installed: PREFIX of PREFIX/bin/NAME, else the folder that it lies in,
    else the file alone. No folder that holds somebody's home is shown for the sake of a program."""
    return [_installation(place) for place in (own, own.resolve())]


def _installation(program: Path) -> Path:
    folder = program.parent
    for place in (folder.parent, folder) if folder.name == "bin" else (folder,):
        if not Path.home().is_relative_to(place):
            return place
    return program


def _mount(name: Path, shown: list[Path]) -> Iterable[str]:
    """Shows a path under its own name and, if it leads through links, under the name that they lead to. `shown`: what
    is already there, which grows."""
    real = name.resolve()
    if not real.exists():
        return
    if name.is_symlink() and name.parent == Path("/"):  # /lib is a link to usr/lib, and stays one
        yield from ("--symlink", str(name.readlink()), str(name))
        return
    for place in dict.fromkeys((real, name)):
        if not any(place.is_relative_to(folder) for folder in shown):
            shown.append(place)
            yield from ("--ro-bind", str(real), str(place))
