# ---
# contract: text-stream
# title: Whole characters, stop strings held back
# ---
from tokenizers.decoders import DecodeStream


class TextStream:
    """The text of a growing sequence of tokens: whole characters only, and nothing from a stop string on."""

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = ()):
        self.codec, self.decoder, self.tokens = tokenizer.codec, DecodeStream(skip_special_tokens=True), []
        self.stop, self.stopped, self.held, self.length = stop, False, "", 0

    def feed(self, token: int) -> str:
        """The text that is certain after one more token; sets `stopped` once a stop string is complete."""
        piece = self.decoder.step(self.codec, token) or ""
        self.tokens.append(token)
        self.held, self.length = self.held + piece, self.length + len(piece)
        ends = [at for text in self.stop if (at := self.held.find(text)) >= 0]
        if ends:
            self.stopped = True
            return self.held[: min(ends)]
        starts = [n for text in self.stop for n in range(1, len(text)) if self.held.endswith(text[:n])]
        certain = len(self.held) - max(starts, default=0)
        text, self.held = self.held[:certain], self.held[certain:]
        return text

    def end(self) -> str:
        """What was held back; a character that never became whole shows as U+FFFD."""
        return self.held + self.codec.decode(self.tokens, skip_special_tokens=True)[self.length :]
