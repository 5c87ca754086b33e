"""How a tree reads: which lines run, what its constants decide, how long its functions are."""

import sys
import threading

import pytest

from gpu_actors.drivers import trace
from gpu_actors.readability import executable, readability

SOURCE = """\
\"\"\"Words.\"\"\"

import os

FUSED = True
LAYERS = 2 + 1


def f(x):
    \"\"\"More words.\"\"\"
    if x:
        return 1
    return [
        y for y in range(x)
    ]


class C:
    def g(self):
        return 2
"""


def test_docstrings_and_blank_lines_are_no_lines_that_run_and_a_def_runs_where_it_stands() -> None:
    assert executable(SOURCE) - {1} == {3, 5, 6, 9, 11, 12, 13, 14, 18, 19, 20}


def test_lines_that_did_not_run_are_counted_and_named() -> None:
    ran = [1, 3, 5, 6, 9, 11, 13, 14, 18, 19]
    found = readability({"a.py": SOURCE, "b.py": "x = 1\n"}, {"a.py": ran, "b.py": [1]})
    assert found.idle == ("a.py:12", "a.py:20")
    assert found.executed == pytest.approx(1 - 2 / found.lines)
    assert (found.functions, found.median_function, found.longest_function) == (2, 4.5, 7)
    assert found.longest == "a.py f"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("if FUSED:\n    pass", 1),
        ("if not FUSED and LAYERS > 2:\n    pass", 1),
        ("x = 1 if LAYERS == 3 else 2", 1),
        ("if True:\n    pass", 1),
        ("import torch\nD = torch.float32\nif D == torch.bfloat16:\n    pass", 1),
        ("if len(HEADS) > 1:\n    pass", 1),
        ("def f(x):\n    if FUSED and x:\n        pass", 0),
        ("def f(FUSED):\n    if FUSED:\n        pass", 0),
        ("if __name__ == '__main__':\n    pass", 0),
        ("GROWS = []\nif GROWS:\n    pass", 0),
        ("SET = 1\ndef f():\n    global SET\n    SET = 2\nif SET:\n    pass", 0),
        ("import os\nif os.cpu_count():\n    pass", 0),
        ("while FUSED:\n    break", 0),
    ],
)
def test_a_branch_that_constants_decide_is_one(code: str, found: int) -> None:
    files = {"facts.py": "FUSED = True\nLAYERS = 3\nHEADS = (1, 2)\n",
             "a.py": f"from .facts import FUSED, HEADS, LAYERS\n{code}\n"}  # fmt: skip
    assert len(readability(files, {}).fact_branches) == found


def test_only_lines_of_the_tree_are_noted_and_in_every_thread(tmp_path: pytest.TempPathFactory) -> None:
    file = f"{tmp_path}/a.py"
    space: dict[str, object] = {}
    exec(compile(SOURCE, file, "exec"), space)
    before = sys.gettrace(), threading.gettrace()
    trace.trace(str(tmp_path))
    try:
        space["f"](2)  # type: ignore[operator]
        thread = threading.Thread(target=space["C"]().g)  # type: ignore[operator]
        thread.start()
        thread.join()
    finally:
        lines = trace.traced()["lines"]
        sys.settrace(before[0])
        threading.settrace(before[1])  # type: ignore[arg-type]
    assert lines == {"a.py": [11, 12, 20]}
