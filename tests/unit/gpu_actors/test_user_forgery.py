"""An engine that the user's own script imports runs in the script's process. It can't speak for the script there."""

from pathlib import Path

import pytest

from ckb.hashing import sha256_file
from gpu_actors.gate_record import Record
from gpu_actors.jobs import EngineJob, VerifyJob
from gpu_actors.user import UserRun, run_user_benchmark, run_user_checker
from gpu_actors.verifier import run_user_gate
from tests.unit.gpu_actors import tiny

CHECK = """
import json, math, sys, time
from pathlib import Path

folder = Path(sys.argv[-2])
sys.path.insert(0, str(folder.parent))
start = time.perf_counter()
from candidate import answer
found = answer()
print(json.dumps({"metric": "found", "value": found}))
assert math.isclose(found, 42), found
"""
FORGERIES = {
    "leaves with status 0": ("import os\nos._exit(0)", "did not reach its end"),
    "leaves when the script fails": (
        "import atexit, os\natexit.register(lambda: os._exit(0))\ndef answer(): return 1", "exit status 1",
    ),
    "asks for an end": ("import sys\nsys.exit(0)", "violation: ends the user's command"),
    "asks for an end from a function": ("def answer(): raise SystemExit", "violation: ends the user's command"),
    "ends in C": ("import ctypes\nctypes.CDLL(None)._exit(0)", "did not reach its end"),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nos.abort()", "did not reach its end"),
    "answers for the driver": (  # what is seen of it first, the reply or the line on the watch's pipe, is chance
        'import json, os\nvalues = {"nonce": "x", "status": 0, "said": ""}\n'
        'line = json.dumps({"id": 1, "values": values, "arrays": []}).encode() + b"\\n"\n'
        "for fd in range(3, 40):\n    try:\n        os.write(fd, line)\n    except OSError:\n        pass\nos._exit(0)",
        "",
    ),
    "makes everything close": (
        "import math\nmath.isclose = lambda *_: True\ndef answer(): return 1", "violation: replaced math.isclose",
    ),
    "stops the clock": (
        "import time\ntime.perf_counter = lambda: 0.0\ndef answer(): return 42",
        "violation: replaced time.perf_counter",
    ),
    "climbs the frames": (
        "import sys\ndef answer():\n    return sys._getframe().f_back and 42", "violation: looks into the process",
    ),
    "climbs a traceback": (
        "def answer():\n    try:\n        raise KeyError\n    except KeyError as e:\n"
        "        return e.__traceback__.tb_frame and 42",
        "violation: looks into the process",
    ),
    "asks the collector": ("import gc\ngc.get_objects()\ndef answer(): return 42", "violation: looks into the process"),
    "imports a framework": (
        "try:\n    import transformers\nexcept ImportError:\n    pass\ndef answer(): return 42",
        "violation: imports transformers",
    ),
}  # fmt: skip


def tree(folder: Path, source: str) -> EngineJob:
    package = folder / "trees" / "candidate"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(source + "\n")
    checkpoint = folder / "tiny"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    return tiny.engine_job(package, checkpoint)


def script(folder: Path) -> Path:
    path = folder / "check.py"
    path.write_text(CHECK)
    return path


def check(folder: Path, source: str, *, benchmark: bool = False) -> UserRun:
    engine, path = tree(folder, source), script(folder)
    run = run_user_benchmark if benchmark else run_user_checker
    return run(f"python {path}", (path, folder / "trees"), engine, folder / "cache", 60.0)


def test_a_right_answer_passes_and_a_wrong_one_fails(tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    right = check(tmp_path, "import logging, dataclasses\nlogging.warning('hello')\ndef answer(): return 42")
    assert (right.status, right.watched, right.violations) == ("PASS", True, ()), right
    wrong = check(tmp_path / "wrong", "def answer(): return 41")
    assert (wrong.status, wrong.violations) == ("FAIL", ())
    assert "AssertionError: 41" in wrong.summary


@pytest.mark.parametrize("name", FORGERIES)
def test_a_candidate_can_not_forge_a_pass(tmp_path: Path, name: str) -> None:
    source, why = FORGERIES[name]
    found = check(tmp_path, source)
    assert found.status == "FAIL", found
    assert why in found.summary
    if why:
        assert bool(found.violations) == why.startswith("violation")


SPEAKS = """
import atexit, json, os, threading, time
line = json.dumps({"metric": "found", "value": 7}) + "\\n"
atexit.register(print, line)
atexit.register(lambda: os.write(1, line.encode()))
def later():
    time.sleep(0.5)
    print(line)
threading.Thread(target=later).start()
print(line)
class Loud(float):
    def __repr__(self):
        print(line)
        return "42.0"
def answer():
    print(line)
    return Loud(42)
"""


def test_what_a_candidate_prints_is_no_metric_of_the_script(tmp_path: Path) -> None:
    found = check(tmp_path, SPEAKS, benchmark=True)
    assert (found.status, found.metrics) == ("PASS", {"found": 42.0}), found


def test_violations_are_rows_of_the_verdict(tmp_path: Path) -> None:
    engine, path = tree(tmp_path, FORGERIES["asks the collector"][0]), script(tmp_path)
    job: VerifyJob = tiny.verify_job(engine, checker=f"python {path}", checker_files={str(path): sha256_file(path)})
    record = Record(job)
    run_user_gate(job, record, tmp_path / "cache", 60.0)
    (result,) = record.results
    assert result.status == "FAIL"
    assert [(row.candidate, row.gate, row.file, row.line) for row in result.violations] == [
        (job.candidate, "user_checker", "__init__.py", 2)
    ]


def test_a_command_that_is_no_script_says_that_it_was_not_watched(tmp_path: Path) -> None:
    engine = tree(tmp_path, "")
    found = run_user_checker("true", (), engine, tmp_path / "cache", 60.0)
    assert (found.status, found.watched) == ("PASS", False)
    assert "not watched from inside" in found.summary
