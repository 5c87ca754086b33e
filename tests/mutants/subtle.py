"""Twelve of the smallest mistakes, made once more in an engine for SmolLM2-135M: what shows on random weights must show
on trained ones."""

from tests.mutants.mutant import Edit, Family, Mutant


def subtle(name: str, family: Family, gate: str, *edits: tuple[str, str, str]) -> Mutant:
    return Mutant(f"SmolLM2: {name}", family, "smollm2", gate, tuple(Edit(*edit) for edit in edits))


MUTANTS = (
    subtle("rotary base off by 1%", "arithmetic", "rope", ("kernels.py", "1.0 / ROPE_THETA **",
           "1.0 / (1.01 * ROPE_THETA) **")),
    subtle("rotary positions in bfloat16", "arithmetic", "rope", ("kernels.py", "torch.arange(MAX_CONTEXT).float()",
           "torch.arange(MAX_CONTEXT).bfloat16().float()")),
    subtle("eps x 10", "arithmetic", "rms_norm", ("kernels.py", "keepdim=True) + NORM_EPS)",
           "keepdim=True) + 10 * NORM_EPS)")),
    subtle("step: eps x 10", "arithmetic", "step", ("kernels.py", "sqrtf(sum / n + NORM_EPS)",
           "sqrtf(sum / n + 10 * NORM_EPS)")),
    subtle("step: scores 1% too large", "arithmetic", "attention", ("kernels.py",
           "scale = 1.0f / sqrtf((float)HEAD_DIM)", "scale = 1.01f / sqrtf((float)HEAD_DIM)")),
    subtle("step: a sigmoid of 1.01 x", "arithmetic", "step", ("kernels.py", "exponential(-gate[i])",
           "exponential(-1.01f * gate[i])")),
    subtle("step: an exponential that is off by 1e-3", "arithmetic", "attention", ("kernels.py",
           "1.6666665459e-1f, 0.5f", "1.6666665459e-1f, 0.499f")),
    subtle("step: the oldest position is not seen", "state", "step", ("kernels.py",
           "layer_keys + from, layer_values + from, token_stride, position + 1,",
           "layer_keys + from + (position > 0) * token_stride, layer_values + from + (position > 0) * token_stride,\n"
           "                       token_stride, position + !position,")),
    subtle("logits rounded to bfloat16", "arithmetic", "forward", ("model.py", "self.output).float()",
           "self.output).bfloat16().float()")),
    subtle("weights in eight bits by row", "loading", "linear", ("kernels.py",
           "return weight.to(PACKED_DTYPE, copy=True)",
           "scale = weight.float().abs().amax(-1, keepdim=True) / 127\n"
           "    return ((weight / scale).round() * scale).to(PACKED_DTYPE)")),
    subtle("one norm weight of 30 layers is off by 2%", "loading", "forward", ("weights.py",
           'tensors["head"] = load_head(source, tensors["embedding"])',
           'tensors["head"] = load_head(source, tensors["embedding"])\n'
           '    tensors["layers.17.post_norm"][7] *= 1.02')),
    subtle("prompts of more than 400 tokens lose their start", "scheduling", "acceptance_greedy", ("engine.py",
           "        cache = KVCache(", "        prompt = prompt[-400:]\n        cache = KVCache(")),
)  # fmt: skip
