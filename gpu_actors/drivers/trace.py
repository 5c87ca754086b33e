"""Notes which lines of a tree are executed, in a process that nobody times.

Frames of other files are not followed, and a function whose every line has been seen is followed no more: what is left
of the cost is one look into a dictionary a call.
"""

import os
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

OPEN: dict[CodeType, set[int]] = {}
"""Code of the tree -> its lines that were not seen yet."""
SEEN: dict[str, set[int]] = {}
"""File of the tree -> its lines that were."""


def lines_of(code: CodeType) -> Iterator[int]:
    return (line for _, _, line in code.co_lines() if line)


def trace(tree_dir: str) -> dict[str, Any]:
    """Begins with this and all later threads. What is imported already has run unseen."""
    roots = tuple({tree_dir + os.sep, os.path.realpath(tree_dir) + os.sep})
    OPEN.clear()
    SEEN.clear()

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        left = OPEN.get(code)
        if left is None:
            if not code.co_filename.startswith(roots):
                return None
            left = OPEN[code] = {*lines_of(code)} - {code.co_firstlineno}
        if not left:
            return None
        seen = SEEN.setdefault(os.path.relpath(code.co_filename, tree_dir), set())

        def within(_: FrameType, happened: str, __: Any) -> Any:
            if happened == "line":
                line = frame.f_lineno
                seen.add(line)
                left.discard(line)
            return within

        return within

    threading.settrace(entered)
    sys.settrace(entered)
    return {}


def traced() -> dict[str, Any]:
    """The lines that were executed, by file. Ends the noting."""
    sys.settrace(None)
    threading.settrace(None)
    return {"lines": {file: sorted(lines) for file, lines in SEEN.items()}}


OPERATIONS = {"trace": trace, "traced": traced}
