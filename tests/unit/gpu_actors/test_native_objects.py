"""Shared objects as their loader sees them: compiled here with the machine's compiler, from what an attacker wrote."""

import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ckb.audit import source_violations
from gpu_actors import shared_objects
from gpu_actors.child import Child
from gpu_actors.gates import native
from gpu_actors.gates.base import Finding, Subject
from gpu_actors.reference import Reference
from gpu_actors.sandbox import Confinement
from tests.mutants import cheats
from tests.mutants.runner import made_of
from tests.unit.gpu_actors import tiny
from tests.unit.gpu_actors.test_watch import DRIVER

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a compiler")
LABEL = 'extern "C" int begin_(const char*) __asm__("system");\n'
CALL = 'extern "C" void go() { begin_("true"); }\n'
HIDDEN = "static volatile int x;\n__attribute__((constructor)) static void begun() { x = 1; }\n"
SECTION = 'static void f() {}\n__attribute__((section(".init_array"), used)) static void (*p)() = f;\n'
RESOLVER = """
extern "C" { typedef void F(); F* pick() { return 0; } void f() __attribute__((ifunc("pick"))); void g() { f(); } }
"""
EXTENSION = 'extern "C" int PyRun_SimpleString(const char*);\nint x() { return PyRun_SimpleString(""); }\n'
WRONG = {
    "a label": (LABEL + CALL, (), "asks for system"),
    "an address in a table": (LABEL + "extern auto const table = &begin_;\n", (), "asks for system"),
    "a constructor": ('extern "C" __attribute__((constructor)) void begun() {}\n', (), "runs begun when it is loaded"),
    "a hidden constructor": (HIDDEN, (), "when it is loaded"),
    "a constructor without its name": (
        HIDDEN, ("-s",), "a function without a name when it is loaded",
    ),
    "a section": (SECTION, (), "when it is loaded"),
    "the interpreter": (EXTENSION, (), "asks for PyRun_SimpleString: it reaches into the interpreter"),
    "a file": ("#include <fstream>\nint x() { return std::ifstream(\"/etc/passwd\").get(); }\n", (), "more than"),
    "no names of sections": (LABEL + CALL, ("-s",), "asks for system"),
    "a resolver": (RESOLVER, (), "by running code"),
}  # fmt: skip


def built(folder: Path, source: str, *flags: str, name: str = "kernels_x.so") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.cpp").write_text(source)
    command = ["g++", "-O1", "-shared", "-fPIC", str(folder / "x.cpp"), "-o", str(folder / name), *flags]
    subprocess.run(command, check=True)
    (folder / "x.cpp").unlink()
    return folder / name


@pytest.mark.parametrize("name", WRONG)
def test_what_an_object_asks_for_and_runs_is_told(tmp_path: Path, name: str) -> None:
    source, flags, what = WRONG[name]
    assert what in (native.what_is_wrong(built(tmp_path, source, *flags)) or "")


def test_an_object_that_computes_is_told_for_nothing(tmp_path: Path) -> None:
    source = "#include <math.h>\n#include <vector>\nstatic std::vector<float> kept(9);\n"
    source += 'extern "C" float f(float x) { kept.push_back(x); return expf(x) + kept[3]; }\n'
    assert native.what_is_wrong(built(tmp_path, source, "-fopenmp")) == ""


def test_a_section_table_that_lies_hides_nothing(tmp_path: Path) -> None:
    path = built(tmp_path, LABEL + CALL)
    data = bytearray(path.read_bytes())
    data[40:48] = bytes(8)  # e_shoff: where the table of sections would be
    data[60:64] = bytes(4)  # e_shnum, e_shstrndx
    path.write_bytes(data)
    assert "asks for system" in (native.what_is_wrong(path) or "")


def test_what_is_no_object_of_this_machine_is_left_alone_and_a_broken_one_is_told(tmp_path: Path) -> None:
    path = built(tmp_path, "int x;\n")
    whole = path.read_bytes()
    device = bytearray(whole)
    device[18:20] = (190).to_bytes(2, "little")
    (tmp_path / "a.cubin").write_bytes(device)
    (tmp_path / "notes.so").write_text("no object")
    (tmp_path / "linked.so").symlink_to(path)
    os.mkfifo(tmp_path / "pipe.so")
    for name in ("a.cubin", "notes.so", "linked.so", "pipe.so", "absent.so"):
        assert native.what_is_wrong(tmp_path / name) is None, name
    for size in (5, 40, 100, 700, len(whole) // 2):
        path.write_bytes(whole[:size])
        assert native.what_is_wrong(path) != "" or shared_objects.read(path), size
    path.write_bytes(whole[:40])
    assert "can't be read" in (native.what_is_wrong(path) or "")


def test_tritons_launchers_are_known_by_their_place_and_still_run_no_text(tmp_path: Path) -> None:
    key = "A" * 52
    assert native.TRITON.fullmatch(f"triton/{key}/cuda_utils.cpython-311-x86_64-linux-gnu.so")
    for name in (f"triton/{key}/kernels.so", f"x/triton/{key}/cuda_utils.so", "triton/cuda_utils.so"):
        assert not native.TRITON.fullmatch(name)
    source = 'extern "C" int PyGILState_Ensure(), dlsym();\nint x() { return PyGILState_Ensure() + dlsym(); }\n'
    launcher = built(tmp_path, source)
    assert native.what_is_wrong(launcher, triton=True) == ""
    assert "PyGILState_Ensure" in (native.what_is_wrong(launcher) or "")
    text = built(tmp_path, 'extern "C" int PyRun_SimpleString();\nint x() { return PyRun_SimpleString(); }\n')
    assert "PyRun_SimpleString" in (native.what_is_wrong(text, triton=True) or "")


def gate(child: Child, folder: Path) -> Finding:
    folder = folder / secrets.token_hex(4)
    checkpoint = tiny.write_checkpoint(folder / "model", "llama")
    job = tiny.verify_job(tiny.engine_job(folder, checkpoint))
    with Reference(folder / "cache", checkpoint, tiny.facts()) as reference:
        return native.objects(Subject(job, child, reference, time.monotonic() + 60, folder))


def test_the_gate_reads_all_that_a_child_may_write_and_what_it_loaded_and_took_away(tmp_path: Path) -> None:
    driver, kernels = tmp_path / "driver.py", tmp_path / "kernels"
    driver.write_text(DRIVER)
    built(kernels / "deep", 'extern "C" int f() { return 1; }\n')
    with Child(driver, Confinement(read=(driver,), write=(kernels,))) as child:
        assert gate(child, tmp_path).status == "PASS"
        loaded = kernels / "deep/kernels_x.so"
        load = f"import ctypes, os; ctypes.CDLL('{loaded}'); os.unlink('{loaded}')"
        assert child.call("attempt", 30.0, code=load).values["outcome"] == "done"
        gone = gate(child, tmp_path)
        built(kernels, LABEL + CALL, name="kernels_y.so")
        asks = gate(child, tmp_path)
    assert gone.status == "FAIL"
    assert ["the file is gone" in row.what for row in gone.violations] == [True]
    assert any(row.file == "kernels_y.so" and "asks for system" in row.what for row in asks.violations)
    assert {(row.gate, row.kind) for row in asks.violations} == {("native_objects", "runtime")}


@pytest.mark.parametrize("name", [m.name for m in cheats.MUTANTS if m.gate == "native_objects"])
def test_the_attackers_trees_are_told_by_the_audit_of_their_text_and_by_their_object(tmp_path: Path, name: str) -> None:
    (one,) = (m for m in cheats.MUTANTS if m.name == name)
    source = made_of(one).files["kernels.py"]
    texts: list[str] = []
    added = source[source.rindex("SOURCES.append") :]
    exec(added, {"SOURCES": texts})  # the test's own constant
    path = built(tmp_path, "#include <stdint.h>\n" + "".join(texts))
    found = native.what_is_wrong(path) or ""
    assert "asks for system" in found or "asks for PyRun_SimpleString" in found
    told = [v for v in source_violations(source, "kernels.py") if "C++" in v.what]
    assert bool(told) != ("made of parts" in name), "a text that is made of parts shows in the object alone"
