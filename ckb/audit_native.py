"""What a text of C++ may not say, and what a shared object may not ask the loader for.

An engine's C++ computes. A function of the system needs its name in the text, unless the text can give it another one:
so every means to do that (assembler labels, aliases, pasted or spliced words, foreign headers) is a finding as well as
the names themselves, called or not. What no text shows, the built object does: gpu_actors/gates/native.py reads it.
"""

import re
from collections.abc import Iterator

RUNS = (
    "system", "popen", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "execveat", "fexecve",
    "posix_spawn", "posix_spawnp", "fork", "vfork", "clone", "clone3", "syscall", "ptrace", "kill", "memfd_create",
    "mprotect", "pkey_mprotect", "process_vm_readv", "process_vm_writev",
)  # fmt: skip
"""Functions of the C library that start or touch programs and processes, and those that make data into code."""
LOADS_OBJECTS = ("dlopen", "dlmopen", "dlsym", "dlvsym", "dlclose", "dlinfo", "dl_iterate_phdr", "__libc_dlsym",
                 "__libc_dlopen_mode")  # fmt: skip
OPENS = ("open64", "openat", "openat64", "fopen64", "freopen64", "creat64")
"""Functions that open files and are no words of English: findings wherever they stand."""
OPENS_CALLED = ("open", "creat", "fopen", "freopen", "fdopen", "opendir", "readdir", "socket", "socketpair", "connect",
                "bind", "sendto", "recvfrom")  # fmt: skip
"""Those that an honest kernel may call its variables: findings where they are called, and in an object."""
REFUSED = frozenset({*RUNS, *LOADS_OBJECTS, *OPENS, *OPENS_CALLED})
"""Names that no object may ask the loader for."""
STREAMS = re.compile(r"_ZNSt1[345]basic_(?:filebuf|[io]?fstream)|_ZNSt10filesystem|_ZN2at14DynamicLibrary|"
                     r"_ZN5torch3jit|_ZN8pybind11")  # fmt: skip
"""Beginnings of C++ names that open files or load programs, as compilers write them."""
PYTHON = re.compile(r"_?Py[A-Z_]\w*")
PYTHON_VALUES = re.compile(
    r"PyExc_\w+|PyErr_(?:SetString|Occurred|Clear|NoMemory)|PyModule_Create2|PyUnstable_Module_SetGIL|_Py_Dealloc|"
    r"_Py_(?:None|True|False)Struct|Py(?:Tuple|Long|Float|Bool)_Type|PyTuple_(?:New|Size|GetItem|SetItem)|"
    r"PyLong_(?:As|From)\w+|PyFloat_(?:As|From)\w+|PyArg_ParseTuple"
)
"""Of the interpreter: what turns arguments into numbers. torch.compile's kernels need this, and it runs nothing."""
HEADERS = re.compile(
    r"(?:std(?:int|def|bool|lib|io|align)|math|tgmath|string|float|limits|assert|complex|fenv|inttypes|omp|time|errno)\.h|"
    r"c(?:assert|complex|fenv|float|inttypes|limits|math|stddef|stdint|stdio|stdlib|string|time|errno)|"
    r"algorithm|any|array|atomic|barrier|bit|bitset|charconv|chrono|compare|complex|concepts|condition_variable|deque|"
    r"exception|execution|functional|future|initializer_list|iomanip|ios|iosfwd|iostream|istream|iterator|latch|limits|"
    r"list|map|memory|memory_resource|mutex|new|numbers|numeric|optional|ostream|queue|random|ranges|ratio|semaphore|set|"
    r"shared_mutex|span|sstream|stack|stdexcept|stop_token|string|string_view|system_error|thread|tuple|type_traits|"
    r"typeinfo|unordered_map|unordered_set|utility|valarray|variant|vector|version|"
    r"[a-z0-9]*intrin\.h|arm_(?:neon|sve|fp16|bf16|acle)\.h|"
    r"(?:torch|ATen|c10|cub|thrust|cuda|cute|cutlass|nv|cooperative_groups)/(?!.*\.\.)[\w/.-]+|"
    r"(?:cuda|cublas|curand|nccl|nvtx|cooperative_groups|mma|vector_types|device_launch_parameters|math_constants)\w*\.h"
)
"""Headers for computing, of the language, of processors and devices, and of PyTorch: none declares more than the names
above would tell."""
WHERE = r"(?<![\w.])(?<!->)"
"""Not a method or field of something: `tensor.clone()` is no system call."""
RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"{WHERE}(?<!at::)(?<!torch::)(?:{'|'.join((*RUNS, *LOADS_OBJECTS, *OPENS))})\b"), ""),
    (re.compile(rf"{WHERE}(?:{'|'.join(OPENS_CALLED)})\s*[(<&]"), ""),
    (re.compile(r"\b_?Py(?:[A-Z][A-Za-z]*)?_\w+|\bPyObject\b|\bpy(?:bind11)?::|\bPYBIND11?_\w+"), "the interpreter"),
    (re.compile(r"\b(?:std::)?filesystem::|std::filesystem|fstream\b|\bfilebuf\b"), "files"),
    (re.compile(r"\b_*asm_*\b"), "assembler, by which any name can be called"),
    (re.compile(r"##|%:|\?\?[=/]"), "pasted words, by which a name can be made of parts"),
    (re.compile(r"\b_*(?:constructor|destructor|init_priority)_*\b"), "code that runs when it is loaded"),
    (re.compile(r"\b_*(?:ifunc|weakref|symver|redefine_extname)_*\b|\b_*alias_*\s*\(|\bpragma\s+weak\b"),
     "another name for a function"),
    (re.compile(r"\b_*section_*\s*\(|\.(?:pre)?(?:init|fini)_array|\.[cd]tors\b"), "a section of its own"),
    (re.compile(r"(?:#\s*|\b__has_)(?:embed|import)\b"), "what a file holds"),
)  # fmt: skip
"""A pattern, and what is said of it besides what was found."""
INCLUDE = re.compile(r"#\s*include(?:_next)?\b[ \t]*([^\n]*)")
LITERALS = re.compile(
    r'(?<!\w)(?:u8|[LuU])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'\\?.\'|'
    r"(?P<comment>//[^\n]*|/\*.*?\*/)",
    re.DOTALL,
)
"""Texts, characters and comments: what looks like the beginning of one inside of another is none."""
SPLICED = re.compile(r"(?:[^\n]*?\\[ \t\v\f]*\r?\n)+[^\n]*")
SPLICE = re.compile(r"\\[ \t\v\f]*\r?\n")
COMPILER_FLAG = re.compile(
    r"-(?:include|imacros|fplugin|specs|wrapper|[BxT]|W[lap],|X(?:linker|assembler|compiler))|@[\w/.]"
)
"""Beginnings of a compiler's options that run programs, read files or give names other meanings."""


def native_findings(text: str) -> Iterator[tuple[int, str]]:
    """What a text of C++ does more than compute: line of the text, from 0, and what it is."""
    code = as_compiled(text)
    for pattern, what in RULES:
        for match in pattern.finditer(code):
            found = match[0].strip(" (<&\n")
            yield code.count("\n", 0, match.start()), f"{found}: {what}" if what else found
    for match in INCLUDE.finditer(code):
        header = re.split(r"//|/\*", match[1])[0].strip()
        if not (header.startswith("<") and header.endswith(">") and HEADERS.fullmatch(header[1:-1].strip())):
            yield code.count("\n", 0, match.start()), f"#include {header[:80]}, which is no header for computing"


def as_compiled(text: str) -> str:
    """Without comments, and with lines that end in a backslash joined: half a word and the other half below are one.
    What has such lines keeps its comments: a backslash can also hide where one begins. Lines keep their numbers."""
    if not SPLICE.search(text):
        return LITERALS.sub(without_comment, text)
    return SPLICED.sub(lambda match: SPLICE.sub("", match[0]) + "\n" * len(SPLICE.findall(match[0])), text)


def without_comment(match: re.Match[str]) -> str:
    """A comment as what it is to a compiler, a space, with its lines kept."""
    return " " + "\n" * match[0].count("\n") if match["comment"] else match[0]


def refused_symbol(name: str, *, triton: bool = False) -> str:
    """Why no object may ask the loader for a name; empty for one that it may. `triton`: of a launcher of Triton's: it
    is an extension of the interpreter and finds the driver's library itself."""
    if name in REFUSED or STREAMS.match(name):
        return "" if triton and name in ("dlopen", "dlsym", "dlclose") else "it does more than compute"
    if PYTHON.fullmatch(name) and not PYTHON_VALUES.fullmatch(name):
        return "" if triton and not RUNS_PYTHON.match(name) else "it reaches into the interpreter"
    return ""


RUNS_PYTHON = re.compile(
    r"Py(?:Run|Import|Marshal|Code|Interpreter\w*|Frame)_|PyEval_(?:Eval|Call|Get|Set)|Py_(?:Compile|Run|Main|New|Bytes)|"
    r"PySys_|PyThreadState_"
)
