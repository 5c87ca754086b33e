"""Mutants that compute something else."""

from tests.mutants.mutant import Edit, Mutant

ATTEND = "mixed = F.scaled_dot_product_attention(grouped, *cached, visible, is_causal=start == 0)"
ROTATED = "torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)"


def wrong(name: str, base: str, gate: str, *edits: tuple[str, str, str]) -> Mutant:
    return Mutant(name, "arithmetic", base, gate, tuple(Edit(*edit) for edit in edits))


def kernel(name: str, gate: str, old: str, new: str, base: str = "llama") -> Mutant:
    return wrong(name, base, gate, ("kernels.py", old, new))


def model(name: str, gate: str, old: str, new: str, base: str = "llama") -> Mutant:
    return wrong(name, base, gate, ("model.py", old, new))


def native(name: str, old: str, new: str, base: str = "llama native", gate: str = "step") -> Mutant:
    """In the C++ of the compiled step, or of the operators that it shares with prefill."""
    return wrong(name, base, gate, ("kernels.py", old, new))


MUTANTS = (
    kernel("rotary base of 10,000", "rope", "1.0 / ROPE_THETA **", "1.0 / 1e4 **"),
    kernel("rotary base off by 1%", "rope", "1.0 / ROPE_THETA **", "1.0 / (1.01 * ROPE_THETA) **"),
    kernel("rotary positions from one", "rope", "torch.arange(MAX_CONTEXT)", "torch.arange(1, MAX_CONTEXT + 1)"),
    kernel("rotary pairs interleaved", "rope", "first, second = x.chunk(2, dim=-1)",
           "first, second = x[..., 0::2], x[..., 1::2]"),
    kernel("rotated the other way", "rope", ROTATED,
           "torch.cat((first * cosine + second * sine, second * cosine - first * sine), dim=-1)"),
    kernel("rotary table in bfloat16", "rope", "return angles.cos().to(DTYPE), angles.sin().to(DTYPE)",
           "return angles.cos().bfloat16().to(DTYPE), angles.sin().bfloat16().to(DTYPE)"),
    kernel("rotary frequencies over half a head", "rope", ".float() / HEAD_DIM)", ".float() / (HEAD_DIM // 2))"),
    kernel("eps x 10", "rms_norm", "+ NORM_EPS)", "+ 10 * NORM_EPS)"),
    kernel("eps outside of the root", "rms_norm", "torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS)",
           "(1 / (wide.pow(2).mean(-1, keepdim=True).sqrt() + NORM_EPS))"),
    kernel("mean removed before the norm", "rms_norm", "wide = x.float()",
           "wide = x.float() - x.float().mean(-1, keepdim=True)"),
    kernel("(1 + w) for w", "rms_norm", "return weight * wide", "return (1 + weight) * wide"),
    kernel("products 1% too large", "linear", "return F.linear(x, packed)", "return 1.01 * F.linear(x, packed)"),
    kernel("products with float16 inputs", "linear", "return F.linear(x, packed)",
           "return F.linear(x.half(), packed.half()).to(x.dtype)"),
    kernel("products in bfloat16", "linear", "return F.linear(x, packed)",
           "return F.linear(x.bfloat16(), packed.bfloat16()).to(x.dtype)"),
    kernel("attention in bfloat16", "attention", ATTEND,
           "low = (t.bfloat16() for t in (grouped, *cached))\n"
           "    mixed = F.scaled_dot_product_attention(*low, visible, is_causal=start == 0).to(q.dtype)"),
    kernel("softmax in float16", "attention", ATTEND,
           "keys_, values_ = cached\n"
           "    scores = (grouped @ keys_.transpose(-1, -2)) * HEAD_DIM**-0.5\n"
           "    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(start)\n"
           "    mixed = scores.masked_fill(~seen, -65504.0).half().softmax(-1).to(q.dtype) @ values_"),
    kernel("scores 1% too large", "attention", "is_causal=start == 0)",
           "is_causal=start == 0, scale=1.01 * HEAD_DIM**-0.5)"),
    kernel("scores without a scale", "attention", "is_causal=start == 0)", "is_causal=start == 0, scale=1.0)"),
    kernel("query heads share keys crosswise", "attention",
           "q.view(len(q), KV_HEADS, group, HEAD_DIM).permute(1, 2, 0, 3)",
           "q.view(len(q), group, KV_HEADS, HEAD_DIM).permute(2, 1, 0, 3)"),
    kernel("a chunk sees one position ahead", "attention", ".tril(start) if start", ".tril(start + 1) if start"),
    kernel("a chunk does not see itself", "attention", ".tril(start) if start", ".tril(start - 1) if start"),
    kernel("a window of 64 positions", "attention", ".tril(start) if start", ".tril(start).triu(start - 63) if start"),
    kernel("no causal mask in the first chunk", "attention", "is_causal=start == 0)", "is_causal=False)"),
    kernel("gelu for silu", "silu_mul", "F.silu(gate) * up", "F.gelu(gate) * up"),
    kernel("gate and up the other way round", "silu_mul", "gate, up = gate_up.chunk", "up, gate = gate_up.chunk"),
    kernel("silu of the product", "silu_mul", "F.silu(gate) * up", "F.silu(gate * up)"),
    model("residual of attention missing", "forward", "x = x + attend(", "x = attend("),
    model("residual of the MLP missing", "forward", "x = x + mlp(", "x = mlp("),
    model("norm after attention", "forward", 'attend(layer, rms_norm(x, layer["input_norm"]), cache, index, start)',
          'rms_norm(attend(layer, x, cache, index, start), layer["input_norm"])'),
    model("the MLP takes the norm of attention", "forward", 'mlp(layer, rms_norm(x, layer["post_norm"]))',
          'mlp(layer, rms_norm(x, layer["input_norm"]))'),
    model("no final norm", "forward", "return rms_norm(x, self.norm)", "return x"),
    model("(1 + w) for w in the final norm", "forward", "return rms_norm(x, self.norm)",
          "return rms_norm(x, 1 + self.norm)"),
    model("logits rounded to bfloat16", "forward", "self.output).float()", "self.output).bfloat16().float()"),
    model("logits capped", "forward", "return linear(hidden, self.output).float()",
          "return 30 * torch.tanh(linear(hidden, self.output).float() / 30)"),
    model("queries one position late", "forward", "attention(rope(q, start), ", "attention(rope(q, start + 1), "),
    model("keys for values", "forward", "cache.values(index, end)", "cache.keys(index, end)"),
    model("q_norm missing", "forward", 'rope(rms_norm(q, layer["q_norm"]), start)', "rope(q, start)", "qwen3"),
    model("k_norm missing", "forward", 'rope(rms_norm(k, layer["k_norm"]), start)', "rope(k, start)", "qwen3"),
    model("q_norm and k_norm swapped", "forward", 'rms_norm(q, layer["q_norm"])', 'rms_norm(q, layer["k_norm"])',
          "qwen3"),
    model("heads normalised after the rotation", "forward", 'rope(rms_norm(q, layer["q_norm"]), start)',
          'rms_norm(rope(q, start), layer["q_norm"])', "qwen3"),
    native("step: eps x 10", "sqrtf(sum / n + NORM_EPS)", "sqrtf(sum / n + 10 * NORM_EPS)"),
    native("step: eps x 10, bfloat16", "sqrtf(sum / n + NORM_EPS)", "sqrtf(sum / n + 10 * NORM_EPS)",
           "qwen3 bfloat16"),
    native("step: scores 1% too large, bfloat16", "scale = 1.0f / sqrtf((float)HEAD_DIM)",
           "scale = 1.01f / sqrtf((float)HEAD_DIM)", "qwen3 bfloat16", gate="float32_model"),
    native("step: rounds towards zero, bfloat16", "(bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u",
           "bits & 0xffff0000u", "qwen3 bfloat16", gate="acceptance_greedy"),
    native("step: products 1% too large, bfloat16", "{ out[i] = rounded(y); }", "{ out[i] = rounded(1.01f * y); }",
           "qwen3 bfloat16", gate="float32_model"),
    native("step: heads of k not normalised, bfloat16", "ready(layer.k_norm, k + h * HEAD_DIM, cosine, sine);",
           "rotate(k + h * HEAD_DIM, cosine, sine);", "qwen3 bfloat16"),
    native("step: query heads share keys crosswise", "h / GROUP * head_stride", "h % KV_HEADS * head_stride"),
    native("step: rotated one position late", "cosine += position * HEAD_DIM / 2;",
           "cosine += (position + 1) * HEAD_DIM / 2;"),
    native("step: residual of the MLP missing", "add(layer.down,", "keep(layer.down,"),
    native("step: a sigmoid of 1.702 x", "exponential(-gate[i])", "exponential(-1.702f * gate[i])"),
    wrong("step: gate and up the other way round", "llama native", "step",
          ("kernels.py", "keep(layer.gate, INTERMEDIATE, HIDDEN, gate);",
           "keep(layer.gate, INTERMEDIATE, HIDDEN, up);"),
          ("kernels.py", "keep(layer.up, INTERMEDIATE, HIDDEN, up);", "keep(layer.up, INTERMEDIATE, HIDDEN, gate);")),
    native("step: an exponential that is off by 1e-3", "1.6666665459e-1f, 0.5f", "1.6666665459e-1f, 0.499f",
           gate="changed_weights"),
    native("one row in four of a product twice", "sink(n + r * part, c, y[r][c]);",
           "sink(n + r * part, c, n % 4 ? y[r][c] : 2 * y[r][c]);", gate="linear"),
)  # fmt: skip
