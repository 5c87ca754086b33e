"""The wrong engines that the verifier is timed with: small edits of a composed tree, each a fault of another kind. Many
more are in tests/mutants, where no large model is needed for them."""

from benchmarks.verification.edits import Edit

H200: dict[str, Edit] = {
    "another theta": Edit("kernels.py", "1.0 / ROPE_THETA **", "1.0 / 1e4 **"),
    "gated values 1% too large": Edit("kernels.py", "return F.silu(gate) * up", "return F.silu(gate) * up * 1.01"),
    "queries one position late": Edit(
        "model.py", 'q, end = rope(rms_norm(q, layer["q_norm"]), start)',
        'q, end = rope(rms_norm(q, layer["q_norm"]), start + 1)',
    ),
    "every fifth position's values stay stale": Edit(
        "cache.py", "        self.v[layer, :, start:end] = ",
        "        if start % 5 or end - start > 1:\n            self.v[layer, :, start:end] = ",
    ),
    "gate and up exchanged": Edit("kernels.py", "gate, up = gate_up.chunk", "up, gate = gate_up.chunk"),
    "a fixed answer": Edit(
        "engine.py", "return [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]",
        "return [[11] * max_new_tokens for prompt in prompts]",
    ),
}  # fmt: skip
"""Of Qwen3's family."""
SMOLLM2: dict[str, Edit] = {
    "gated values 1% too large": H200["gated values 1% too large"],
    "queries one position late": Edit("model.py", "attention(rope(q, start), ", "attention(rope(q, start + 1), "),
    "prompts of more than 400 tokens lose their start": Edit(
        "engine.py", "        cache = KVCache(", "        prompt = prompt[-400:]\n        cache = KVCache("
    ),
}
"""Of Llama's family: one shows in the operators, one in the whole model, one in the acceptance alone."""
