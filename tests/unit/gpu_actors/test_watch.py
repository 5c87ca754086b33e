"""What a candidate's process is refused and reported for, tried for real in one child, and what it is not."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ckb.violations import Violation
from gpu_actors.benchmarker import Entrant
from gpu_actors.child import ENGINE, Child, ChildFailure
from gpu_actors.conduct import Conduct
from gpu_actors.gates import provenance
from gpu_actors.gates.base import Finding, Subject
from gpu_actors.reference import Reference
from gpu_actors.sandbox import Confinement
from gpu_actors.telemetry import Telemetry
from tests.unit.gpu_actors import tiny

DRIVER = """
import importlib, os, sys

def attempt(code):
    try:
        exec(code, {"__name__": "candidate"})
        return {"outcome": "done"}
    except BaseException as error:
        return {"outcome": type(error).__name__}

OPERATIONS = {"attempt": attempt}
"""
"""Its file lies outside of ours, so that whatever it does counts as a candidate's deed."""
SITE = next(path for path in sys.path if path.endswith("site-packages"))
WRONG = {
    "an import": ("import transformers", "runtime", "imports transformers, which is forbidden"),
    "an import by name": ("import importlib; importlib.import_module('vllm.core')", "runtime", "imports vllm"),
    "an import through the library": ("import pkgutil; pkgutil.resolve_name('sglang:x')", "runtime", "imports sglang"),
    "an import of ours": ("import ckb.facts", "runtime", "imports ckb"),
    "an unlisted library": ("import flash_attn", "runtime", "imports flash_attn, which the Target's operators do not"),
    "a part of a listed library": ("import flashinfer_listed.models.llama", "runtime", "imports flashinfer_listed"),
    "without the finder": (
        "import sys\nfirst = sys.meta_path.pop(0)\ntry:\n    import vllm\nfinally:\n    sys.meta_path.insert(0, first)",
        "runtime", "took the watch out",
    ),
    "another interpreter": ("import _xxsubinterpreters", "runtime", "whose interpreters nothing watches"),
    "a forbidden source": (f"open('{SITE}/transformers/__init__.py')", "read", "transformers/__init__.py"),
    "a source by its number": (
        f"import os; os.open('{SITE}/transformers/modeling_utils.py', os.O_RDONLY)", "read", "modeling_utils.py",
    ),
    "a forbidden package's data": (f"open('{SITE}/transformers/py.typed')", "read", "py.typed"),
    "a source of another package": (f"open('{SITE}/pyarrow/compute.py').read()", "read", "pyarrow/compute.py"),
    "a source somewhere": ("open('/elsewhere/model.py')", "read", "/elsewhere/model.py"),
    "a source as a path": ("import pathlib; pathlib.Path('/elsewhere/a.py').read_text()", "read", "/elsewhere/a.py"),
    "a list of what is installed": (f"import os; os.listdir('{SITE}')", "read", "looks through"),
    "a walk": (f"import pathlib; list(pathlib.Path('{SITE}/torch').glob('*'))", "read", "looks through"),
    "a file that nobody gave it": ("open('/elsewhere/answers.npz', 'rb')", "read", "opens '/elsewhere/answers.npz'"),
    "a file beside its own folder": ("open('../../notes.txt')", "read", "neither its own nor given to it"),
    "a folder that nobody gave it": ("import os; os.listdir('/elsewhere')", "read", "lists '/elsewhere'"),
    "a search": ("import os, pathlib; next(os.scandir(pathlib.Path.home().parent))", "read", "lists"),
    "what another process was started with": (
        "import os; open(f'/proc/{os.getppid()}/environ', 'rb')", "read", "/environ', which tells of a process",
    ),
    "what another process runs": ("open('/proc/999999/cmdline')", "read", "/cmdline', which tells of a process"),
    "what it was started with": ("open('/proc/self/environ', 'rb')", "read", "/environ', which tells of a process"),
    "its memory": ("import os; open(f'/proc/{os.getpid()}/mem', 'r+b')", "read", "/mem', which tells of a process"),
    "its environment by a thread": ("open('/proc/thread-self/environ')", "read", "/environ', which tells of a process"),
    "a file by way of its process": ("open('/proc/self/root/elsewhere/c.npz')", "read", "opens '/elsewhere/c.npz'"),
    "a file by way of the system": ("open('/usr/../elsewhere/b.npz')", "read", "opens '/elsewhere/b.npz'"),
    "a shared object": ("import ctypes; ctypes.CDLL('/elsewhere/x.so')", "runtime", "/elsewhere/x.so"),
    "an interpreter through ctypes": (
        "import ctypes; ctypes.pythonapi.PyRun_SimpleString(b'import vllm')", "runtime", "looks up PyRun_SimpleString",
    ),
    "a program through ctypes": ("import ctypes; ctypes.CDLL(None).system(b'true')", "runtime", "looks up system"),
    "a program": ("import subprocess; subprocess.run(['true'])", "runtime", "starts the program"),
    "a shell": ("import os; os.system('true')", "runtime", "starts the program"),
    "a connection": ("import socket; socket.create_connection(('203.0.113.1', 80), 1)", "runtime", "connects to"),
    "a hook of its own": ("import sys; sys.addaudithook(print)", "runtime", "adds an audit hook"),
    "the watch's code": (
        "import sys; sys.modules['driver.watch'].Watch._open.__code__ = (lambda *_: 0).__code__", "runtime",
        "changes the code of its watch",
    ),
}  # fmt: skip
FINE = {
    "its libraries": "import numpy.fft, jinja2, tokenizers, safetensors, starlette.routing, uvicorn",
    "the standard library": "import xml.dom.minidom, asyncio, ctypes, subprocess, http.server",
    "a source of the standard library": "import json; open(json.__file__).read()",
    "a source of an allowed library": "import numpy; open(numpy.__file__).read()",
    "its own source": "open('own.py', 'w').write('x = 1'); open('own.py').read()",
    "its own files": "import tempfile, os; open('a.bin', 'wb').close(); os.listdir('.'); tempfile.TemporaryFile()",
    "what the machine says of itself": "open('/proc/self/stat').read(8); open('/dev/null')",
    "files of its own process": "open('/proc/self/maps').read(8); import os; os.listdir('/proc/self/task')",
    "a library of the system": "import ctypes; ctypes.CDLL(None); ctypes.CDLL('libc.so.6')",
    "a traceback of another package": "import pyarrow_absent"
    if False
    else "import traceback; traceback.format_stack()",
    "its own loopback": (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(s.getsockname())"
    ),
    "names of what is installed, by a library": "import numpy.testing",
    "a missing module of the standard library": "try:\n    import json.absent\nexcept ImportError:\n    pass",
    "what the standard library asks for": "import sys; sys.modules.pop('pickle', 0); import pickle, zoneinfo",
}


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    driver = tmp_path_factory.mktemp("candidate") / "driver.py"
    driver.write_text(DRIVER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpu_actors.watched.OPERATOR_LIBRARIES", {"flashinfer_listed": ("models",)})
        rules = Confinement(read=(driver,), operators=("flashinfer_listed",))
        with Child(driver, rules) as held:
            yield held


def told(child: Child) -> list[Violation]:
    child.told.violations.clear()
    child.told.read()
    return list(child.told.rows("c", "watched"))


@pytest.mark.parametrize("name", FINE)
def test_what_engines_and_their_libraries_do_is_no_violation(child: Child, name: str) -> None:
    told(child)
    outcome = child.call("attempt", 60.0, code=FINE[name]).values["outcome"]
    assert (outcome, told(child)) == ("done", [])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_forbidden_is_refused_and_told(child: Child, name: str) -> None:
    code, kind, what = WRONG[name]
    told(child)
    outcome = child.call("attempt", 60.0, code=code).values["outcome"]
    found = told(child)
    silent = name in ("a hook of its own", "a walk")  # which the interpreter, and pathlib, leave out without a word
    refused = ("ModuleNotFoundError", "ImportError", "PermissionError")
    assert outcome == "done" if silent else outcome in refused, found
    assert any(row.kind == kind and what in row.what for row in found), found
    assert all(row.file.endswith("driver.py") and row.line == 6 for row in found), found


def test_every_import_is_recorded_and_the_mark_shows_that_the_pipe_is_open(child: Child) -> None:
    child.call("attempt", 60.0, code="import importlib; importlib.import_module('colorsys')")
    child.call("attempt", 60.0, code="import sys; sys.modules.pop('colorsys')")
    reply = child.call("mark", 10.0, nonce="n1")
    assert "colorsys" in reply.value("imports", list[str])
    child.told.read()
    assert "n1" in child.told.marks


class Timed(NamedTuple):
    """An arm's runner, as far as its watch goes."""

    child: Child
    setting: None = None


def test_an_arm_that_tries_it_while_it_is_timed_is_wrong(child: Child) -> None:
    told(child)
    conduct = Conduct(child, Telemetry("cpu"), child, 0.0)
    entrant = Entrant("r1-c0", Timed(child), True, conduct)  # type: ignore[arg-type]
    child.told.violations.clear()
    entrant.look_at_the_watch()
    assert (entrant.status, entrant.violations) == ("OK", ())
    child.call("attempt", 60.0, code="import vllm.timed")
    entrant.look_at_the_watch()
    assert entrant.status == "WRONG"
    assert entrant.detail == "violation: imports vllm.timed, which is forbidden in an engine's process"
    assert [(v.candidate, v.gate, v.kind) for v in entrant.result().violations] == [("r1-c0", "benchmark", "runtime")]


def pipe_of(child: Child) -> str:
    """The number of the watch's pipe, as the child was told it."""
    child.call("attempt", 30.0, code="pass")
    return Path(f"/proc/{child.sandbox.pid}/cmdline").read_bytes().split(b"\0")[-2].decode()


def gate(child: Child, folder: Path) -> Finding:
    checkpoint = tiny.write_checkpoint(folder / "model", "llama")
    job = tiny.verify_job(tiny.engine_job(folder, checkpoint))
    with Reference(folder / "cache", checkpoint, tiny.facts()) as reference:
        return provenance.watched(Subject(job, child, reference, time.monotonic() + 60, folder))


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("pass", ""),
        ("import os; os.write(FD, b'rubbish\\n')", "wrote to the pipe of its watch"),
        ("import os; os.dup2(os.open('/dev/null', os.O_WRONLY), FD)", "silenced its watch"),
        ("import vllm", "imports vllm, which is forbidden"),
        ("HELD._told |= set(range(50))", "silenced its watch"),
        ("HELD._forbidden = frozenset()", "changed its watch: what it forbids"),
        ("HELD._allowed |= {'transformers'}", "changed its watch: what it forbids"),
        ("HELD._parts = ()", "changed its watch: what it forbids"),
        ("HELD.rules['forbidden'].clear()", "changed its watch: what it forbids"),
        ("HELD._places = ('/',)", "changed its watch: what it forbids"),
        ("HELD._tree = '/'", "changed its watch: it takes '/' for"),
        ("HELD.violation = lambda *_: None", "changed its watch: what it forbids"),
        ("type(HELD)._judge_import = lambda *_: None", "changed its watch: what it forbids"),
        ("import time; time.perf_counter = lambda: 0.0", "gives time.perf_counter another value"),
    ],
    ids=[
        "nothing",
        "rubbish",
        "silenced",
        "an import",
        "full",
        "nothing forbidden",
        "more allowed",
        "no parts",
        "other rules",
        "other places",
        "another tree",
        "an attribute",
        "a method",
        "a clock",
    ],
)
def test_the_gate_fails_what_was_told_and_a_watch_that_tells_nothing(tmp_path: Path, code: str, what: str) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    with Child(driver, Confinement(read=(driver,))) as child:
        code = code.replace("FD", pipe_of(child)).replace(
            "HELD", "__import__('sys').modules['driver.watch'].CURRENT[0]"
        )
        assert child.call("attempt", 30.0, code=code).value("outcome", str) in ("done", "ModuleNotFoundError")
        finding = gate(child, tmp_path)
    assert finding.status == ("FAIL" if what else "PASS"), finding
    assert what in finding.summary
    assert [what in row.what for row in finding.violations] == [True] * bool(what)


def test_a_process_that_closed_the_pipe_ends_with_its_next_violation(tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    with Child(driver, Confinement(read=(driver,))) as child:
        fd = pipe_of(child)
        with pytest.raises(ChildFailure) as ended:
            child.call("attempt", 30.0, code=f"import os; os.close({fd})\nimport vllm")
    assert ended.value.kind == "CRASHED"


def test_a_child_of_ours_that_runs_no_candidate_is_not_watched(tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    with Child(driver, Confinement(mode="none"), forbidden=()) as child:
        assert child.call("attempt", 60.0, code=f"open('{SITE}/transformers/__init__.py')").values["outcome"] == "done"
        assert told(child) == []


def test_a_decode_step_raises_next_to_no_events(tmp_path: Path) -> None:
    """Which is why the watch costs nothing while a clock runs."""
    tree = tiny.write_engine(tmp_path / "watched_engine", "llama")
    checkpoint = tiny.write_checkpoint(tmp_path / "model", "llama")
    rules = Confinement(read=(tree,), data=(checkpoint,), operators=("torch", "triton"))
    with Child(ENGINE, rules) as child:
        child.call("open", 60.0, tree_dir=str(tree), threads=1, device="cpu")
        child.call("load_engine", 60.0, checkpoint=str(checkpoint))
        counts = []
        for tokens in (8, 8, 40):
            before = child.call("mark", 10.0, nonce="x").value("events", int)
            child.call("generate", 60.0, prompts=[[5, 9, 300]], max_new_tokens=tokens, ignore_eos=True)
            counts.append(child.call("mark", 10.0, nonce="x").value("events", int) - before)
        assert told(child) == []
    assert counts[2] - counts[1] <= 32, f"events of {counts}, 8, 8 and 40 tokens: less than one a step was measured"
