"""The servers that are known by name, as data, and what `--against` names.

Nothing but Hugging Face could be run where this was written: the other command lines follow the projects' published
documentation (pages read 2026-11-30), and each says which. A flag that a release no longer has shows in the server's
own last lines, with which every error about a server that does not come up ends; words after a preset's name are added
to its command line (`--against "vllm --gpu-memory-utilization 0.3"`) unless they would undo what makes it fair, a
program by its path is its preset (`--against /x/bin/vllm`), and any other command can be named whole.
"""

import shlex
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.baselines.records import Baseline, Preset, Way
from ckb.command_lines import words_of
from ckb.errors import UserError

HUGGINGFACE_NAME = "huggingface"
"""The baseline without a server: transformers' `generate` in a process of ours (huggingface.py)."""

VLLM = Preset(
    title="vLLM",
    # docs.vllm.ai, `vllm serve`. Half of the device's memory, since the candidate is loaded at the same time; of the
    # checkpoint's generation_config.json nothing is taken, since it may hold a repetition penalty.
    command=(
        *("vllm", "serve", "{checkpoint}", "--host", "127.0.0.1", "--port", "{port}", "--dtype", "{dtype}"),
        *("--max-model-len", "{context}", "--tensor-parallel-size", "{tensor_parallel}", "--seed", "0"),
        *("--no-enable-prefix-caching", "--generation-config", "vllm", "--gpu-memory-utilization", "0.5"),
    ),
    free=("--gpu-memory-utilization",),
    undoing=(
        *("--enable-prefix-caching", "--override-generation-config", "--config", "--model", "--hf-overrides"),
        *("-tp", "-pp", "--pipeline-parallel-size", "-dp", "--data-parallel-size", "--enable-expert-parallel", "-ep"),
        *("--quantization", "-q", "--kv-cache-dtype", "--compilation-config", "-cc", "-O", "--optimization-level"),
        "--no-enforce-eager",
    ),
    graph={"eager": ("--enforce-eager",), "graph": ()},
    accelerators=("cuda", "hip", "cpu"),
    ways=(
        Way(
            prompt="token ids",  # releases before 0.10.2 return none and leave the field alone: then usage counts
            body={"ignore_eos": True, "return_token_ids": True, "stream_options": {"include_usage": True}},
        ),
    ),
    notes=("prefix caching off, which is on by default",),
)
"""Not run here."""

SGLANG = Preset(
    title="SGLang",
    # docs.sglang.io, "Server Arguments" and "Sampling Parameters" (the native /generate)
    command=(
        *("python3", "-m", "sglang.launch_server", "--model-path", "{checkpoint}", "--host", "127.0.0.1"),
        *("--port", "{port}", "--dtype", "{dtype}", "--context-length", "{context}"),
        *("--tp-size", "{tensor_parallel}", "--random-seed", "0", "--disable-radix-cache"),
        *("--mem-fraction-static", "0.5"),
    ),
    free=("--mem-fraction-static",),
    undoing=(
        *(
            "--model",
            "--config",
            "--tp",
            "--tensor-parallel-size",
            "--pp-size",
            "--pipeline-parallel-size",
            "--dp-size",
        ),
        *("--dp", "--data-parallel-size", "--ep-size", "--ep", "--expert-parallel-size", "--sampling-defaults"),
        *("--quantization", "--kv-cache-dtype", "--json-model-override-args"),
    ),
    graph={"eager": ("--disable-cuda-graph",), "graph": ()},
    accelerators=("cuda", "hip", "cpu"),
    dialect="sglang",
    ways=(Way(prompt="token ids", body={"ignore_eos": True}),),
    version=("/get_server_info", "/server_info"),
    notes=("prefix caching off, which is on by default",),
)
"""Not run here."""

TENSORRT_LLM = Preset(
    title="TensorRT-LLM",
    # nvidia.github.io/TensorRT-LLM, `trtllm-serve` and TorchLlmArgs; dtype, block reuse and graphs have no flag
    command=(
        *("trtllm-serve", "{checkpoint}", "--host", "127.0.0.1", "--port", "{port}", "--backend", "pytorch"),
        *("--tp_size", "{tensor_parallel}", "--max_seq_len", "{context}", "--extra_llm_api_options", "{config}"),
    ),
    undoing=("--config", "--pp-size", "--ep-size", "--kv-cache-dtype"),
    graph={"eager": (), "graph": ()},
    config={
        "dtype": "{dtype}",
        "kv_cache_config": {"enable_block_reuse": False, "free_gpu_memory_fraction": 0.5},
    },
    graph_config={"eager": {"cuda_graph_config": None}, "graph": {}},
    accelerators=("cuda",),
    ways=(
        Way(prompt="token ids", body={"ignore_eos": True, "stream_options": {"include_usage": True}}),
        Way(prompt="text", body={"ignore_eos": True, "stream_options": {"include_usage": True}}),
    ),
    notes=("prefix caching (block reuse) off, which is on by default",),
)
"""Not run here."""

MLX_LM = Preset(
    title="mlx_lm",
    # the project's SERVER.md: prompts as text, no ignore_eos, ids among the log-probabilities. It has no flag for the
    # dtype (the checkpoint's), for graphs, or for more than one device.
    command=("mlx_lm.server", "--model", "{checkpoint}", "--host", "127.0.0.1", "--port", "{port}"),
    keeps_dtype=True,
    accelerators=("metal", "cuda", "cpu"),
    ways=(
        Way(prompt="text", body={"logprobs": 1, "stream_options": {"include_usage": True}}, logit_bias=True),
        Way(prompt="text", body={"stream_options": {"include_usage": True}}, logit_bias=True),
    ),
    ready="/v1/models",
    version=(),
    package="mlx-lm",
    notes=("its prompt cache can't be switched off: a prompt that begins like an earlier one is read faster",),
)
"""Not run here."""

UNKNOWN = Preset(
    title="an OpenAI-compatible server",
    command=("{command}",),
    accelerators=("cpu", "cuda", "hip", "metal"),
    ways=(
        Way(
            prompt="token ids",
            body={"ignore_eos": True, "return_token_ids": True, "stream_options": {"include_usage": True}},
        ),
        Way(prompt="token ids", body={"stream_options": {"include_usage": True}}),
        Way(prompt="text", body={"ignore_eos": True, "stream_options": {"include_usage": True}}),
        Way(prompt="text", body={"stream_options": {"include_usage": True}}),
        Way(prompt="text"),
    ),
    ready="/v1/models",
)
"""What is assumed of a command or a URL: the way that gives most is tried first."""

PRESETS = {"vllm": VLLM, "sglang": SGLANG, "tensorrt_llm": TENSORRT_LLM, "mlx_lm": MLX_LM}
OTHERS = "a URL, or a command line with {port}; the path of a preset's program names the preset too"
"""What `--against` takes beside names."""
KEYS = ("checkpoint", "port", "dtype", "tensor_parallel", "context", "config")
"""What words of a command may hold in braces."""


def preset_of(baseline: Baseline) -> Preset:
    return PRESETS.get(baseline.preset, UNKNOWN)


def parse(text: str, *, tensor_parallel: int = 1) -> Baseline | None:
    """The server that `--against TEXT` names: a preset, by its name or its program (words after it are added to its
    command), a URL (`#MODEL` names one of several models), or a command line with {port}. None: Hugging Face, which
    needs no server.

    Raises UserError for an unknown preset, a program that is not there, a command without {port}."""
    words = words_of(text, "--against", empty=f"name one of {names()}, {OTHERS}")
    if words == [HUGGINGFACE_NAME]:
        return None
    if words[0].startswith(("http://", "https://")):
        return of_url(text)
    named = any("{port}" in word for word in words)
    name, more = ("", words) if named else preset_and_words(words)
    if name:
        words = with_words(name, words[0], more)
    elif len(words) == 1:
        raise UserError(f"there is no baseline {text!r}; there are {names()}, {OTHERS}")
    elif not named:
        raise UserError(
            f"--against {text!r}: the command must say where its port goes, as {{port}}; we choose a free one"
        )
    found = shutil.which(words[0])
    if not found:
        raise UserError(
            f"--against {text!r}: there is no program {words[0]!r} on the PATH; install it or give its path"
        )
    command = (str(Path(found).absolute()), *words[1:])
    return Baseline(command=command, folder=str(Path.cwd()), preset=name, tensor_parallel=tensor_parallel)


def preset_and_words(words: list[str]) -> tuple[str, list[str]]:
    """The preset that a command line without {port} names, and what it adds: by the preset's name, or by its program
    wherever that lies, for a server of an environment of its own (/x/bin/vllm, /x/bin/python -m sglang.launch_server).
    "" for one that names none."""
    if words[0] in PRESETS:
        return words[0], words[1:]
    for name, preset in PRESETS.items():
        program, *rest = preset.launch
        if is_python(program):  # its module says which it is
            if is_python(words[0]) and words[1 : 1 + len(rest)] == rest:
                return name, words[1 + len(rest) :]
        elif Path(words[0]).name == program:
            return name, words[1 + len(rest) :] if words[1 : 1 + len(rest)] == rest else words[1:]
    return "", words


def is_python(program: str) -> bool:
    return Path(program).name.startswith("python")


def with_words(name: str, program: str, more: list[str]) -> list[str]:
    """The preset's command, of `program` unless that is its own name, with words of the user's. Raises UserError for
    one that would undo what makes it fair."""
    preset = PRESETS[name]
    if undone := [word for word in more if preset.undone(word)]:
        raise UserError(
            f"--against {name}: {undone[0]} would change how it follows the candidate here; name the whole command, "
            "with {port} in it, to set it yourself"
        )
    own, *rest = preset.command
    return [own if program == name else program, *rest, *more]


def of_url(text: str) -> Baseline:
    """A server that runs already. Raises UserError for an address that is none."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UserError(f"--against {text}: {error}") from error
    if not parts.hostname or parts.query or " " in text:
        raise UserError(f"--against {text}: a server's address is http://HOST:PORT/v1, with #MODEL if it has several")
    place = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    root = f"{parts.scheme}://{place}{f':{port}' if port else ''}{parts.path.rstrip('/').removesuffix('/v1')}"
    return Baseline(url=f"{root}/v1", model=parts.fragment)


def names() -> str:
    return ", ".join([HUGGINGFACE_NAME, *PRESETS])


def arm_names(texts: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """A short name for each, all different and none of `taken`: the preset's, the URL's host, or the command's program
    (the script or module if that is Python and named first), with a number where that is not enough."""
    found: list[str] = []
    for text in texts:
        first, *more = shlex.split(text)
        if is_python(first) and more:
            module = more[0] == "-m" and len(more) > 1
            first = more[1] if module else first if more[0].startswith("-") else more[0]
        name = urlsplit(first).netloc if first.startswith(("http://", "https://")) else Path(first).name
        numbered = (f"{name}-{number}" if number > 1 else name for number in count(1))
        found.append(next(each for each in numbered if each not in found and each not in taken))
    return found
