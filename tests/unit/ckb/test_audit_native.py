"""What a text of C++ is told for, and that whatever the knowledge base composes is told for nothing."""

from typing import NamedTuple

import pytest

from ckb.audit import source_violations
from ckb.audit_native import native_findings, refused_symbol
from ckb.build import read_seed
from tests.mutants import bases, table
from tests.mutants.runner import made_of
from tests.mutants.variants import VARIANTS


class Told(NamedTuple):
    """A text of C++, and what is said of it."""

    text: str
    what: str


WRONG = {
    "a label": Told('extern "C" int begin_(const char*) __asm__("system");', "__asm__: assembler"),
    "a label of another spelling": Told('int f() asm("f");', "asm: assembler"),
    "a file's bytes": Told('asm(".incbin \\"/etc/passwd\\"");', "asm: assembler"),
    "a system call": Told('__asm volatile("syscall");', "__asm: assembler"),
    "pasted words": Told('#define CAT(a,b) a##b\nint x = CAT(sys,tem)("id");', "##: pasted words"),
    "pasted words by a digraph": Told("#define CAT(a,b) a%:%:b", "%:: pasted words"),
    "a word on two lines": Told('int x = sys\\\ntem("id");', "system"),
    "a word on two lines, with a space": Told('int x = sys\\ \ntem("id");', "system"),
    "pasting on two lines": Told("#define CAT(a,b) a#\\\n#b", "##: pasted words"),
    "a constructor": Told("__attribute__((constructor)) void begun() {}", "constructor: code that runs"),
    "a constructor by the standard's spelling": Told(
        "[[gnu::constructor]] void begun() {}", "constructor: code that runs"
    ),
    "a constructor in underscores": Told(
        "__attribute__((__constructor__(101))) void f() {}", "code that runs when it is"
    ),
    "a destructor": Told("__attribute__((destructor)) void ended() {}", "destructor: code that runs"),
    "an order": Told("A a __attribute__((init_priority(200)));", "init_priority: code that runs"),
    "a section": Told('__attribute__((section(".init_array"))) auto p = f;', "a section of its own"),
    "an alias": Told('int begin_(const char*) __attribute__((alias("x")));', "another name for a function"),
    "a weak reference": Told('static int f() __attribute__((weakref("x")));', "another name for a function"),
    "a renaming pragma": Told("#pragma redefine_extname begin_ other", "another name for a function"),
    "a renaming pragma in a text": Told('_Pragma("redefine_extname begin_ other")', "another name for a function"),
    "a file in quotes": Told('#include "/etc/passwd"', "header for computing"),
    "a foreign header": Told("#include <dlfcn.h>", "#include <dlfcn.h>, which"),
    "a header above": Told("#include <torch/../../x.h>", "which is no header"),
    "a header by a macro": Told("#define H <x.h>\n#include H", "#include H, which"),
    "an absolute header": Told("#include </etc/passwd>", "which is no header"),
    "an address taken": Told("auto g = &std::system;", "system"),
    "an address that is kept": Told("int (*g)(const char*) = system;", "system"),
    "another open": Told("int f = open64(p, 0);", "open64"),
    "a global open": Told("int f = ::open(p, 0);", "open"),
    "execveat": Told("execveat(1, p, a, e, 0);", "execveat"),
    "fexecve": Told("fexecve(1, a, e);", "fexecve"),
    "clone": Told("clone(f, stack, 0, 0);", "clone"),
    "kill": Told("kill(1, 9);", "kill"),
    "the interpreter": Told("PyRun_SimpleString(text);", "PyRun_SimpleString: the interpreter"),
    "an object of the interpreter": Told("PyObject* o;", "PyObject: the interpreter"),
    "an extension": Told("PYBIND11_MODULE(x, m) {}", "the interpreter"),
    "a name in a text that is code": Told('auto s = "/*"; system(p); auto e = "*/";', "system"),
    "a name behind an odd text": Told('FOO"(" ; ) " /* "; system(p); " */ "', "system"),
    "a name behind a raw text": Told('R"x(" /* )x"; system(p); /* */', "system"),
    "a name behind a character": Told("char c = '\"'; system(p); char d = '\"';", "system"),
    "a name behind a split raw text": Told('auto s = R\\\n"(" /* )"; system(p); /* */', "system"),
}
FINE = {
    "comments": "// the system may fork: asm ## PyRun_x\n/* dlsym\n constructor */ int x;",
    "variables": "float open = 1, bind = open * 2; int64_t clones = 3, systems = 4; connects(x);",
    "methods": "auto y = x.clone() + at::clone(z) + p->clone(); x.kill(); file.open(1);",
    "attributes": "typedef float vf __attribute__((vector_size(32), aligned(4), may_alias)); [[likely]] int x;",
    "digits": "long n = 1'000'000; /* system */ long m = 2'000;",
    "headers": "#include <vector>\n  # include <immintrin.h> // for system()\n#include <torch/extension.h>\n"
    "#include <ATen/cuda/CUDAContext.h>\n#include <cuda_bf16.h>\n#include <c10/util/Half.h>",
    "a macro of two lines": "#define MAX(a, b) \\\n    ((a) > (b) ? (a) : (b))\n#pragma omp parallel for\nint s_ystem;",
}


@pytest.mark.parametrize("name", WRONG)
def test_whatever_calls_more_than_what_computes_is_told(name: str) -> None:
    text, what = WRONG[name]
    assert any(what in found for _, found in native_findings(text)), list(native_findings(text))
    source = f"SOURCES.append({text!r})\n"
    assert any(what in v.what and "its C++ uses" in v.what for v in source_violations(source, "kernels.py"))


@pytest.mark.parametrize("name", FINE)
def test_what_computes_is_told_for_nothing(name: str) -> None:
    assert list(native_findings(FINE[name])) == []


def test_a_finding_has_its_line_also_below_comments_and_joined_lines() -> None:
    assert [line for line, _ in native_findings("/* a\nb\n*/ int x;\nint y = system(p);")] == [3]
    assert [line for line, _ in native_findings("#define A \\\n 1 \\\n + 2\nint y;\nint z = system(p);")] == [4]


@pytest.mark.parametrize("base", [name for name, base in bases.BASES.items() if not base.real])
def test_every_composed_tree_and_every_right_variant_is_clean(base: str) -> None:
    trees = [bases.right(base).files, *(made_of(one).files for one in VARIANTS if one.base == base)]
    for files in trees:
        for name, text in files.items():
            assert not name.endswith(".py") or source_violations(text, name) == []


@pytest.mark.slow
@pytest.mark.parametrize("base", [name for name, base in bases.BASES.items() if not base.real])
def test_no_mutant_is_told_that_another_gate_should_catch(base: str) -> None:
    """Such a mutant would show no longer what its own gate is worth."""
    for one in (one for one in table.MUTANTS if one.base == base and one.gate not in ("audit", "native_objects")):
        for name, text in made_of(one).files.items():
            found = source_violations(text, name) if name.endswith(".py") else []
            assert not [v for v in found if "C++" in v.what or "address" in v.what or "torch" in v.what], one.name


def test_the_seed_has_fragments_in_cpp_that_the_walk_reads() -> None:
    assert any("SOURCES" in getattr(row, "code", "") for row in read_seed()["fragments"])
    assert any("#include" in text for text in bases.right("llama native").files.values())


def test_an_object_may_ask_for_what_computes_and_for_nothing_else() -> None:
    for name in ("memcpy", "GOMP_parallel", "_Znwm", "_ZNSt8ios_base4InitC1Ev", "PyErr_SetString", "getenv", "expf"):
        assert refused_symbol(name) == ""
    for name in ("system", "open", "connect", "dlsym", "_ZNSt14basic_ifstreamIcSt11char_traitsIcEEC1Ev"):
        assert refused_symbol(name) == "it does more than compute"
    for name in ("PyRun_SimpleString", "PyGILState_Ensure", "PyImport_ImportModule", "_PyRun_x", "Py_NewInterpreter"):
        assert refused_symbol(name) == "it reaches into the interpreter"
    assert [refused_symbol(name, triton=True) for name in ("dlsym", "PyGILState_Ensure", "PyObject_CallObject")] == [
        ""
    ] * 3
    assert all(refused_symbol(n, triton=True) for n in ("system", "PyRun_SimpleString", "PyImport_ImportModule"))
