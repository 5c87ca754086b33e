"""Real text in several languages, cut by a checkpoint's own tokenizer to exact token counts. No padding.

The texts (*.txt, one a language) were written for this project; see README.md in this folder.
"""

import random
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from ckb.errors import UserError

FOLDER = Path(__file__).parent
DESCRIPTION = "original prose in several languages, cut by the checkpoint's tokenizer to exact lengths, no padding"


def languages() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


def text(language: str) -> str:
    return (FOLDER / f"{language}.txt").read_text(encoding="utf-8")


@cache
def _tokens(tokenizer_file: Path) -> tuple[tuple[int, ...], ...]:
    """Each language's text as tokens, without the special ones that a tokenizer adds at the ends."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    return tuple(tuple(tokenizer.encode(text(name), add_special_tokens=False).ids) for name in languages())


def cut(checkpoint: Path, lengths: list[int], seed: int) -> list[list[int]]:
    """One prompt a length. The language and the place where it starts are drawn from `seed`; a prompt that is longer
    than what is left of a text goes on in the next language's. Raises UserError without a tokenizer.json."""
    tokenizer_file = checkpoint / "tokenizer.json"
    if not tokenizer_file.is_file():
        raise UserError(f"{checkpoint} has no tokenizer.json; prompts are cut by the checkpoint's own tokenizer")
    texts = [t for t in _tokens(tokenizer_file.resolve()) if t]
    draw = random.Random(seed)
    first = draw.randrange(len(texts))
    return [_window(texts, first + i, draw, length) for i, length in enumerate(lengths)]


def _window(texts: list[tuple[int, ...]], language: int, draw: random.Random, length: int) -> list[int]:
    tokens = texts[language % len(texts)]
    window = list(tokens[draw.randrange(len(tokens)) :])
    while len(window) < length:
        language += 1
        window += texts[language % len(texts)]
    return window[:length]
