"""Hugging Face transformers on a checkpoint: greedy tokens, streamed or not, and teacher-forced logits in two dtypes.

Stand-alone: runs in a child process of its own (gpu_actors.child), as the reference and as the baseline.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from transformers.generation.streamers import BaseStreamer

MODELS: dict[str, Any] = {}


def load(checkpoint: str, dtype: str, threads: int, device: str) -> dict[str, Any]:
    """Loads the model in one dtype and keeps it under the dtype's name."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    transformers.utils.logging.set_verbosity_error()
    start = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype))
    model = model.to(device).eval()
    # EOS is ignored, and nothing of the checkpoint's sampling defaults may interfere with greedy decoding
    model.generation_config = transformers.GenerationConfig(pad_token_id=0, eos_token_id=None, do_sample=False)
    MODELS[dtype] = model
    return {"seconds": time.perf_counter() - start, "attention": model.config._attn_implementation}


def drop(dtype: str) -> dict[str, Any]:
    MODELS.pop(dtype, None)
    return {}


def as_input(model: Any, tokens: list[int]) -> torch.Tensor:
    return torch.tensor([tokens], dtype=torch.int64, device=model.device)


def options(ids: torch.Tensor, new_tokens: int) -> dict[str, Any]:
    return {"attention_mask": torch.ones_like(ids), "max_new_tokens": new_tokens, "use_cache": True}


def greedy(dtype: str, prompt: list[int], new_tokens: int) -> dict[str, Any]:
    ids = as_input(MODELS[dtype], prompt)
    found = MODELS[dtype].generate(ids, **options(ids, new_tokens))
    return {"tokens": found[0, len(prompt) :].tolist()}


class Tokens(BaseStreamer):  # type: ignore[misc]
    """Hands each new token over as `generate` makes it. The prompt comes first and is left out."""

    def __init__(self, prompt: int, emit: Callable[[int], None]):
        self._skip, self._emit = prompt, emit

    def put(self, value: torch.Tensor) -> None:
        tokens = value.reshape(-1).tolist()
        skipped = min(self._skip, len(tokens))
        self._skip -= skipped
        for token in tokens[skipped:]:
            self._emit(token)

    def end(self) -> None:
        pass


def stream(dtype: str, prompt: list[int], new_tokens: int, emit: Callable[[int], None]) -> dict[str, Any]:
    ids = as_input(MODELS[dtype], prompt)
    MODELS[dtype].generate(ids, **options(ids, new_tokens), streamer=Tokens(len(prompt), emit))
    return {}


def logits(dtype: str, tokens: list[int], positions: list[int]) -> dict[str, np.ndarray]:
    """`rows` [P, VOCAB]: teacher-forced logits of one sequence at some positions, as float32."""
    model = MODELS[dtype]
    where = torch.tensor(positions, dtype=torch.int64, device=model.device)
    found = model(as_input(model, tokens), logits_to_keep=where, use_cache=False).logits[0]
    return {"rows": found.to("cpu", torch.float32).numpy()}


def evaluate(
    dtype: str, oracle: str, tokens: list[int], positions: list[int], samples: list[int]
) -> dict[str, np.ndarray]:
    """Teacher-forced logits of one sequence in both dtypes, at some positions.

    By position of `positions` [P]: `best`, the reference's arg max; `error_max` and `error_rms` of the reference
    against the oracle; `top`, the oracle's largest logit; `following`, the oracle's logit of the token that comes
    next in the sequence. And `rows` [S, VOCAB], the oracle's logits at `samples`, which are among the positions.
    """
    where = torch.tensor(positions, dtype=torch.int64)
    ours, exact = (
        model(as_input(model, tokens), logits_to_keep=where.to(model.device), use_cache=False)
        .logits[0]
        .to("cpu", torch.float64)
        for model in (MODELS[dtype], MODELS[oracle])
    )
    error = ours - exact
    following = torch.tensor([*tokens, 0])[where + 1]
    kept = [positions.index(position) for position in samples]
    return {
        "best": ours.argmax(-1).numpy(),
        "error_max": error.abs().amax(-1).numpy(),
        "error_rms": error.square().mean(-1).sqrt().numpy(),
        "top": exact.amax(-1).numpy(),
        "following": exact.gather(1, following[:, None])[:, 0].numpy(),
        "rows": exact[kept].numpy(),
    }


OPERATIONS = {
    "load": load,
    "drop": drop,
    "greedy": greedy,
    "stream": stream,
    "logits": logits,
    "evaluate": evaluate,
}
