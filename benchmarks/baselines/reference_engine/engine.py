"""Hugging Face behind an engine's interface: what the user's commands are tried on before any candidate exists.

It is copied into a folder of its own with DTYPE set, and the user's reference beside it as reference.py if there is
one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

DTYPE = torch.float32
REFERENCE = Path(__file__).with_name("reference.py")


class Text:
    """The checkpoint's tokenizer under an engine's names."""

    def __init__(self, checkpoint: Path):
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(checkpoint)

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False)]

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids))

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


class Engine:
    """Greedy decoding, one prompt after the other."""

    def __init__(self, checkpoint: Path, model: Any):
        self._checkpoint, self._model = checkpoint, model
        self.tokenizer = Text(checkpoint)

    @classmethod
    def load(cls, checkpoint: str | Path) -> "Engine":
        torch.set_grad_enabled(False)
        transformers.utils.logging.disable_progress_bar()
        return cls(Path(checkpoint), transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=DTYPE).eval())

    def generate(self, prompts: list[list[int]], max_new_tokens: int, ignore_eos: bool = False) -> list[list[int]]:
        if REFERENCE.exists():
            from .reference import generate  # type: ignore[import-not-found]

            return [[int(t) for t in tokens] for tokens in generate(str(self._checkpoint), prompts, max_new_tokens)]
        return [self._generate(prompt, max_new_tokens, ignore_eos) for prompt in prompts]

    def _generate(self, prompt: list[int], new_tokens: int, ignore_eos: bool) -> list[int]:
        ids = torch.tensor([prompt], dtype=torch.int64)
        ends = {"eos_token_id": None} if ignore_eos else {}
        found = self._model.generate(ids, do_sample=False, max_new_tokens=new_tokens, **ends)
        return [int(token) for token in found[0, len(prompt) :]]

    def stream(self, prompt: list[int], max_new_tokens: int, ignore_eos: bool = False) -> Iterator[int]:
        yield from self.generate([prompt], max_new_tokens, ignore_eos)[0]

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """[T, VOCAB] float32."""
        return self._model(torch.tensor([tokens], dtype=torch.int64)).logits[0].float()
