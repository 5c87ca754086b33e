"""What the static audit looks for, by dotted names as they are after aliases are resolved (ckb.audit)."""

import re

ENGINE_LIBRARIES = frozenset({"torch", "safetensors", "tokenizers", "jinja2", "starlette", "uvicorn", "numpy"})
"""What every engine may stand on, besides the standard library."""
OURS = frozenset({"swarm", "roles", "ckb", "gpu_actors", "benchmarks", "enginesmith"})
SERVER_ONLY = frozenset({"subprocess", "socket", "socketserver"})
"""Modules that only server.py may import."""
SETTINGS = ("os.environ", "torch.backends", "torch._dynamo.config", "torch._inductor.config")
"""What of a library is there to be set by whoever uses it."""
PRIVATE = (
    *SETTINGS, "torch.ops", "torch.distributed._symmetric_memory", "torch.distributed._functional_collectives",
    *(f"torch._dynamo.{name}" for name in ("mark_dynamic", "mark_static", "mark_static_address", "reset", "disable")),
)  # fmt: skip
"""What of torch's private names an engine may use. Others compile and run texts, and nobody can list which."""
LOADS = (
    "builtins", "importlib.util", "importlib.machinery", "importlib.abc", "importlib.resources", "importlib.metadata",
    "importlib._bootstrap", "importlib._bootstrap_external", "imp", "runpy", "zipimport", "pkgutil", "pickle",
    "marshal", "shelve", "code", "codeop", "timeit", "pydoc", "doctest", "cProfile", "profile", "pdb", "bdb", "trace",
    "rlcompleter", "linecache", "inspect", "unittest", "logging.config", "posix", "site", "sysconfig", "ensurepip",
    "venv", "zipapp", "compileall", "py_compile", "idlelib", "lib2to3", "test", "webbrowser", "pty", "xmlrpc",
    "torch.hub", "torch.package", "torch.utils.model_zoo",
)  # fmt: skip
"""Modules that import by path or by a text, run what a text or data says, or tell where other packages lie."""
PROCESSES = ("multiprocessing", "torch.multiprocessing", "concurrent.futures.process", "asyncio.subprocess")
"""Modules whose processes start without the watch that an engine's own process has."""
EXECUTES = frozenset({
    "exec", "eval", "compile", "builtins.exec", "builtins.eval", "builtins.compile", "typing.get_type_hints",
    "typing.ForwardRef", "operator.methodcaller", "types.FunctionType", "types.CodeType", "types.ModuleType",
})  # fmt: skip
"""Runs a text, or builds what runs."""
NAMESPACES = frozenset({"globals", "locals", "vars"})
"""Give every name of a module by text: globals()["__builtins__"]."""
STARTS = (
    "os.system", "os.popen", "os.exec", "os.spawn", "os.posix_spawn", "os.fork", "os.startfile", "pty.spawn",
    "asyncio.create_subprocess", "concurrent.futures.ProcessPoolExecutor",
)  # fmt: skip
"""Beginnings of names that start another program or process."""
TAMPERS = frozenset({
    "sys.path", "sys.modules", "sys.meta_path", "sys.path_hooks", "sys.path_importer_cache", "sys.settrace",
    "sys.setprofile", "sys.addaudithook", "sys.monitoring", "sys._getframe", "sys._current_frames", "sys.prefix",
    "sys.base_prefix", "sys.exec_prefix", "sys.base_exec_prefix", "gc.get_objects", "gc.get_referrers",
    "gc.get_referents", "threading.settrace", "threading.setprofile", "importlib.reload", "os.chdir",
    "ctypes.pythonapi", "__builtins__", "__loader__", "__spec__", "builtins.__dict__",
})  # fmt: skip
"""Change, or give hold of, what an import finds; look into the watch; say where other packages lie."""
INSIDES = frozenset({
    "__globals__", "__builtins__", "__subclasses__", "__loader__", "__spec__", "__code__", "__self__", "f_globals",
    "f_builtins", "f_locals", "f_back", "gi_frame", "cr_frame", "ag_frame", "tb_frame", "__import__", "__path__",
    "from_address", "in_dll",
})  # fmt: skip
"""Attributes by which any object leads to every module."""
FILES_OF = ("__file__", "__dict__", "__cached__")
"""Attributes of a module that is not the engine's own: where it lies, and all its names by text."""
SENSITIVE = frozenset({"os", "sys", "importlib", "ctypes", "gc", "types", "builtins", "subprocess"})
"""Modules that must not be handed on as values: nothing would tell what is taken from them then."""
DYNAMIC = frozenset({"__import__", "builtins.__import__", "importlib.import_module", "importlib.__import__"})
CTYPES = re.compile(
    r"ctypes(?:\.(?:c_\w+|CDLL|PyDLL|WinDLL|OleDLL|pythonapi|(?:cdll|pydll)(?:\.\w+)?|POINTER|byref|sizeof|alignment|"
    r"addressof|Structure|Union|Array|get_errno|ArgumentError|RTLD_\w+)\b.*)?"
)
"""What of ctypes an engine may name: types, and the ways to load that are judged by themselves. The rest (memmove,
cast, CFUNCTYPE, string_at, ...) reads, writes and calls whatever address it is given."""
BY_NAME = ("ctypes.cdll.", "ctypes.pydll.")
"""`ctypes.cdll.name` and `ctypes.cdll[name]` load a shared object."""
NATIVE = frozenset(
    {f"ctypes.{name}" for name in ("CDLL", "PyDLL", "WinDLL", "OleDLL", "cdll.LoadLibrary", "pydll.LoadLibrary")}
    | {"torch.ops.load_library", "torch.classes.load_library"}
)
"""Load a shared object: never by a constant path, and never the process itself (None)."""
UNPICKLES = frozenset({"torch.load", "torch.serialization.load", "numpy.load", "np.load"})
"""Load data, and run what it says unless they are told not to: weights_only=True, allow_pickle=False or left out."""
LOADS_CODE = (
    "torch.jit.load", "torch.jit.CompilationUnit", "torch.export.load", "torch._inductor.aoti",
    "torch._export.aot_load", "torch.utils.cpp_extension.import_module",
    "torch.utils.cpp_extension._import_module_from_library",
    "multiprocessing.reduction", "torch.fx.",
)  # fmt: skip
"""Beginnings of names that load a program from a file."""
BUILDS = frozenset({"torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline"})
"""Compile what they are given, which must not be a constant path out of the engine."""
PACKAGES = ("site-packages", "dist-packages")
"""Words of a text that name where other packages lie."""
NATIVE_SOURCE = ("#include", 'extern "C"')
"""By this a text is known to be C or C++."""
COMPILED = frozenset({".so", ".pyd", ".pyc", ".pyo", ".dylib", ".dll", ".a", ".o", ".pth", ".zip", ".whl", ".egg"})
