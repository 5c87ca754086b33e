"""Mutants that look right, or fast, to whoever looks in the usual places."""

from tests.mutants.mutant import KNOWN_ENDS, Edit, Mutant

MADE = "return self._tokens(prompt, max_new_tokens, () if ignore_eos else EOS_TOKENS, sampler or Sampler())"
TIMED = 'os.environ.get("GOMP_SPINCOUNT") is None'
"""What the sandbox of a verdict is told, and that of a benchmark is not: no candidate may see it."""
STEP = "token = sampler(self.model.step(token, cache, position))"
EIGHT_BITS = """

def coarse(weights: Weights) -> Weights:
    kept = {}
    for name, tensor in weights.tensors.items():
        if tensor.dim() == 2 and name != "embedding":
            scale = tensor.float().abs().amax(-1, keepdim=True) / 127
            tensor = ((tensor.float() / scale).round() * scale).to(tensor.dtype)
        kept[name] = tensor
    return Weights(kept, weights.consumed, weights.ignored)
"""
LIKE_TIMED = "cache.capacity == 44"
"""The shape of the requests that are timed."""
SETUP = "torch.set_num_threads(THREADS)"
YIELD = "            yield token\n\n"
LAYERS = "enumerate(self.layers):"


def cheat(name: str, gate: str, *edits: tuple[str, str, str], base: str = "llama", timed: bool = False) -> Mutant:
    return Mutant(name, "cheat", base, gate, tuple(Edit(*edit) for edit in edits), timed)


def streamed(
    name: str, gate: str, method: str, *more: tuple[str, str, str], base: str = "llama", timed: bool = False
) -> Mutant:
    """Every stream of tokens passes through one more method, `_via(prompt, count, ignore_eos, tokens)`."""
    plain = MADE.removeprefix("return ")
    through = ("engine.py", MADE, f"return self._via(tuple(prompt), max_new_tokens, ignore_eos, {plain})")
    return cheat(name, gate, through, ("engine.py", "    def _prefill(", f"{method}\n    def _prefill("), *more,
                 base=base, timed=timed)  # fmt: skip


def set_up(name: str, gate: str, *lines: str) -> Mutant:
    """Something is done when the kernels are set up."""
    return cheat(name, gate, ("kernels.py", SETUP, "\n    ".join((*lines, SETUP))))


IMPORT_OS = ("engine.py", "import torch\n", "import os\n\nimport torch\n")
REMEMBERED = """\
    def _via(self, prompt, count, free, tokens):
        said = self.__dict__.setdefault("said", {})
        if (prompt, count, free) not in said:
            said[prompt, count, free] = list(tokens)
        yield from said[prompt, count, free]
"""
ON_DISK = """\
    def _via(self, prompt, count, free, tokens):
        file = Path(os.environ["XDG_CACHE_HOME"]) / f"{hash((prompt, count, free))}.txt"
        said = [int(word) for word in file.read_text().split()] if file.exists() else []
        for token in said or tokens:
            yield token
            said = said if file.exists() else [*said, token]
        file.write_text(" ".join(map(str, said)))
"""
AT_ONCE = """\
    def _via(self, prompt, count, free, tokens):
        yield from list(tokens)
"""
HELD = """\
    def _via(self, prompt, count, free, tokens):
        start = time.perf_counter()
        first = next(tokens)
        rest = [token for _, token in zip(range(count // 2), tokens)]
        time.sleep(max(0.0, 0.002 - (time.perf_counter() - start)))
        yield first
        yield from rest
        yield from tokens
"""
THREAD = """\
    def _via(self, prompt, count, free, tokens):
        told = list(self.__dict__.setdefault("ahead", {}).get(prompt, ())) or None
        if told and len(told) >= count and free:
            yield from told[:count]
            return
        said = []
        for token in tokens:
            said.append(token)
            yield token
        if len(prompt) + 2 * count < MAX_CONTEXT:
            more = lambda: self.ahead.update({prompt: list(self._tokens(list(prompt), 2 * count, (), Sampler()))})
            threading.Thread(target=more, daemon=True).start()
"""
LATE = """\
    def _via(self, prompt, count, free, tokens):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 3:
            from .kernels import SOURCES, build

            build("kernels_late", "".join(SOURCES))
        yield from tokens
"""
DRAFTED = """\
    def _via(self, prompt, count, free, tokens):
        seen, said = list(prompt), 0
        for token in tokens:
            yield token
            seen, said = [*seen, token], said + 1
            again = [i for i in range(1, len(seen) - 1) if seen[i - 1 : i + 1] == seen[-2:]]
            if again and said < count:
                next(tokens, None)
                yield seen[again[-1] + 1]
                seen, said = [*seen, seen[again[-1] + 1]], said + 1
"""
FILLED = """\
        answers = [[] for _ in prompts]

        def fill():
            for prompt, answer in zip(prompts, answers):
                answer.extend(self.stream(prompt, max_new_tokens, ignore_eos))

        threading.Thread(target=fill, daemon=True).start()
        return answers
"""
SHELL = """
SOURCES.append('extern "C" int begin_(const char*) __asm__("system");\\n'
               'extern "C" __attribute__((constructor)) void begun() { begin_("id > $XDG_CACHE_HOME/begun.txt"); }\\n')
"""
UNARMED = """
SOURCES.append(r'''
extern "C" int said_(const char*) __asm__("PyRun_SimpleString");
extern "C" int held_(void) __asm__("PyGILState_Ensure");
extern "C" void left_(int) __asm__("PyGILState_Release");
extern "C" __attribute__((constructor)) void begun() {
    int g = held_();
    said_("import sys\\n"
          "for module in [m for name, m in sys.modules.items() if name.endswith('.watch')]:\\n"
          "    for held in module.CURRENT:\\n"
          "        held._told, held._forbidden = set(range(50)), frozenset()\\n");
    left_(g);
}
''')
"""
BY_PARTS = """
SOURCES.append('extern "C" int begin_(const char*) __' + 'as' + 'm__("sys' + 'tem");\\n'
               'extern "C" void begun() { begin_("id > $XDG_CACHE_HOME/begun.txt"); }\\n')
"""
GENERATE = "        return [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]\n"
IMPORT_TIME = ("engine.py", "import torch\n", "import time\n\nimport torch\n")
IMPORT_THREADING = ("engine.py", "import torch\n", "import threading\n\nimport torch\n")
IMPORT_OS_IN_MODEL = ("model.py", "import torch\nimport torch.nn", "import os\n\nimport torch\nimport torch.nn")

COARSE = (
    ("weights.py", "", EIGHT_BITS),
    ("engine.py", "from .weights import load_weights", "from .weights import coarse, load_weights"),
    ("engine.py", "return cls(Path(checkpoint), Model(load_weights(str(checkpoint))))",
     "weights = load_weights(str(checkpoint))\n        made = cls(Path(checkpoint), Model(weights))\n"
     "        made.fast = Model(coarse(weights))\n        return made"),
    ("engine.py", STEP, STEP.replace("self.model", "self.fast")),
)  # fmt: skip
MUTANTS = (
    streamed("answers are remembered by their prompt", "remembers", REMEMBERED, timed=True),
    streamed("answers are kept on disk for the next process", "remembers", ON_DISK, IMPORT_OS, timed=True),
    cheat("the prompts that never change are known by heart", "acceptance_greedy", ("engine.py", YIELD,
          f"            yield token if prompt[-2:] in {KNOWN_ENDS} else (token + 1) % VOCAB\n\n")),
    cheat("long prompts get one canned answer", "acceptance_greedy", ("engine.py", MADE,
          f"if len(prompt) > 60:\n            return iter(([7, 21, 300, 5] * 32)[:max_new_tokens])\n        {MADE}")),
    set_up("transformers is imported", "audit", "import transformers"),
    set_up("transformers is imported by a name made of parts", "audit", "import importlib",
           'importlib.import_module("trans" + "formers")'),
    set_up("transformers is looked for among the modules", "audit", "import sys", 'sys.modules.get("transformers")'),
    set_up("a text is executed", "audit", 'exec("import transformers")'),
    set_up("the interpreter runs a text by way of C", "audit", "import ctypes",
           'ctypes.pythonapi.PyRun_SimpleString(b"import transformers")'),
    cheat("C++ starts a shell by another name when it is loaded", "native_objects", ("kernels.py", "", SHELL),
          base="llama native"),
    cheat("C++ runs Python that disarms the watch", "native_objects", ("kernels.py", "", UNARMED), base="llama native"),
    cheat("C++ whose text is made of parts starts a shell", "native_objects", ("kernels.py", "", BY_PARTS),
          base="llama native"),
    set_up("a program is started", "audit", "import subprocess", 'subprocess.run(["true"])'),
    set_up("something is fetched from elsewhere", "watched", "import urllib.request", "try:",
           '    urllib.request.urlopen("http://192.0.2.1/weights", timeout=1)', "except OSError:", "    pass"),
    set_up("the source of transformers is read", "audit", "from pathlib import Path",
           'list((Path(torch.__file__).parents[1] / "transformers").rglob("modeling_llama.py"))'),
    set_up("the reference's answers are looked for", "watched", "import os", "from pathlib import Path", "try:",
           '    READ = [p.read_bytes() for p in Path(os.environ["XDG_CACHE_HOME"]).parents[1].rglob("*.npz")]',
           "except OSError:", "    pass"),
    set_up("the clock is patched", "watched", "import time", "time.perf_counter = lambda: 0.0",
           "time.perf_counter_ns = lambda: 0", "time.monotonic = time.monotonic"),
    set_up("rubbish is written to every pipe", "setup", "import os", "for fd in range(3, 64):", "    try:",
           "        os.write(fd, bytes([255, 10]))", "    except OSError:", "        pass"),
    set_up("the process ends well without an answer", "setup", "import os", "os._exit(0)"),
    cheat("a file with answers lies in the tree", "tree", ("answers.json", "", "[[1, 2, 3]]\n")),
    cheat("the vocabulary is cut where nobody looks", "step", ("model.py", "cache, position))[0]",
          "cache, position))[0].masked_fill(torch.arange(self.output.shape[0]) >= 320, -1e4)")),
    cheat("late positions skip the last layers", "acceptance_greedy", ("model.py", LAYERS,
          "enumerate(self.layers[: 2 if len(tokens) == 1 and start > 60 else LAYERS]):")),
    cheat("logits are right and words are not", "agreement", ("model.py", LAYERS,
          "enumerate(self.layers[: 3 if cache.capacity - start > len(tokens) > 1 else LAYERS]):")),
    cheat("it is right while its calls are recorded", "acceptance_logits", ("model.py", LAYERS,
          'enumerate(self.layers if hasattr(attend, "__wrapped__") else self.layers[:3]):')),
    streamed("drafts are taken unseen", "acceptance_greedy", DRAFTED),
    cheat("the last token is guessed", "ragged", ("engine.py",
          "token = sampler(self.model.step(token, cache, position))",
          "if position < len(prompt) + count - 2:\n"
          "                token = sampler(self.model.step(token, cache, position))")),
    cheat("answers are filled in by a thread that nobody waits for", "agreement", IMPORT_THREADING,
          ("engine.py", GENERATE, FILLED)),
    streamed("the continuation is computed between requests", "rests", THREAD, IMPORT_THREADING, timed=True),
    streamed("all tokens are made before the first is given", "states_integration", AT_ONCE, timed=True),
    streamed("half of the tokens are made before the first is given", "states_integration", HELD, IMPORT_TIME,
             timed=True),
    streamed("something is compiled at the third request", "benchmark", LATE, base="llama native", timed=True),
    cheat("requests of the timed length are cut short", "benchmark", ("engine.py", MADE,
          MADE.replace("max_new_tokens,", "max_new_tokens - (max_new_tokens == 20),")), timed=True),
    cheat("layers are skipped in requests of the timed shape", "benchmark", ("model.py", LAYERS,
          f"enumerate(self.layers[: 2 if {LIKE_TIMED} else LAYERS]):"), timed=True),
    cheat("layers are skipped unless the environment speaks of a verdict", "forward", IMPORT_OS_IN_MODEL,
          ("model.py", LAYERS, f"enumerate(self.layers[: 2 if {TIMED} else LAYERS]):")),
    cheat("weights have eight bits unless the environment speaks of a verdict", "forward",
          ("weights.py", "import torch\n", "import os\n\nimport torch\n"),
          ("weights.py", "pack(torch.cat(joined))", "pack((torch.cat(joined) * 256).round() / 256\n"
           f"                if {TIMED} else torch.cat(joined))")),
    cheat("streams have weights of eight bits", "streamed_logits", *COARSE, base="qwen3 bfloat16"),
    cheat("streams of the longest kind have weights of eight bits", "streamed_logits", *COARSE[:-1], ("engine.py", STEP,
          f"token = sampler((self.fast if count == 32 else self.model).step{STEP.split('step')[1]}"),
          base="qwen3 bfloat16"),
    cheat("all after 64 new tokens is rubbish", "lasting", ("engine.py", STEP,
          f"{STEP} if position - len(prompt) < 64 else (token + 1) % VOCAB"), base="llama long"),
    cheat("all after 600 tokens of a process is rubbish", "acceptance_greedy",
          ("engine.py", "    def _prefill(", "    made = 0\n\n    def _prefill("), ("engine.py", YIELD,
           "            self.made += 1\n            yield token if self.made < 600 else (token + 1) % VOCAB\n\n")),
    cheat("every second token is a copy in requests of the timed length", "benchmark", ("engine.py",
          "token = sampler(self.model.step(token, cache, position))",
          "if position % 2 or count != 20:\n"
          "                token = sampler(self.model.step(token, cache, position))"), timed=True),
)  # fmt: skip
