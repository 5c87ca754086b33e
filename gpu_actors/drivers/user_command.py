"""Runs a user's Python script in a process whose watch takes the engine for the candidate, and says how it ended.

The script imports the engine, so a candidate runs in the same process and could speak for it: end the process with
status 0, print a metric, replace what the script calls. So an end counts only if this driver reached it: it answers
with a word that the parent drew, which is nowhere but in its frames. What the candidate prints is not taken for the
script's, and reaching for frames, for the collector or for functions that a script measures with is a violation.
"""

import io
import math
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from .watch import CURRENT, DRIVERS, Watch

LOOKS = frozenset({"sys._getframe", "sys._current_frames", "sys._current_exceptions", "gc.get_objects",
                   "gc.get_referrers", "gc.get_referents", "sys.settrace", "sys.setprofile"})  # fmt: skip
"""Audit events of whatever gives hold of this driver's frame."""
FRAMES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
MEASURES = ("builtins", "time", "json", "math", "os", "sys", "operator", "statistics", "torch", "torch.testing",
            "numpy", "numpy.testing")  # fmt: skip
"""Modules with which scripts compare and time: their functions must be the same at the end."""
KEPT = 1 << 20
"""Most characters of metrics that are kept."""


class Heard(io.TextIOWrapper):
    """Standard output, of which the lines that the script itself printed are kept."""

    def __init__(self, watch: Watch):
        super().__init__(sys.stdout.buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self.said = ""
        self._watch = watch

    def write(self, text: str) -> int:
        if not self._watch.asker(frame=sys._getframe(1)):
            self.said = (self.said + str(text))[-KEPT:]
        return super().write(text)


class Functions:
    """As a finder of sys.meta_path: remembers the functions of MEASURES at the moment when the engine is first looked
    for, and finds nothing."""

    def __init__(self, package: str):
        self._package = package
        self._held: dict[tuple[str, str], Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._held and name.partition(".")[0] == self._package:
            self._held = {
                (module, key): value
                for module in MEASURES
                for key, value in list(vars(sys.modules.get(module, math)).items())
                if module in sys.modules and callable(value)
            }
        return None

    def replaced(self) -> list[str]:
        """Names of those that are others now."""
        return [
            f"{module}.{key}"
            for (module, key), value in self._held.items()
            if vars(sys.modules[module]).get(key) is not value and not key.startswith("__")
        ]


def guard(watch: Watch) -> None:
    """Tells of a candidate that looks for this driver's frame. A library does so for its own ends."""

    here = threading.local()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if getattr(here, "busy", False):  # this hook asks for frames itself
            return
        if event in LOOKS or (event == "object.__getattr__" and arguments[1] in FRAMES):
            here.busy = True
            try:
                frame = sys._getframe(1)
                ours = frame.f_code.co_filename.startswith(DRIVERS)  # the watch itself asks who does what
                # only who does it directly: logging asks for frames too
                who = None if ours else watch.asker(through=os.sep * 2, frame=frame)
            finally:
                here.busy = False
            if who:
                what = event if event in LOOKS else str(arguments[1])
                watch.violation("runtime", who, f"looks into the process of the user's command: {what}")
                raise PermissionError(f"{what} can't be used in a process of the user's")

    sys.addaudithook(hook)


def run(script: str, arguments: list[str], tree: str, trusted: list[str], nonce: str) -> dict[str, Any]:
    """Runs `script` as `python script arguments`. `tree`: the engine's folder; `trusted`: the user's files. Returns the
    word, the exit status, and what the script printed. Whoever ends the process before that, ends it without the word.
    """
    watch = CURRENT[0]
    watch.open_tree(tree)
    watch.trust(trusted)
    guard(watch)
    functions = Functions(os.path.basename(tree))  # noqa: PTH119
    sys.meta_path.insert(1, functions)
    heard = Heard(watch)
    sys.stdout, sys.argv = heard, [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))  # noqa: PTH120
    status = ended(watch, lambda: runpy.run_path(script, run_name="__main__"))
    for thread in threading.enumerate():
        if thread not in (threading.current_thread(), threading.main_thread()) and not thread.daemon:
            thread.join()
    heard.flush()
    for name in functions.replaced():
        watch.violation("runtime", None, f"replaced {name} in the process of the user's command")
    watch.mark(nonce)
    return {"nonce": nonce, "status": status, "said": heard.said}


def ended(watch: Watch, script: Callable[[], object]) -> int:
    """Exit status of a script. An exit that the candidate asks for is none of the script's."""
    try:
        script()
    except SystemExit as left:
        if who := candidate_in(watch, left.__traceback__):
            watch.violation("runtime", who, "ends the user's command")
            return 1
        if isinstance(left.code, int | None):
            return int(left.code or 0) & 0xFF
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def candidate_in(watch: Watch, trace: TracebackType | None) -> tuple[str, int] | None:
    """File and line of the candidate's innermost frame in a traceback."""
    found = None
    while trace:
        found = watch.own(trace.tb_frame.f_code.co_filename, trace.tb_lineno) or found
        trace = trace.tb_next
    return found


OPERATIONS = {"run": run}
