"""Real text in several languages, cut by a checkpoint's own tokenizer to exact token counts. No padding.

The texts (*.txt, one a language) were written for this project; see README.md in this folder.
"""

import random
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from ckb.errors import UserError

FOLDER = Path(__file__).parent
DRAWS = 200
"""How often a prompt is drawn again until it can be said as text."""
DESCRIPTION = "original prose in several languages, cut by the checkpoint's tokenizer to exact lengths, no padding"


def languages() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


def text(language: str) -> str:
    return (FOLDER / f"{language}.txt").read_text(encoding="utf-8")


@cache
def _codec(tokenizer_file: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tokenizer_file))


@cache
def _tokens(tokenizer_file: Path) -> tuple[tuple[int, ...], ...]:
    """Each language's text as tokens, without the special ones that a tokenizer adds at the ends."""
    tokenizer = _codec(tokenizer_file)
    return tuple(tuple(tokenizer.encode(text(name), add_special_tokens=False).ids) for name in languages())


def tokenizer(checkpoint: Path) -> Tokenizer:
    """The checkpoint's own, read once: its file has a hundred thousand entries. Raises UserError without one."""
    return _codec(_file(checkpoint))


def cut(checkpoint: Path, lengths: list[int], seed: int, *, through_text: bool = False) -> list[list[int]]:
    """One prompt a length. The language and the place where it starts are drawn from `seed`; a prompt that is longer
    than what is left of a text goes on in the next language's. `through_text`: it is drawn again until its text gives
    the same tokens, for those who take no token ids. Raises UserError without a tokenizer.json."""
    texts = [t for t in _tokens(_file(checkpoint)) if t]
    draw = random.Random(seed)
    first = draw.randrange(len(texts))
    found = []
    for i, length in enumerate(lengths):
        window = _window(texts, first + i, draw, length)
        tries = iter(range(DRAWS))
        while through_text and as_text(checkpoint, window) is None:
            if next(tries, None) is None:
                raise UserError(
                    f"none of {DRAWS} prompts of {length} tokens is what {checkpoint} makes of its own text"
                )
            window = _window(texts, first + i, draw, length)
        found.append(window)
    return found


def as_text(checkpoint: Path, tokens: list[int]) -> str | None:
    """The text that the checkpoint's tokenizer makes exactly these tokens of, or None: tokens that begin in the middle
    of a word or of a character have none."""
    codec = _codec(_file(checkpoint))
    text = str(codec.decode(tokens, skip_special_tokens=False))
    return text if codec.encode(text, add_special_tokens=False).ids == tokens else None


def _file(checkpoint: Path) -> Path:
    tokenizer_file = checkpoint / "tokenizer.json"
    if not tokenizer_file.is_file():
        raise UserError(f"{checkpoint} has no tokenizer.json; prompts are cut by the checkpoint's own tokenizer")
    return tokenizer_file.resolve()


def _window(texts: list[tuple[int, ...]], language: int, draw: random.Random, length: int) -> list[int]:
    tokens = texts[language % len(texts)]
    window = list(tokens[draw.randrange(len(tokens)) :])
    while len(window) < length:
        language += 1
        window += texts[language % len(texts)]
    return window[:length]
