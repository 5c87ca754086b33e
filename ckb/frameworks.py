"""What is an inference framework, and what is a library of operators that an engine may call when its Target lists it.

A framework's model, scheduler, loader and cache code is what this project makes anew, so none of it may be imported,
read or copied in a run with sources off, whatever a Target lists. An operator library computes one step of a model on
tensors that it is given. Some operator libraries ship models or caches of their own beside their operators; those parts
are a framework's code too, and are named here.
"""

from collections.abc import Mapping

FRAMEWORKS = (
    "transformers", "accelerate", "peft", "optimum",
    "vllm", "sglang", "lmdeploy", "tensorrt_llm", "mlc_llm", "mlc_chat",
    "mlx_lm", "mlx_vlm", "mlx_llm",
    "llama_cpp", "ctransformers", "ctranslate2", "exllama", "exllamav2", "exllamav3",
    "text_generation_server", "lightllm", "aphrodite", "mii", "deepspeed", "ktransformers", "litgpt", "gpt_fast",
    "nanovllm", "minisgl", "mistral_inference", "llama_models", "fairseq", "megatron", "nemo", "torchtune", "unsloth",
    "transformer_lens", "x_transformers", "curated_transformers", "awq", "auto_gptq", "gptqmodel",
)  # fmt: skip
"""Packages by the name they are imported by: inference frameworks, and libraries of model code."""

OPERATOR_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "torch": (),
    "triton": (),
    "flash_attn": ("models", "modules", "utils.generation", "utils.pretrained"),
    "flash_attn_interface": (),
    "flash_attn_3": (),
    "flashinfer": (),
    "flash_mla": (),
    "deep_gemm": (),
    "sgl_kernel": (),
    "xformers": ("components", "factory"),
    "fla": ("models", "layers"),
    "causal_conv1d": (),
    "mamba_ssm": ("models", "modules", "utils.generation", "utils.hf"),
    "bitsandbytes": (),
    "torchao": ("_models",),
    "triton_kernels": (),
    "tilelang": (),
    "cutlass": (),
    "cupy": (),
    "numba": (),
    "aiter": ("models",),
    "mlx": (),
}
"""Operator library by the name it is imported by -> its submodules that are a framework's: models, caches, generation
loops. What is not listed here is no operator library that a Target can name. The parts stay readable in a sandbox, as
some of these libraries import them themselves: a candidate that asks for one is refused by the audit and by the watch
in its process."""


def framework_part(module: str) -> str | None:
    """The framework, or the part of an operator library that is one, to which a dotted name belongs; None if to none.

    "vllm.core" -> "vllm"; "flash_attn.models.llama" -> "flash_attn.models"; "flash_attn.bert_padding" -> None.
    """
    top = module.partition(".")[0]
    if top in FRAMEWORKS:
        return top
    inner = module[len(top) + 1 :]
    for part in OPERATOR_LIBRARIES.get(top, ()):
        if inner == part or inner.startswith(f"{part}."):
            return f"{top}.{part}"
    return None
