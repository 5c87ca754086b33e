"""Right engines that are made in another way: none may be rejected."""

from itertools import product

from tests.mutants.mutant import Edit, Variant

ATTEND = "mixed = F.scaled_dot_product_attention(grouped, *cached, visible, is_causal=start == 0)"
LINEAR = "return F.linear(x, packed)"


def edit(name: str, *edits: tuple[str, str, str], base: str = "llama") -> Variant:
    return Variant(name, base, tuple(Edit(*one) for one in edits))


COMBINATIONS = (
    *(Variant(f"composed: {fusion}, {layout}", base, (), {"weight_fusion": fusion, "kv_layout": layout})
      for base, fusion, layout in (("llama", "fused", "head_major"), ("llama", "fused", "token_major"),
                                   ("llama", "separate", "token_major"), ("qwen3", "separate", "head_major"))),
    *(Variant(f"composed: {step} step, {linear} products, {attention} attention", "llama native", (),
              {"step": step, "linear": linear, "attention": attention})
      for step, linear, attention in product(("eager",), ("native", "torch"), ("native", "torch"))),
    Variant("composed: compiled step, torch attention", "llama native", (), {"attention": "torch"}),
    Variant("composed: compiled step, separate matrices, token-major, bfloat16", "qwen3 bfloat16", (),
            {"weight_fusion": "separate", "kv_layout": "token_major"}),
    Variant("composed: every operator alone, bfloat16", "qwen3 bfloat16", (),
            {"step": "eager", "linear": "torch", "attention": "torch"}),
    Variant("composed: eight streams of rows, no prefetch", "llama native", (),
            {"cpp-products.STREAMS": 8, "cpp-products.PREFETCH": 0}),
    Variant("composed: products of one vector alone in C++", "llama native", (),
            {"linear-native.FEW": 1, "linear-native.SHORT": 0}),
)  # fmt: skip

EDITED = (
    edit("sums in the other order", ("kernels.py", LINEAR, "return F.linear(x.flip(-1), packed.flip(-1))")),
    edit("products summed in float64", ("kernels.py", LINEAR,
         "return F.linear(x.double(), packed.double()).to(x.dtype)")),
    edit("products in two halves", ("kernels.py", LINEAR,
         "half = x.shape[-1] // 2\n"
         "    return F.linear(x[:, :half], packed[:, :half]) + F.linear(x[:, half:], packed[:, half:])")),
    edit("products of one row at a time", ("kernels.py", LINEAR,
         "return torch.stack([packed @ row for row in x])")),
    edit("attention written out", ("kernels.py", ATTEND,
         "keys_, values_ = cached\n"
         "    scores = (grouped @ keys_.transpose(-1, -2)) * HEAD_DIM**-0.5\n"
         "    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(start)\n"
         '    mixed = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ values_')),
    edit("attention over blocks of sixteen positions", ("kernels.py", ATTEND,
         "keys_, values_ = cached\n"
         '    top = torch.full(grouped.shape[:-1], float("-inf"))\n'
         "    total, mixed = torch.zeros_like(top), torch.zeros_like(grouped)\n"
         "    for at in range(0, start + len(q), 16):\n"
         "        scores = grouped @ keys_[..., at : at + 16, :].transpose(-1, -2) * HEAD_DIM**-0.5\n"
         "        late = torch.arange(at, at + scores.shape[-1]) > torch.arange(start, start + len(q))[:, None]\n"
         '        scores = scores.masked_fill(late, float("-inf"))\n'
         "        new = torch.maximum(top, scores.amax(-1))\n"
         "        old, weights = (top - new).exp(), (scores - new[..., None]).exp()\n"
         "        mixed = mixed * old[..., None] + weights @ values_[..., at : at + 16, :]\n"
         "        total, top = total * old + weights.sum(-1), new\n"
         "    mixed = mixed / total[..., None]")),
    edit("heads of keys repeated in memory", ("kernels.py", "t[:, None].expand(shape) for t in (keys, values)",
         "t[:, None].repeat(1, group, 1, 1) for t in (keys, values)")),
    edit("one head of attention at a time", ("kernels.py", ATTEND,
         "keys_, values_ = cached\n"
         "    mixed = torch.stack([F.scaled_dot_product_attention(grouped[h], keys_[h], values_[h], visible,\n"
         "                         is_causal=start == 0) for h in range(KV_HEADS)])")),
    edit("the norm of the library", ("kernels.py", "    wide = x.float()\n", "    return F.rms_norm(x, x.shape[-1:], "
         "weight, NORM_EPS)\n    wide = x.float()\n")),
    edit("the norm in float64", ("kernels.py", "wide = x.float()\n", "wide = x.double()\n"), base="qwen3"),
    edit("rotation by complex numbers", ("kernels.py", "    first, second = x.chunk(2, dim=-1)",
         "    turned = torch.complex(*x.chunk(2, dim=-1)) * torch.complex(cosine, sine)\n"
         "    return torch.cat((turned.real, turned.imag), dim=-1)\n    first, second = x.chunk(2, dim=-1)")),
    edit("angles in float64", ("kernels.py", "torch.arange(0, HEAD_DIM, 2).float()",
         "torch.arange(0, HEAD_DIM, 2).double()"), ("kernels.py", "torch.arange(MAX_CONTEXT).float()",
         "torch.arange(MAX_CONTEXT).double()")),
    edit("silu by a sigmoid", ("kernels.py", "F.silu(gate) * up", "gate * torch.sigmoid(gate) * up")),
    edit("the MLP in two halves", ("model.py", 'return linear(silu_mul(gate_up), layer["down"])',
         "gate, up = gate_up.chunk(2, -1)\n"
         "    half = gate.shape[-1] // 2\n"
         "    parts = (slice(0, half), slice(half, None))\n"
         "    joined = [silu_mul(torch.cat((gate[:, p], up[:, p]), -1)) for p in parts]\n"
         "    return sum(linear(x, layer[\"down\"][:, p]) for x, p in zip(joined, parts))")),
    edit("the head in pieces of the vocabulary", ("model.py", "return linear(hidden, self.output).float()",
         "return torch.cat([linear(hidden, part) for part in self.output.split(100)], -1).float()")),
    edit("logits as a sum of two halves in float64", ("model.py", "return linear(hidden, self.output).float()",
         "return linear(hidden.double(), self.output.double()).float()"), base="qwen3"),
    edit("lists in place of tuples", ("weights.py", '"down": ("mlp.down_proj",)', '"down": ["mlp.down_proj"]')),
    edit("prompts in chunks of seven", ("engine.py", "PREFILL_CHUNK = 1024", "PREFILL_CHUNK = 7")),
    edit("layers in a tuple, the residual in place", ("model.py", "            x = x + mlp(", "            x += mlp(")),
    edit("a cache with room to spare, kept between requests", ("engine.py", "cache = KVCache(len(prompt) + count)",
         "self.spare = getattr(self, 'spare', [])\n"
         "        cache = self.spare.pop() if self.spare else KVCache(MAX_CONTEXT)"),
         ("engine.py", "            yield token\n\n", "            yield token\n        self.spare.append(cache)\n\n")),
    edit("one tensor of the cache a layer", ("cache.py",
         "self.k, self.v = (torch.empty(LAYERS, KV_HEADS, capacity, HEAD_DIM, dtype=DTYPE) for _ in range(2))",
         "kept = [[torch.empty(KV_HEADS, capacity, HEAD_DIM, dtype=DTYPE) for _ in range(LAYERS)] for _ in range(2)]\n"
         "        self.k, self.v = kept"),
         ("cache.py", "return self.k.nbytes + self.v.nbytes", "return sum(t.nbytes for t in (*self.k, *self.v))"),
         ("cache.py", "self.k[layer, :, start:end]", "self.k[layer][:, start:end]"),
         ("cache.py", "self.v[layer, :, start:end]", "self.v[layer][:, start:end]"),
         ("cache.py", "return self.k[layer, :, :length]", "return self.k[layer][:, :length]"),
         ("cache.py", "return self.v[layer, :, :length]", "return self.v[layer][:, :length]")),
    edit("the largest logit by topk", ("sampler.py", "return int(logits.argmax())",
         "return int(logits.topk(1).indices[0])")),
    edit("prompts answered from the longest to the shortest, in their own order", ("engine.py",
         "return [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]",
         "order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))\n"
         "        said = {i: list(self.stream(prompts[i], max_new_tokens, ignore_eos)) for i in order}\n"
         "        return [said[i] for i in range(len(prompts))]")),
    edit("a list that those who wait stand in", ("scheduler.py", "self.waiting: deque[Request | None] = deque()",
         "self.waiting: list[Request | None] = []"), ("scheduler.py", "self.waiting.popleft()", "self.waiting.pop(0)")),
    edit("a draw by the distribution function", ("sampler.py",
         "tokens[torch.multinomial(chances, 1, generator=self.generator)]",
         "tokens[torch.searchsorted(chances.cumsum(0), chances.sum() * torch.rand(1, generator=self.generator))\n"
         "                   .clamp(max=int((chances > 0).sum()) - 1)]"),
         base="llama sampled"),
    edit("a draw by Gumbel's noise", ("sampler.py", "tokens[torch.multinomial(chances, 1, generator=self.generator)]",
         "tokens[(chances.log() - torch.empty_like(chances).exponential_(generator=self.generator).log()).argmax()]"),
         base="llama sampled"),
    edit("top_p of all tokens, then top_k", ("sampler.py",
         "        if self.top_k:\n"
         "            chances, tokens = chances[: self.top_k], tokens[: self.top_k]\n"
         "        above = chances.cumsum(0) - chances  # what lies above each token: the first always stays\n"
         "        chances = chances.where(above < self.top_p * chances.sum(), 0.0)\n",
         "        chances = chances.where(chances.cumsum(0) - chances < self.top_p, 0.0)[: self.top_k or None]\n"),
         base="llama sampled"),
    edit("C++: the softmax is summed in double", ("kernels.py", "float top = -INFINITY, sum = 0;\n    for (long t",
         "float top = -INFINITY;\n    double sum = 0;\n    for (long t"), base="llama native"),
    edit("C++: the gate is rounded once", ("kernels.py",
         "gate[i] = rounded(rounded(gate[i] / (1.0f + exponential(-gate[i]))) * up[i]);",
         "gate[i] = rounded(gate[i] / (1.0f + exponential(-gate[i])) * up[i]);"), base="qwen3 bfloat16"),
    edit("C++: the norm is rounded once", ("kernels.py", "rounded(w[i] * rounded(x[i] * scale))",
         "rounded(w[i] * x[i] * scale)"), base="qwen3 bfloat16"),
    edit("C++: one row of a product at a time", ("kernels.py",
         "constexpr long R = STREAMS * C <= 16 ? STREAMS : 16 / C;",
         "constexpr long R = 1;"), base="llama native"),
)  # fmt: skip

VARIANTS = (*COMBINATIONS, *EDITED)
