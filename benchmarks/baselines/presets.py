"""The servers that are known by name, as data, and what `--against` names.

Nothing but Hugging Face could be run where this was written: the other command lines follow the projects' published
documentation (pages read 2026-11-30), and each says which. A flag that a release no longer has shows in the server's
own last lines, with which every error about a server that does not come up ends; words after a preset's name are added
to its command line (`--against "vllm --gpu-memory-utilization 0.3"`), and any other command can be named whole.
"""

import shlex
import shutil
from collections.abc import Sequence
from itertools import count, pairwise
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.baselines.records import Baseline, Preset, Way
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
KEYS = ("checkpoint", "port", "dtype", "tensor_parallel", "context", "config")
"""What words of a command may hold in braces."""


def preset_of(baseline: Baseline) -> Preset:
    return PRESETS.get(baseline.preset, UNKNOWN)


def parse(text: str, *, tensor_parallel: int = 1) -> Baseline | None:
    """The server that `--against TEXT` names: a preset (words after it are added to its command), a URL (`#MODEL` names
    one of several models), or a command line with {port}. None: Hugging Face, which needs no server.

    Raises UserError for an unknown preset, a program that is not there, a command without {port}."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"--against {text!r}: {error}") from error
    if not words:
        raise UserError(f"--against is empty; name one of {names()}, a URL, or a command line with {{port}}")
    if words == [HUGGINGFACE_NAME]:
        return None
    if words[0].startswith(("http://", "https://")):
        return of_url(text)
    name = words[0]
    if name not in PRESETS and len(words) == 1:
        raise UserError(f"there is no baseline {text!r}; there are {names()}, a URL, or a command line with {{port}}")
    preset = PRESETS.get(name)
    words = with_words(name, preset, words[1:]) if preset else words
    if not any("{port}" in word for word in words):
        raise UserError(
            f"--against {text!r}: the command must say where its port goes, as {{port}}; we choose a free one"
        )
    found = shutil.which(words[0])
    if not found:
        raise UserError(
            f"--against {text!r}: there is no program {words[0]!r} on the PATH; install it or give its path"
        )
    command = (str(Path(found).absolute()), *words[1:])
    return Baseline(
        command=command, folder=str(Path.cwd()), preset=name if preset else "", tensor_parallel=tensor_parallel
    )


def with_words(name: str, preset: Preset, more: list[str]) -> list[str]:
    """The preset's command with words of the user's. Raises UserError for one that would undo what makes it fair."""
    fixed = {flag for flag, value in pairwise(preset.command) if flag.startswith("-") and "{" in value}
    if undone := [word for word in more if word.partition("=")[0] in fixed]:
        raise UserError(
            f"--against {name}: {undone[0]} follows the candidate here; name the whole command to set it yourself"
        )
    return [*preset.command, *more]


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
    (the script or module if that is Python), with a number where that is not enough."""
    found: list[str] = []
    for text in texts:
        first, *more = shlex.split(text)
        if Path(first).name.startswith("python") and more:
            first = more[1] if more[0] == "-m" and len(more) > 1 else more[0]
        name = urlsplit(first).netloc if first.startswith(("http://", "https://")) else Path(first).name
        numbered = (f"{name}-{number}" if number > 1 else name for number in count(1))
        found.append(next(each for each in numbered if each not in found and each not in taken))
    return found
