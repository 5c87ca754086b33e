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
BLOCK = 256
"""Positions whose logits are held at once."""


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


def hidden_states(model: Any, tokens: list[int]) -> torch.Tensor:
    """What the head is given, [T, HIDDEN]: logits of thousands of positions at once would not fit into memory.

    Raises RuntimeError for a model that does something to its logits behind the head.
    """
    held: list[torch.Tensor] = []
    hook = model.base_model.register_forward_hook(lambda _module, _inputs, outputs: held.append(outputs[0][0]))
    try:
        last = model(as_input(model, tokens), logits_to_keep=1, use_cache=False).logits[0]
    finally:
        hook.remove()
    (hidden,) = held
    if not torch.allclose(head(model, hidden[-1:]), last.to("cpu", torch.float64), rtol=1e-2, atol=1e-3):
        raise RuntimeError(f"{type(model).__name__} changes its logits after the head; no evaluation knows how")
    return hidden


def head(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Logits [M, VOCAB] as float64."""
    logits: torch.Tensor = model.get_output_embeddings()(hidden)
    return logits.to("cpu", torch.float64)


def evaluate(dtype: str, oracle: str, tokens: list[int], samples: list[int]) -> dict[str, np.ndarray]:
    """Teacher-forced logits of one sequence in both dtypes.

    By position [T]: `best` and `oracle_best`, the arg max of either; `error_max` and `error_rms` of the reference
    against the oracle; `top` and `second`, the oracle's two largest logits; `following`, the oracle's logit of the
    token that comes next in the sequence; `divergence`, KL(oracle || reference) in nats. And `rows` [S, VOCAB], the
    oracle's logits at `samples`.
    """
    ours, exact = (hidden_states(MODELS[name], tokens) for name in (dtype, oracle))
    after = torch.tensor([*tokens[1:], 0])
    found = []
    for start in range(0, len(tokens), BLOCK):
        where = slice(start, start + BLOCK)
        found.append(compared(head(MODELS[dtype], ours[where]), head(MODELS[oracle], exact[where]), after[where]))
    rows = head(MODELS[oracle], exact[torch.tensor(samples, dtype=torch.int64)]).numpy()
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]} | {"rows": rows}


def compared(ours: torch.Tensor, exact: torch.Tensor, after: torch.Tensor) -> dict[str, np.ndarray]:
    """What `evaluate` says of some positions, from logits [M, VOCAB] and the token after each of them [M]."""
    error = ours - exact
    likely = exact.log_softmax(-1)
    largest = exact.topk(2).values
    found = {
        "best": ours.argmax(-1),
        "oracle_best": exact.argmax(-1),
        "error_max": error.abs().amax(-1),
        "error_rms": error.square().mean(-1).sqrt(),
        "top": largest[:, 0],
        "second": largest[:, 1],
        "following": exact.gather(1, after[:, None])[:, 0],
        "divergence": (likely.exp() * (likely - ours.log_softmax(-1))).sum(-1),
    }
    return {name: value.numpy() for name, value in found.items()}


OPERATIONS = {
    "load": load,
    "drop": drop,
    "greedy": greedy,
    "stream": stream,
    "logits": logits,
    "evaluate": evaluate,
}
