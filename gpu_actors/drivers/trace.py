"""Notes which lines of a tree are executed, in a process that nobody times."""

import os
import sys
from typing import Any

import coverage

CORE = "sysmon" if sys.version_info >= (3, 12) else "ctrace"
"""coverage's cheapest way: a line or a function is followed until it was seen, or frames of other files never in
Python. A trace function of Python's own took a fifth of a verdict."""
HELD: dict[str, coverage.Coverage] = {}
"""Folder of the tree -> what notes its lines."""


def trace(tree_dir: str) -> dict[str, Any]:
    """Begins with this and all later threads. What is imported already has run unseen."""
    root = os.path.realpath(tree_dir)
    held = coverage.Coverage(data_file=None, config_file=False, include=[f"{root}/*"], messages=False)
    held.set_option("run:core", CORE)
    held.start()
    HELD[root] = held
    return {}


def traced() -> dict[str, Any]:
    """The lines that were executed, by file. Ends the noting."""
    root, held = HELD.popitem()
    held.stop()
    data = held.get_data()
    files = {os.path.relpath(file, root): data.lines(file) or [] for file in data.measured_files()}
    return {"lines": {file: sorted(lines) for file, lines in files.items() if lines}}


OPERATIONS = {"trace": trace, "traced": traced}
