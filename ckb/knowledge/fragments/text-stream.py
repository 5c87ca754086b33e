# ---
# contract: text-stream
# title: Whole characters, stop strings held back
# ---
import tokenizers
from tokenizers.decoders import DecodeStream


class TextStream:
    """The text of a growing sequence of tokens: whole characters only, and nothing from a stop string on."""

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = ()):
        self.codec: tokenizers.Tokenizer = tokenizer.codec
        self.decoder = DecodeStream(skip_special_tokens=True)
        self.stop = stop
        self.held = ""
        self.stopped = False

    def feed(self, token: int) -> str:
        """The text that is certain after one more token; sets `stopped` once a stop string is complete."""
        self.held += self.decoder.step(self.codec, token) or ""
        found = [at for text in self.stop if (at := self.held.find(text)) >= 0]
        if found:
            self.stopped, self.held = True, self.held[: min(found)]
            return self.end()
        lengths = (n for text in self.stop for n in range(1, len(text)) if self.held.endswith(text[:n]))
        return self._release(len(self.held) - max(lengths, default=0))

    def end(self) -> str:
        """What was held back."""
        return self._release(len(self.held))

    def _release(self, length: int) -> str:
        text, self.held = self.held[:length], self.held[length:]
        return text
