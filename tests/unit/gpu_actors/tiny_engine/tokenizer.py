from pathlib import Path

import tokenizers


class Tokenizer:
    def __init__(self, folder: Path):
        self.codec = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        return self.codec.encode(text).ids

    def decode(self, ids: list[int]) -> str:
        return self.codec.decode(ids)

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        text = "".join(f"<{m['role']}>{m['content']}\n" for m in messages) + "<assistant>"
        return self.codec.encode(text, add_special_tokens=False).ids
