"""What one child may do, its environment, and the specification that its launcher (drivers/confine.py) is given."""

import glob
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from ckb.hashing import sha256
from gpu_actors import bubblewrap, layers, readable
from gpu_actors.layers import Layer

DRIVERS = Path(__file__).parent / "drivers"
DISK_BYTES = 8 * 1024**3
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class Confinement:
    """What one child may do."""

    mode: Literal["auto", "none"] = "auto"
    """none: no confinement at all but the clean environment; it is written in every record."""
    read: tuple[Path, ...] = ()
    """Readable beside the system, the interpreter and its packages: the engine's tree."""
    data: tuple[Path, ...] = ()
    """Readable but for Python sources: the checkpoint."""
    write: tuple[Path, ...] = ()
    """Folders that are writable beside the private one: the tree's own kernel cache."""
    operators: tuple[str, ...] = ()
    """Operator libraries that the candidate's code may import beside what every engine may."""
    environment: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    """Limit of the tree's resident memory; 0 is fifteen sixteenths of the machine's."""
    file_bytes: int = 8 * 1024**3
    disk_bytes: int = DISK_BYTES
    """Limit of what its writable folders hold, and of what it writes; one that passes it loses what it wrote."""
    tasks: int = 2048
    """Limit of its processes and threads together, where the kernel counts them."""
    open_files: int = 4096
    cpu_seconds: int = 3600
    """Of each of its processes."""
    devices: tuple[str, ...] = ()
    """Device files that are passed through, as glob patterns; gpus.grant tells those of the leased devices."""
    without: ClassVar[frozenset[Layer]] = frozenset()
    """Layers that are left out although they work here. No caller can name any: the tests of the single layers make a
    class of their own. One of layers.NEEDED among them, and nothing runs."""


def environment(private: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a child: nothing of the host's but where programs are and how many threads to use."""
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    kept = {name: os.environ[name] for name in ("CUDA_HOME", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    return {
        "PATH": path,
        "LANG": "C.UTF-8",
        "LOGNAME": "engine",  # some of torch's modules ask who they are, and /etc/passwd can't be read
        "HOME": str(private),
        "TMPDIR": str(private),
        "XDG_CACHE_HOME": str(private / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **kept,
        **extra,
    }


def identity(rules: Confinement, private: Path) -> int | None:
    """The user id that a root parent's child takes, or None. One tree has one: its kernel cache is its own."""
    if rules.mode == "none" or "identity" in rules.without or not layers.has_unused_ids():
        return None
    home = rules.write[0].resolve() if rules.write else private
    return layers.UNUSED_IDS + int(sha256(str(home).encode())[:6], 16)


def give(folder: Path, uid: int) -> None:
    """Makes a user the owner of a folder and of what is in it. What has a second name elsewhere is left alone: whoever
    makes links would be given the files of others."""
    os.chown(folder, uid, uid)
    for _, folders, files, fd in os.fwalk(folder):
        for name in (*folders, *files):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if found.st_uid != uid and (name in folders or found.st_nlink == 1):
                os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)


def specification(
    rules: Confinement, private: Path, argv: list[str], pipes: Mapping[str, int], files: list[str], port: int
) -> dict[str, object]:
    """What the launcher is told. `pipes`: word of the command line -> number, with `report` among them; `files`: those
    by which the child joins its control groups; `port`: the one that it may use without a network of its own."""
    limited = rules.mode != "none"
    grants = [readable.readable_system(), *map(readable.without_python, rules.data)] if limited else []
    listed = [*readable.site_folders(), *(path for _, paths in grants for path in paths)]
    own = {Path(sys.prefix) / "pyvenv.cfg", Path(sys.executable).parent, DRIVERS, *rules.read}
    # a thousand entries of folders that are resolved already
    read = [*own, *readable.readable_packages(), *(path for paths, _ in grants for path in paths)]
    devices = [path for pattern in rules.devices for path in glob.glob(pattern)]  # noqa: PTH207
    folders = [private, *(path.resolve() for path in rules.write)]
    uid = identity(rules, private)
    program = layers.bubblewrap() if limited and "bubblewrap" not in rules.without else ""
    given = (DRIVERS, *rules.read, *rules.data, *(path for data in rules.data for path in targets(data)))
    limits = {"file_bytes": rules.file_bytes, "open_files": rules.open_files, "cpu_seconds": rules.cpu_seconds}
    return {
        "argv": [str(pipes.get(part, part)) for part in argv],
        "rules": str(DRIVERS / "rules.py"),
        "confine": limited,
        "without": sorted(rules.without),
        "bubblewrap": bubblewrap.command(program, read=given, write=folders, devices=devices, folder=private)
        if program
        else [],
        "namespaces": limited and not program and "namespaces" not in rules.without,
        "needed": layers.NEEDED if limited else (),
        "uid": uid,
        "port": port,
        "read": [str(path.resolve() if path in own or path.is_symlink() else path) for path in read],
        "list": [str(path) for path in listed],
        "devices": devices,
        "write": [*map(str, folders), *DEVICES, *devices],
        "folders": [str(folder) for folder in folders],
        "private": str(private),
        "limits": limits | {"tasks": rules.tasks} if limited else {},
        "report": pipes["report"],
        "keep": [fd for name, fd in pipes.items() if name != "report"],
        "cgroups": files,
    }


def targets(data: Path) -> tuple[Path, ...]:
    """The folders outside a folder of data to which its links lead: a cache of downloads keeps its files elsewhere."""
    if not data.is_dir():
        return ()
    found = {path.resolve().parent for path in data.rglob("*") if path.is_symlink()}
    return tuple(sorted(folder for folder in found if not folder.is_relative_to(data.resolve())))
