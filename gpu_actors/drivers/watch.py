"""Watches the process in which a candidate runs: what it imports, reads, loads, starts and connects to.

Installed before the first line of the candidate, as an audit hook (PEP 578: it can't be taken out again) and, since
importlib.import_module raises no audit event, as the first finder of sys.meta_path. What is forbidden is refused by an
exception, and each violation is one line of JSON on a pipe that the parent reads: it makes the finding, not we.

What a library does for its own ends is no violation of the candidate's: torch and triton import hundreds of modules,
read their own sources and start compilers. An event is the candidate's if the nearest frame that is no standard
library's is the candidate's, wherever its file lies. A forbidden package stays refused for a library too.

It is cheap: the interpreter raises an audit event for such an act and not for an operation or a call, so a decode step
raises a few at most, and for any but those that it handles the hook is one look into a dictionary.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
IMPORTS = os.path.join(LIBRARY, "importlib", "")  # noqa: PTH118
DRIVERS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100,PTH120
PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+)")
SOURCES = (".py", ".pyc", ".pyi", ".pyx", ".ipynb", ".egg", ".whl", ".zip")
LINES = "linecache.py"
"""Reads the lines of a traceback, of whatever file: nobody's intention."""
RUNS_CODE = ("PyRun_", "PyImport_", "PyEval_", "Py_Compile", "PyMarshal_", "Py_RunMain", "Py_BytesMain")
PROGRAMS = frozenset({"system", "popen", "execv", "execve", "execvp", "execl", "execlp", "posix_spawn", "posix_spawnp",
                      "fork", "vfork", "dlopen", "dlmopen"})  # fmt: skip
INTERPRETERS = frozenset({"_interpreters", "_xxsubinterpreters", "_testcapi", "_testinternalcapi"})
"""Another interpreter in this process has no audit hook."""
HERE = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0", "::"})
SYSTEM = ("/usr/", "/lib", "/bin/", "/etc/", "/proc/", "/sys/", "/dev/")
"""What every process reads; the sandbox says how much of it there is."""
CLOCKS = {f"time.{name}": getattr(time, name) for name in (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "sleep",
)}  # fmt: skip
MARK = "enginesmith.mark"
"""The audit event by which a mark is written: on the way of every other event."""
PROCESS = re.compile(r"/proc/(\d+)(?:/task/\d+)?/(.*)")
SECRETS = frozenset({"environ", "mem"})
"""Of its own process: what it was started with, and its memory past everything that watches."""
MOST = 40
"""Violations that are written: the pipe must never fill up, since nobody reads it while an operation runs."""


class Watch:
    """What one process did so far, and what it may do."""

    def __init__(self, rules: dict[str, Any], fd: int):
        """`rules`: forbidden and allowed packages, forbidden parts of those, folders to read and to write. `fd`: the
        pipe."""
        self.rules = rules
        self.fd = fd
        self.imports: dict[str, None] = {}
        """Every module that was looked for, in order."""
        self.loaded: dict[str, None] = {}
        """Shared objects that ctypes opened."""
        self.started: dict[str, None] = {}
        """Programs."""
        self.starts = 0
        """How many times any of them was started."""
        self.events = 0
        self._forbidden = frozenset(rules["forbidden"])
        self._allowed = frozenset(rules["allowed"]) | sys.stdlib_module_names
        self._parts = tuple(rules["parts"])
        writable = [*rules["writable"], os.environ["HOME"]]
        self._roots = [LIBRARY, *(os.path.realpath(path) + os.sep for path in writable)]
        given = [os.path.realpath(path) + os.sep for path in rules["readable"]]
        self._places = (*self._roots, *given, *SYSTEM, sys.base_prefix + os.sep, sys.prefix + os.sep)
        self._tree = ""
        self._trusted: frozenset[str] = frozenset()
        self._told: set[str] = set()
        self._process = os.path.basename(os.path.realpath("/proc/self"))  # noqa: PTH119
        """Its number as /proc names it, which may be another namespace's."""
        self._methods = dict(vars(Watch))
        self._first = (self._places, tuple(self._roots), sys.stdlib_module_names)

    def install(self) -> None:
        starts = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "subprocess.Popen")
        handlers: dict[str, Callable[..., None]] = {
            **dict.fromkeys(starts, self._start),
            "import": self._import,
            "open": self._open,
            "os.listdir": self._list,
            "os.scandir": self._list,
            "glob.glob": self._list,
            "ctypes.dlopen": self._dlopen,
            "ctypes.dlsym": self._dlsym,
            "socket.connect": self._connect,
            "socket.sendto": self._connect,
            "sys.addaudithook": self._hook,
            "object.__setattr__": self._assign,
            MARK: self._marked,
        }

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            self.events += 1
            if handler := handlers.get(event):
                handler(*arguments)

        sys.meta_path.insert(0, self)
        sys.addaudithook(hook)

    def open_tree(self, folder: str) -> None:
        """From now on the modules of this folder are the candidate's own."""
        self._tree = os.path.realpath(folder) + os.sep
        self._allowed |= {os.path.basename(folder)}  # noqa: PTH119

    def trust(self, files: Sequence[str]) -> None:
        """What these files do is nobody's violation: they are the user's."""
        self._trusted |= {*files, *map(os.path.realpath, files)}

    def own(self, file: str, line: int) -> tuple[str, int] | None:
        """A place in a file of the candidate's tree by its name there; None for any other file."""
        return (file.removeprefix(self._tree), line) if self._tree and file.startswith(self._tree) else None

    def mark(self, nonce: str) -> dict[str, Any]:
        """Writes a line to the pipe, by which the parent sees that it still leads to it; what was done so far."""
        sys.audit(MARK, nonce)
        for name, clock in CLOCKS.items():
            if getattr(time, name.partition(".")[2], None) is not clock:
                self.violation("runtime", None, f"gives {name} another value: a clock of its process")
        return {
            "imports": list(self.imports),
            "loaded": list(self.loaded),
            "started": list(self.started),
            "events": self.events,
        }

    def _marked(self, nonce: str) -> None:
        text = json.dumps(self._state(), sort_keys=True)
        self._tell({"mark": nonce, "state": hashlib.sha256(text.encode()).hexdigest(), "tree": self._tree})

    def _state(self) -> dict[str, Any]:
        """What it holds now, for the parent to compare with what it gave (gpu_actors/watched.py)."""
        own = os.path.basename(self._tree.rstrip(os.sep))  # noqa: PTH119
        changed = [name for name, it in self._methods.items() if vars(Watch).get(name) is not it or name in vars(self)]
        moved = (self._places, tuple(self._roots), sys.stdlib_module_names) != self._first
        return {
            "rules": self.rules,
            "forbidden": sorted(self._forbidden),
            "allowed": sorted(self._allowed - self._first[2] - {own}),
            "parts": list(self._parts),
            "changed": [*changed, *["places"] * moved],
        }

    # --- what happens -------------------------------------------------------------------------------------------------

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As the first finder: records each module, refuses forbidden ones, finds none."""
        self._judge_import(name)
        return None

    def _import(self, name: str, file: str | None, _path: Any, finders: list[Any] | None, _hooks: Any) -> None:
        if finders is not None and self not in finders:
            self.violation("runtime", self.asker(), "took the watch out of sys.meta_path")
            raise ImportError("imports are watched here: sys.meta_path must stay as it is")
        self._judge_import(name)

    def _judge_import(self, name: str) -> None:
        self.imports[name] = None
        top = name.partition(".")[0]
        if top in self._forbidden:
            what, who = "which is forbidden in an engine's process", self.asker()
        elif any(name == part or name.startswith(f"{part}.") for part in self._parts):
            what, who = "a framework's part of an operator library", self.asker()
        elif top in INTERPRETERS:
            what, who = "whose interpreters nothing watches", self.asker()
        elif top not in self._allowed:  # the standard library asks for some packages that may be there
            what, who = "which the Target's operators do not list", self.asker(through=IMPORTS)
        else:
            return
        if who:
            self.violation("runtime", who, f"imports {name}, {what}")
        elif top not in self._forbidden:
            return
        raise ModuleNotFoundError(f"{name!r} can't be imported in an engine's process", name=name)

    def _open(self, path: Any, _mode: Any, _flags: Any) -> None:
        text = text_of(path)
        if not (text.endswith(SOURCES) or "-packages" in text):
            self._judge_place(text, "opens")
            return
        full = os.path.realpath(text)
        if self._may_read(full):
            return
        what = f"opens {full!r}, a source that is neither its own nor of what it may import"
        if who := self.asker():
            self.violation("read", who, what)
        elif self._owner(full) not in self._forbidden:
            return
        raise PermissionError(f"{full!r} can't be read in an engine's process")

    def _judge_place(self, text: str, does: str) -> None:
        """A candidate reads and lists its tree, what it was given and what it may write, and else the system alone."""
        if not text or (text.startswith(self._places) and "/.." not in text and not text.startswith("/proc")):
            return
        full = os.path.realpath(text)
        if (found := PROCESS.match(full)) and (found[1] != self._process or found[2] in SECRETS):
            if who := self.asker():
                self.violation("read", who, f"{does} {full!r}, which tells of a process from within")
                raise PermissionError(f"{full!r} is nothing to an engine's process")
            return
        if not f"{full}/".startswith((*self._places, self._tree or LIBRARY)) and (who := self.asker()):
            self.violation("read", who, f"{does} {full!r}, which is neither its own nor given to it")
            raise PermissionError(f"{full!r} is nothing to an engine's process")

    def _may_read(self, full: str) -> bool:
        if owner := self._owner(full):  # before the standard library's folder, which may hold a folder of packages
            inner = full.partition("-packages/")[2].partition(".")[0].replace("/", ".")
            part = any(inner == part or inner.startswith(f"{part}.") for part in self._parts)
            allowed = owner in self._allowed and not part
            return owner not in self._forbidden and (allowed or not full.endswith(SOURCES))
        return not full.endswith(SOURCES) or full.startswith((*self._roots, self._tree or LIBRARY))

    def _owner(self, full: str) -> str:
        """The installed package that a file belongs to; empty for none, and for metadata."""
        found = PACKAGE.search(full)
        return found[1].partition(".")[0] if found and not found[1].endswith("-info") else ""

    def _list(self, path: Any, *_: Any) -> None:
        text = text_of(path)
        if "-packages" in text and not searching() and (who := self.asker()):
            self.violation("read", who, f"looks through {text!r}, a folder of installed packages")
            raise PermissionError(f"{text!r} can't be listed in an engine's process")
        if not searching():
            self._judge_place(text, "lists")

    def _dlopen(self, name: Any) -> None:
        text = text_of(name)
        self.loaded[text] = None
        if "/" not in text:
            return
        full = os.path.realpath(text)
        owner, who = self._owner(full), self.asker()
        fine = (*self._roots, "/usr/", "/lib", self._tree or LIBRARY, sys.base_prefix + os.sep)
        if owner not in self._forbidden and (owner or not who or full.startswith(fine)):
            return
        if who:
            self.violation("runtime", who, f"loads the shared object {full!r}, which it did not build")
        raise PermissionError(f"{full!r} can't be loaded in an engine's process")

    def _dlsym(self, _library: Any, name: Any) -> None:
        if isinstance(name, str) and (name in PROGRAMS or name.startswith(RUNS_CODE)) and (who := self.asker()):
            self.violation("runtime", who, f"looks up {name}, which runs what no audit sees")
            raise PermissionError(f"{name} can't be called in an engine's process")

    def _start(self, *arguments: Any) -> None:
        program = str(arguments[1] if len(arguments) > 1 and arguments[0] in (None, 0, 1) else arguments[:1])[:120]
        self.started[program] = None
        self.starts += 1
        if who := self.asker():
            self.violation("runtime", who, f"starts the program {program}")
            raise PermissionError("an engine starts no programs")

    def _connect(self, _socket: Any, address: Any) -> None:
        if isinstance(address, tuple) and address and str(address[0]) not in HERE and (who := self.asker()):
            self.violation("runtime", who, f"connects to {address!r}")
            raise PermissionError(f"an engine connects to nothing, and not to {address!r}")

    def _hook(self) -> None:
        if who := self.asker():
            self.violation("runtime", who, "adds an audit hook")
            raise RuntimeError("an engine adds no audit hook")

    def _assign(self, owner: Any, name: Any, *_: Any) -> None:
        if name == "__code__" and getattr(owner, "__module__", "") == __name__:
            self.violation("runtime", self.asker(), "changes the code of its watch")
            raise PermissionError("an engine does not change its watch")

    # --- what is said of it -------------------------------------------------------------------------------------------

    def asker(self, through: str = LIBRARY, frame: FrameType | None = None) -> tuple[str, int] | None:
        """File and line of the candidate's code that led to an event, if nothing but files below `through` stands in
        between; None if a library or a driver did it. `frame`: where to begin, if not with the caller."""
        frame = frame or sys._getframe(1)
        while frame:
            file = frame.f_code.co_filename
            if place := self.own(file, frame.f_lineno):
                return place
            if file in self._trusted:
                return None
            if file.startswith(DRIVERS):
                if not file.endswith("watch.py"):
                    return None
            elif "-packages/" in file:
                return None
            elif file.startswith(LIBRARY):
                if file.endswith(LINES) or not file.startswith(through):
                    return None
            elif not file.startswith("<"):
                return file, frame.f_lineno
            frame = frame.f_back
        return None

    def violation(self, kind: str, who: tuple[str, int] | None, what: str) -> None:
        file, line = who or ("", 0)
        told = f"{kind} {file} {line} {what}"
        if told not in self._told:
            self._tell({"kind": kind, "file": file[-200:], "line": line, "what": what[:300]})  # at once, or not at all
            self._told.add(told)

    def _tell(self, message: dict[str, Any]) -> None:
        """Violations and marks alike: a watch that can't tell the one can't tell the other."""
        if len(self._told) < MOST:
            self._write(message)

    def _write(self, message: dict[str, Any]) -> None:
        try:
            os.write(self.fd, json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(97)  # the pipe is gone, so nothing that happens from now on would be seen


def text_of(path: Any) -> str:
    """A path as text; empty for a descriptor's number or None."""
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""


def searching() -> bool:
    """Whether it is the import system that lists a folder."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(DRIVERS):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")


CURRENT: list[Watch] = []
"""The watch of this process, if it has one."""


def watch(rules: dict[str, Any], fd: int) -> Watch:
    """Installs the watch of this process."""
    held = Watch(rules, fd)
    held.install()
    CURRENT.append(held)
    return held
