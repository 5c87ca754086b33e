"""Mutants that keep what they should forget, or forget what they should keep."""

from tests.mutants.mutant import Edit, Mutant

CACHE = "cache = KVCache(len(prompt) + count)"


def wrong(name: str, gate: str, *edits: tuple[str, str, str], base: str = "llama") -> Mutant:
    return Mutant(name, "state", base, gate, tuple(Edit(*edit) for edit in edits))


MUTANTS = (
    wrong("rows overwritten one early", "kv_cache", ("cache.py", "end = start + len(k)",
          "start -= start > 0\n        end = start + len(k)")),
    wrong("values of later chunks are not kept", "kv_cache",
          ("cache.py", "self.v[layer, :, start:end] = v.transpose(0, 1)",
           "self.v[layer, :, start:end] = v.transpose(0, 1) if start == 0 else 0")),
    wrong("a row that was written is never overwritten", "kv_cache",
          ("cache.py", "self.k[layer, :, start:end] = k.transpose(0, 1)",
           "new = start >= getattr(self, 'length', {}).get(layer, 0)\n"
           "        self.length = {**getattr(self, 'length', {}), layer: end}\n"
           "        self.k[layer, :, start:end] = k.transpose(0, 1) if new else self.k[layer, :, start:end]")),
    wrong("the last two layers share their keys", "kv_cache",
          ("cache.py", "self.k[layer, :, start:end] = k", "self.k[min(layer, LAYERS - 2), :, start:end] = k")),
    wrong("keys of one position too many are shown", "kv_cache",
          ("cache.py", "return self.k[layer, :, :length]", "return self.k[layer, :, : length + 1]")),
    wrong("the capacity is not watched", "kv_cache_capacity", ("cache.py", "if end > self.capacity:",
          "if end > self.capacity + 8:")),
    wrong("a cache of zeros counts half its bytes", "kv_cache", ("cache.py", "self.k.nbytes + self.v.nbytes",
          "self.k.nbytes")),
    wrong("the step writes one position early", "step", ("model.py", "torch.tensor([token]), cache, position)",
          "torch.tensor([token]), cache, position - 1)")),
    wrong("the length does not grow while decoding", "agreement",
          ("engine.py", "self.model.step(token, cache, position)", "self.model.step(token, cache, len(prompt))")),
    wrong("every chunk but the first is rotated from zero", "forward",
          ("model.py", "cache.append(index, rope(k, start), v, start)",
           "cache.append(index, rope(k, start if len(k) == 1 else 0), v, start)")),
    wrong("step: values are stored one position early", "step",
          ("kernels.py", "store(layer_values + at + d,",
           "store(layer_values + at + d - (position > 0) * token_stride,"),
          base="llama native"),
    wrong("step: a position does not see itself", "step",
          ("kernels.py", "token_stride, position + 1,\n", "token_stride, position + !position,\n"),
          base="llama native"),
    wrong("step: the heads of a cache lie one position apart", "step",
          ("kernels.py", "const long from = h / GROUP * head_stride;",
           "const long from = h / GROUP * (head_stride - token_stride);"), base="llama native"),
    wrong("a prefix is reused for a prompt of the same length and first token", "sentinels",
          ("engine.py", CACHE, CACHE + "\n        key = (len(prompt), prompt[0])"),
          ("engine.py", "*_, hidden = self._prefill(prompt, cache)",
           "self.kept = getattr(self, 'kept', {})\n"
           "        if key in self.kept:\n"
           "            old, hidden = self.kept[key]\n"
           "            cache.k[:, :, : len(prompt)] = old.k[:, :, : len(prompt)]\n"
           "            cache.v[:, :, : len(prompt)] = old.v[:, :, : len(prompt)]\n"
           "        else:\n"
           "            *_, hidden = self._prefill(prompt, cache)\n"
           "            self.kept[key] = (cache, hidden)")),
    wrong("one cache for all streams that are open", "open_streams",
          ("engine.py", CACHE, "self.cache = cache = getattr(self, 'cache', None) or KVCache(MAX_CONTEXT)")),
    wrong("the cache of the last request is left when a shorter one comes", "ragged",
          ("engine.py", CACHE, "self.cache = getattr(self, 'cache', None) or KVCache(MAX_CONTEXT)\n"
           "        cache, self.longest = self.cache, max(getattr(self, 'longest', 0), len(prompt))"),
          ("engine.py", "self.model.step(token, cache, position)",
           "self.model.step(token, cache, position - len(prompt) + self.longest)"),
          ("engine.py", "range(len(prompt), len(prompt) + count - 1)",
           "range(len(prompt), min(len(prompt) + count - 1, MAX_CONTEXT - self.longest + len(prompt)))")),
    wrong("noise in the last bits", "determinism", ("kernels.py", "return F.linear(x, packed)",
          "return F.linear(x, packed) * (1 + 1e-6 * torch.randn(()))")),
    wrong("every 500th product of a process is off by 1%", "step_determinism",
          ("kernels.py", "return F.linear(x, packed)",
           "COUNT.append(0)\n    return F.linear(x, packed) * (1.01 if len(COUNT) % 500 == 0 else 1)"),
          ("kernels.py", "def linear(", "COUNT: list[int] = []\n\n\ndef linear(")),
    wrong("the weights drift with each request", "determinism",
          ("model.py", "return linear(hidden, self.output).float()",
           "self.output.mul_(1.0001)\n        return linear(hidden, self.output).float()")),
)  # fmt: skip
