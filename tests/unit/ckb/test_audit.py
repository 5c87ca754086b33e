"""The zero-reference audit, as a table of sources and the lines that it must and must not name."""

from pathlib import Path

import pytest

from ckb.audit import Violation, imports_of, source_violations, violations
from ckb.audit_module import Import
from ckb.knowledge_files import KNOWLEDGE, read_fragment

FINE = {
    "settings of libraries": "import os, torch\ntorch.backends.cuda.matmul.allow_tf32 = False\nos.environ['A'] = 'b'",
    "attributes of its own objects": "import torch\nself.time = 1\nx = torch.ones(3)\nx[0] = 2\nstate.torch = 3",
    "what engines stand on": "import torch\nfrom safetensors import safe_open\nimport tokenizers, jinja2, numpy as np",
    "a listed operator library": "import triton\nimport triton.language as tl",
    "the standard library": "import os, re, json\nfrom pathlib import Path\nimport urllib.request",
    "its own modules": "from . import kernels\nfrom .cache import KVCache",
    "words that look like it": "import re\nre.compile('x')\nmodel.eval()\ntorch.compile(f)\nx = 'import vllm'  # vllm",
    "an import by a constant allowed name": "import importlib\nimportlib.import_module('json')",
    "a shared object that it built": "import ctypes\nctypes.CDLL(str(built))\nctypes.CDLL(str(folder / 'kernels.so'))",
    "functions of modules handed on": "import os, torch\nlist(map(os.path.exists, names))\ng = torch.compile(f)",
    "names like modules": "code = []\ncode.append(1)\nself.profile.run(x)\ntrace.inspect.go()\nsite = test.posix",
    "attributes of its own": "getattr(layer, name)(x)\nsetattr(self, name, value)\nself.__dict__.update(x)\nvars(self)",
    "its own file": "from pathlib import Path\nPath(__file__).parent",
    "what it may ask of a module": "import os, torch\ngetattr(os, 'sched_getaffinity', None)\nhasattr(torch, name)",
    "weights": "import torch, numpy as np\ntorch.load(f, weights_only=True)\nnp.load(f)",
    "settings of torch's insides": "import torch\ntorch._inductor.config.freezing = True\ntorch._int_mm(a, b)",
    "arguments of a kernel": "import ctypes\nctypes.c_void_p(a)\n(ctypes.c_float * 4)()\nctypes.byref(ctypes.c_int(1))",
    "arrays": "import numpy as np\nnp.load(f, allow_pickle=False)",
    "a kernel": "from torch.utils.cpp_extension import load_inline\nload_inline('k', SOURCE, build_directory=work)",
    "C++ that computes": "SOURCES.append('#include <vector>\\nextern void f(long n) { products(n); open_rows(n); }')",
    "garbage": "import gc\ngc.collect()\ngc.freeze()",
    "os without programs": "import os\nos.replace(a, b)\nos.environ.get('X')\nos.getpid()",
}
WRONG = {
    "a patched clock": ("import time\ntime.perf_counter = lambda: 0.0", 2, "gives time.perf_counter another value"),
    "a patched clock by another name": ("import time as t\nt.time, x = f, 1", 2, "gives time.time another value"),
    "a clock patched by its name": ("import time\nsetattr(time, 'sleep', f)", 2, "gives time.sleep another value"),
    "a patched method": ("from torch import Tensor\nTensor.argmax = f", 2, "gives torch.Tensor.argmax another value"),
    "a function taken away": ("import torch\ndel torch.allclose", 2, "gives torch.allclose another value"),
    "a counting method": ("import torch\ntorch.Tensor.calls += 1", 2, "gives torch.Tensor.calls another value"),
    "a module's namespace": ("import os\nos.path['join'] = f", 2, "gives os.path.join another value"),
    "a framework": ("import torch\nimport vllm", 2, "imports vllm: an inference framework"),
    "a part of a framework": ("from transformers.models.llama import x", 1, "imports transformers.models.llama: an"),
    "in a function": ("def f():\n    import sglang.srt as s", 2, "imports sglang.srt: an inference framework"),
    "second of a line": ("import os, lmdeploy", 1, "imports lmdeploy"),
    "tensorrt": ("import tensorrt_llm", 1, "imports tensorrt_llm"),
    "mlc": ("from mlc_llm import x", 1, "imports mlc_llm"),
    "ours": ("\nfrom ckb.facts import Facts", 2, "imports ckb.facts: an engine runs without Enginesmith"),
    "an unlisted library": ("import flash_attn", 1, "imports flash_attn, which the Target's operators do not list"),
    "above the engine": ("from ..other import x", 1, "imports ..other, which is outside of the engine"),
    "import_module": ("import importlib\n\nimportlib.import_module('vllm.core')", 3, "imports vllm.core"),
    "import_module by another name": ("from importlib import import_module as im\nim('vllm')", 2, "imports vllm"),
    "import_module of an alias": ("import importlib as i\ni.import_module('vllm')", 2, "imports vllm"),
    "__import__": ("x = __import__('vllm')", 1, "imports vllm"),
    "a computed name": ("import importlib\nimportlib.import_module('v' + 'llm')", 2, "other than with a constant name"),
    "__import__ of a variable": ("__import__(name)", 1, "uses __import__ other than with a constant"),
    "__import__ handed on": ("list(map(__import__, names))", 1, "uses __import__ other than with a constant"),
    "getattr": ("import importlib\ngetattr(importlib, 'import_module')('vllm')", 2, "imports vllm"),
    "exec": ("a = 1\nexec('import vllm')", 2, "uses exec"),
    "eval": ("eval(text)", 1, "uses eval"),
    "compile": ("compile(text, 'x', 'exec')", 1, "uses compile"),
    "exec by another name": ("run = exec\nrun(text)", 2, "uses exec"),
    "exec from builtins": ("from builtins import exec as run\nrun(text)", 2, "uses builtins.exec"),
    "builtins": ("import builtins", 1, "imports builtins, which can run code"),
    "__builtins__": ("__builtins__['exec'](text)", 1, "uses __builtins__"),
    "loading by path": ("import importlib.util", 1, "imports importlib.util, which can run code"),
    "loading by path, from": ("from importlib import machinery", 1, "imports importlib.machinery"),
    "runpy": ("from runpy import run_path", 1, "imports runpy"),
    "the import path": ("import sys\nsys.path.insert(0, '/x')", 2, "uses sys.path: it changes what an import finds"),
    "modules that are there": ("import sys\nsys.modules['x']", 2, "uses sys.modules"),
    "a library of the machine": ("import ctypes\nctypes.CDLL('/usr/lib/libvllm.so')", 2, "path with ctypes.CDLL"),
    "a library in a path": (
        "from ctypes import CDLL as C\nfrom pathlib import Path\nC(str(Path('x.so')))", 3, "by a constant path",
    ),
    "cdll": ("import ctypes\nctypes.cdll.LoadLibrary('x.so')", 2, "with ctypes.cdll.LoadLibrary"),
    "a keyword": ("import ctypes\nctypes.CDLL(name='x.so')", 2, "with ctypes.CDLL"),
    "cdll by an attribute": ("import ctypes\nctypes.cdll.libvllm", 2, "uses ctypes.cdll.libvllm: it loads a shared"),
    "cdll by an item": ("from ctypes import cdll as c\nc['libvllm.so']", 2, "it loads a shared object by its name"),
    "a text that is timed": ("from timeit import timeit\ntimeit('import vllm')", 1, "imports timeit, which can run"),
    "data that imports": ("import pickle\npickle.loads(data)", 1, "imports pickle, which can run code"),
    "a tower": ("-" * 100_000 + "1", 0, "nested too deep"),
    "a chain": ("a" + ".b" * 3_000, 0, "nested too deep"),
    "torch's loader": ("import torch\ntorch.ops.load_library('x.so')", 2, "with torch.ops.load_library"),
    "a program": ("import os\nos.system('ls')", 2, "uses os.system: it starts another program"),
    "a program, imported": ("from os import execv\nexecv('a', [])", 2, "uses os.execv"),
    "subprocess": ("import subprocess", 1, "imports subprocess, which only server.py may"),
    "socket": ("import socket", 1, "imports socket, which only server.py may"),
    "a part of an operator library": ("import flash_attn.models.gpt", 1, "flash_attn.models is a framework's part"),
    "a part, from": ("from flash_attn import models", 1, "flash_attn.models is a framework's part"),
    "a computed attribute": ("import os\ngetattr(os, 'sys' + 'tem')('ls')", 2, "getattr on a module other than with"),
    "a module through another": ("import torch\ntorch.hub.os.system('ls')", 2, "uses os.system"),
    "a module through a library": ("import torch\ntorch.importlib.import_module(n)", 2, "uses importlib.import_module"),
    "a module by another name": ("import sys\ns = sys\ns.modules['x']", 2, "hands on the module sys"),
    "a module in a list": ("import os\n[os][0].system('ls')", 2, "hands on the module os"),
    "a module as an argument": ("import os\nf(os)", 2, "hands on the module os"),
    "a module as a default": ("import sys\ndef f(s=sys): pass", 2, "hands on the module sys"),
    "a library by another name": ("import torch\nh = torch.hub\nh.load('a', 'b')", 3, "uses torch.hub.load"),
    "getattr handed on": ("import functools\nfunctools.reduce(getattr, names, x)", 2, "hands on getattr"),
    "methodcaller": ("import operator\noperator.methodcaller('system')(x)", 2, "uses operator.methodcaller"),
    "globals": ("globals()['__builtins__']['exec'](text)", 1, "uses globals()"),
    "vars": ("import sys\nvars(sys)['modules']", 2, "hands on the module sys"),
    "a module's names": ("import os\nos.__dict__['system']('ls')", 2, "uses os.__dict__"),
    "the loader": ("__loader__.load_module('x')", 1, "uses __loader__"),
    "the loader of another": ("import json\njson.__loader__.exec_module(x)", 2, "uses __loader__"),
    "the spec": ("import json\njson.__spec__.loader", 2, "uses __spec__"),
    "a function's globals": ("f.__globals__['x']", 1, "uses __globals__"),
    "a builtin's module": ("print.__self__.exec(text)", 1, "uses __self__"),
    "subclasses": ("f.__class__.__base__.__subclasses__()", 1, "uses __subclasses__"),
    "subclasses of a constant": ("().__class__.__base__.__subclasses__()", 1, "uses __subclasses__"),
    "a frame": ("import sys\nsys._getframe(1)", 2, "uses sys._getframe"),
    "a traceback's frame": ("error.__traceback__.tb_frame", 1, "uses tb_frame"),
    "all objects": ("import gc\ngc.get_objects()", 2, "uses gc.get_objects"),
    "where a library lies": ("import torch\nopen(torch.__file__)", 2, "uses torch.__file__"),
    "where packages lie": ("open('/usr/lib/python3/dist-packages/x.py')", 1, "names dist-packages"),
    "the search path": ("import sysconfig", 1, "imports sysconfig"),
    "resources": ("from importlib import resources", 1, "imports importlib.resources"),
    "metadata": ("import importlib.metadata", 1, "imports importlib.metadata"),
    "util without its import": ("import importlib\nimportlib.util.find_spec('x')", 2, "uses importlib.util.find_spec"),
    "an inside": ("import _posixsubprocess", 1, "an inside of the interpreter"),
    "posix": ("import posix", 1, "imports posix"),
    "all names": ("from os import *", 1, "imports all names of os"),
    "for another module": ("from os import system", 1, "uses os.system"),
    "processes": ("import torch.multiprocessing as mp", 1, "whose processes nothing watches"),
    "a pool": ("from concurrent.futures import ProcessPoolExecutor", 1, "it starts another program"),
    "a program, later": ("import asyncio\nasyncio.create_subprocess_exec('ls')", 2, "it starts another program"),
    "strings that are types": ("import typing\ntyping.get_type_hints(f)", 2, "uses typing.get_type_hints"),
    "logging's factories": ("import logging.config", 1, "imports logging.config"),
    "torch.hub": ("import torch\ntorch.hub.load('a/b', 'c')", 2, "uses torch.hub.load"),
    "torch.package": ("from torch import package", 1, "imports torch.package"),
    "torch.jit": ("import torch\ntorch.jit.load(f)", 2, "uses torch.jit.load"),
    "torch.export": ("import torch\ntorch.export.load(f)", 2, "uses torch.export.load"),
    "torch.load": ("import torch\ntorch.load(f)", 2, "without weights_only=True"),
    "torch.load of anything": ("import torch\ntorch.load(f, weights_only=flag)", 2, "without weights_only=True"),
    "numpy's pickles": ("import numpy as np\nnp.load(f, allow_pickle=True)", 2, "without allow_pickle=False"),
    "another folder's extension": (
        "import torch.utils.cpp_extension as c\nc.load('k', sources=['/opt/x.cpp'])", 2, "what lies outside of the",
    ),
    "an extension above": (
        "from torch.utils import cpp_extension\ncpp_extension.load(name='k', sources=['../x'])", 2, "outside of the",
    ),
    "the process itself": ("import ctypes\nctypes.CDLL(None)", 2, "opens its own process"),
    "the interpreter": ("import ctypes\nctypes.pythonapi.PyRun_SimpleString(b'x')", 2, "uses ctypes.pythonapi"),
    "C++ that runs Python": ("SOURCES.append('PyRun_SimpleString(text);')", 1, "its C++ uses PyRun_SimpleString"),
    "C++ that loads": ("X = '#include <dlfcn.h>\\nvoid f() { dlopen(name, 1); }'", 2, "its C++ uses dlopen"),
    "C++ that reads": ("X = '#include <x>\\nstd::ifstream in(p);'", 2, "its C++ uses"),
    "C++ that starts": ("X = '#include <x>\\nvoid f() { system(p); }'", 2, "its C++ uses system"),
    "an address that is called": ("import ctypes\nctypes.CFUNCTYPE(ctypes.c_int)(n)()", 2, "uses ctypes.CFUNCTYPE: it"),
    "an address that is written": ("from ctypes import memmove\nmemmove(a, b, 8)", 1, "uses ctypes.memmove: it"),
    "an address as a pointer": ("import ctypes as c\nc.cast(n, c.POINTER(c.c_int))", 2, "uses ctypes.cast: it"),
    "an address as a number": ("import ctypes\nctypes.c_long.from_address(n).value = 1", 2, "uses from_address"),
    "a text that torch runs": (
        "import torch\ntorch.fx.graph_module._exec_with_source(text, {})", 2, "uses torch.fx.graph_module._exec_with",
    ),
    "a text that torch runs, from": ("from torch.fx.graph_module import _exec_with_source as run", 1, "uses torch.fx."),
    "a module that torch writes": (
        "import torch._inductor.codecache as c\nc.PyCodeCache.load(text)", 2, "an inside of torch",
    ),
    "an option that runs a program": (
        "from torch.utils.cpp_extension import load_inline\nF = ['-wrapper', 'sh,-c,id']\n"
        "load_inline('k', S, extra_cflags=F)", 2, "gives its compiler '-wrapper'",
    ),
    "no Python": ("x = 1\ndef f(:", 2, "does not parse"),
    "a null byte": ("x = 1\0", 0, "does not parse"),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_what_engines_need_is_no_violation(name: str) -> None:
    assert source_violations(FINE[name], "kernels.py", ["triton"]) == []


@pytest.mark.parametrize("name", WRONG)
def test_each_violation_is_named_with_its_line(name: str) -> None:
    source, line, what = WRONG[name]
    found = source_violations(source, "kernels.py", ["triton"])
    assert any(v.line == line and what in v.what for v in found), found


def test_a_framework_stays_forbidden_when_a_target_lists_it() -> None:
    assert source_violations("import vllm", "kernels.py", ["vllm"])
    assert not source_violations("import flash_attn", "kernels.py", ["flash_attn"])


def test_the_server_may_open_sockets() -> None:
    assert source_violations("import socket\nimport subprocess", "server.py") == []


def test_imports_are_listed_in_the_order_of_their_lines() -> None:
    source = "import a.b as c, d\nfrom .e import f\nfrom . import g\n"
    source += "def h():\n    import importlib\n    importlib.import_module('i')\n    __import__('j')\n"
    assert imports_of(source) == [
        Import("a.b", 1), Import("d", 1), Import(".e", 2), Import(".", 3), Import("importlib", 5), Import("i", 6),
        Import("j", 7),
    ]  # fmt: skip


def test_a_tree_is_audited_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("import torch\nimport vllm\n")
    (tmp_path / "server.py").write_text("import socket\n")
    (tmp_path / "kernels.so").write_bytes(b"")
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "linked.py").symlink_to(tmp_path / "server.py")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/server.pyc").write_bytes(b"")
    assert violations(tmp_path) == [
        Violation("kernels.py", 2, "imports vllm: an inference framework"),
        Violation("kernels.so", 0, "is a .so file: an engine is Python source"),
        Violation("linked.py", 0, "is a link"),
    ]


def test_the_fragments_of_the_seed_are_clean() -> None:
    fragments = [read_fragment(path) for path in sorted((KNOWLEDGE / "fragments").glob("*.py"))]
    assert fragments
    for fragment in fragments:
        file = "server.py" if fragment.contract.startswith(("server", "serve", "api")) else "kernels.py"
        assert source_violations("\n".join([*fragment.imports, fragment.code]), file, ["triton"]) == [], fragment.id
