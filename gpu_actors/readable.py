"""What a child may read beside what it is given: the system, the interpreter and its packages, and no framework.

A rule of the kernel holds for everything below a folder, so a folder that holds something forbidden somewhere is not
granted itself: each of its entries is, without the forbidden ones. What is looked for, in every folder that would be
readable and not only in those that this interpreter imports from:

- folders of packages (site-packages, dist-packages) of any Python: each entry that belongs to a forbidden package,
  whatever its form (a package, a module, an egg, metadata, a link to elsewhere), and path files, which import anything;
- a forbidden package anywhere else, since a path can be added to what an interpreter searches;
- conda's store of unpacked packages and its other environments, whole: nothing that we start needs them.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ckb.frameworks import FRAMEWORKS

REFERENCE_PACKAGES = ("transformers", "accelerate", "peft", "optimum")
"""What a reference stands on: transformers, and what it imports of these where they are installed."""
FORBIDDEN_PACKAGES = (
    *FRAMEWORKS, "ray", "litellm", "swarm", "roles", "ckb", "gpu_actors", "benchmarks", "enginesmith",
)  # fmt: skip
"""What a candidate can't import: frameworks, and ours."""
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/ld.so.conf",
          "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/mime.types",
          "/sys/devices/system", "/sys/fs/cgroup")  # fmt: skip
PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
STORES = frozenset({"pkgs", "envs"})
"""Folders beside conda-meta with packages of other environments."""
OWNER = re.compile(r"(?:__editable__[._]+)?(?P<name>[A-Za-z0-9_.-]*?[A-Za-z0-9])(?:[-_][0-9].*|\..*|_finder.*)?")
"""`vllm`, `vllm.py`, `vllm-0.9.dist-info`, `vllm-0.9-py3.11.egg`, `vllm.egg-link`, `vllm.libs`,
`__editable__.vllm-0.9.pth` and `__editable___vllm_0_9_finder.py` are vllm's."""


def owner(entry: str) -> str:
    """The package, by the name it is imported by, to which an entry of a folder of packages belongs."""
    found = OWNER.fullmatch(entry.lower())
    return found["name"].replace("-", "_").replace(".", "_") if found else ""


def site_folders() -> tuple[Path, ...]:
    """Where third-party packages lie: the folders of sys.path that hold installed distributions. What a package adds of
    its own folder while it is imported (ray does) is its own: a child would look for modules in a package that it may
    not read."""
    entries = dict.fromkeys(Path(entry).resolve() for entry in sys.path if entry)
    folders = [f for f in entries if f.is_dir() and any(f.glob("*.dist-info"))]
    return tuple(f for f in folders if not any(f.is_relative_to(other) for other in folders if other != f))


def readable_packages() -> tuple[Path, ...]:
    """Everything in the package folders except forbidden packages and path files (which could import anything)."""
    return tuple(entry for folder in site_folders() for entry in folder.iterdir() if not forbidden_entry(entry))


def reference_packages() -> tuple[Path, ...]:
    """Where the packages of a reference lie, for a child that may use them although a candidate may not."""
    return tuple(folder / name for folder in site_folders() for name in REFERENCE_PACKAGES if (folder / name).is_dir())


def without_python(folder: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(what may be read, what may be listed) of a folder of data: all but Python sources. Checkpoints come with the
    model code of a framework beside their weights."""
    if not folder.is_dir():
        return (folder,), ()
    files = [path for path in folder.rglob("*") if not path.is_dir() and path.suffix not in (".py", ".pyc")]
    return tuple(path.resolve() for path in files), (folder.resolve(),)


def readable_system() -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """What may be read of the system and of the base interpreter, and the folders of which only names may be listed."""
    return granted((*map(Path, SYSTEM), Path(sys.base_prefix)))


def granted(roots: Iterable[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(what may be read, what may be listed) of some roots, so that nothing forbidden lies in what may be read.

    Folders of packages are looked for once in a process, for that takes a second; what they hold is read each time.
    """
    read: list[Path] = []
    listed: list[Path] = []
    for root in _outermost(roots):
        hidden = set(_hidden(root))
        ancestors = {parent for path in hidden for parent in path.parents if parent.is_relative_to(root)}
        if root in hidden:
            continue
        listed += sorted(ancestors)
        if not ancestors:
            read.append(root)
        for folder in sorted(ancestors):
            # a rule for a link would be one for its target, which has its own where it may be read
            entries = (path for path in folder.iterdir() if not path.is_symlink())
            read += [path for path in entries if path not in hidden and path not in ancestors]
    return tuple(read), tuple(listed)


def hidden(roots: Iterable[Path]) -> tuple[Path, ...]:
    """What may not be read below some roots, where whole folders are shown and the forbidden parts are covered."""
    return tuple(path for root in _outermost(roots) for path in _hidden(root))


def _outermost(roots: Iterable[Path]) -> list[Path]:
    """Resolved, those that exist, without those that lie in another: /lib is mostly a link to /usr/lib, and a rule for
    it would undo what was taken out below /usr."""
    resolved = sorted({path.resolve() for path in roots if path.exists()})
    return [p for p in resolved if not any(p != other and p.is_relative_to(other) for other in resolved)]


def _hidden(root: Path) -> Iterator[Path]:
    """What may not be read below `root`."""
    whole, folders = _places(root)
    yield from whole
    for folder in folders:
        yield from (entry for entry in folder.iterdir() if forbidden_entry(entry))


@cache
def _places(root: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(what is forbidden whole, folders of packages) below `root`. Links are not followed."""
    whole: list[Path] = []
    folders: list[Path] = []
    if not root.is_dir() or root.is_relative_to("/sys"):
        return (), ()
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        entries = _entries(folder)
        names = {entry.name for entry in entries}
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            inside = Path(entry.path)
            if entry.name in PACKAGE_FOLDERS:
                folders.append(inside)
            elif (entry.name in STORES and "conda-meta" in names) or (
                entry.name in FRAMEWORKS and "__init__.py" not in names and "__init__.py" in _names(entry.path)
            ):
                whole.append(inside)
            else:
                waiting.append(entry.path)
    return tuple(whole), tuple(folders)


def _names(folder: str) -> set[str]:
    return {entry.name for entry in _entries(folder)}


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:  # a folder that we may not list: the child, which is no more than we are, may not either
        return []


def forbidden_entry(entry: Path) -> bool:
    """Whether an entry of a folder of packages may not be read."""
    if entry.suffix == ".pth" or entry.name.startswith("~") or owner(entry.name) in FORBIDDEN_PACKAGES:
        return True  # pip renames a package to ~ackage while it replaces it, and may leave it behind
    return entry.is_symlink() and owner(entry.resolve().name) in FORBIDDEN_PACKAGES
