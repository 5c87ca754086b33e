"""The command line of bubblewrap for one child: mounts that hold what the child is given, and nothing else.

Whole folders are mounted; which files below them may be read is Landlock's business, inside. A root parent makes no
user namespace, in which the child would still be root towards files: it hands over the capabilities with which the
second stage takes an unused user id.
"""

import os
import sys
from collections.abc import Iterable, Sequence
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
