"""Mutants that compute rightly with weights that are not the checkpoint's."""

from tests.mutants.mutant import Edit, Mutant

PACK = "pack(torch.cat(joined))"
END = 'tensors["head"] = load_head(source, tensors["embedding"])'


def wrong(name: str, gate: str, *edits: tuple[str, str, str], base: str = "llama") -> Mutant:
    return Mutant(name, "loading", base, gate, tuple(Edit(*edit) for edit in edits))


def loaded(name: str, gate: str, line: str, base: str = "llama") -> Mutant:
    """Every tensor is taken as it should be; one line afterwards changes what is made of them."""
    return wrong(name, gate, ("weights.py", END, f"{END}\n    {line}"), base=base)


MUTANTS = (
    wrong("a square matrix is transposed", "forward", ("weights.py", PACK,
          'pack(torch.cat(joined).T.contiguous() if part == "o" else torch.cat(joined))')),
    wrong("gate and up swapped", "forward", ("weights.py", '"gate": ("mlp.gate_proj",)', '"gate": ("mlp.up_proj",)'),
          ("weights.py", '"up": ("mlp.up_proj",)', '"up": ("mlp.gate_proj",)')),
    wrong("gate and up joined the other way round", "forward",
          ("weights.py", '("mlp.gate_proj", "mlp.up_proj")', '("mlp.up_proj", "mlp.gate_proj")'), base="qwen3"),
    wrong("k and v joined the other way round", "forward", ("weights.py", '"self_attn.k_proj", "self_attn.v_proj")',
          '"self_attn.v_proj", "self_attn.k_proj")'), base="qwen3"),
    wrong("keys and values swapped", "forward",
          ("weights.py", '"k": ("self_attn.k_proj",)', '"k": ("self_attn.v_proj",)'),
          ("weights.py", '"v": ("self_attn.v_proj",)', '"v": ("self_attn.k_proj",)')),
    wrong("a matrix is ignored for that of the layer before", "weights",
          ("weights.py", '"lm_head.weight")', '"lm_head.weight", "layers.3.mlp.down_proj.weight")'),
          ("weights.py", "joined = [",
           'if (layer, part) == (3, "down"):\n'
           '                tensors["layers.3.down"] = tensors["layers.2.down"]\n'
           "                continue\n"
           "            joined = [")),
    loaded("a matrix of the layer before", "forward", 'tensors["layers.3.down"] = tensors["layers.2.down"]'),
    loaded("the norm of another layer", "forward", 'tensors["layers.3.input_norm"] = tensors["layers.2.input_norm"]'),
    loaded("k_norm of another layer", "forward", 'tensors["layers.1.k_norm"] = tensors["layers.0.k_norm"]', "qwen3"),
    loaded("the final norm is made anew", "forward", 'tensors["norm"] = torch.ones_like(tensors["norm"])'),
    loaded("one row of a matrix is zero", "forward", 'tensors["layers.2.v"][5] = 0'),
    loaded("the last row of the table is zero", "changed_weights", 'tensors["embedding"][-1] = 0', "qwen3"),
    loaded("one norm weight is off by 2%", "forward", 'tensors["layers.0.input_norm"][7] *= 1.02'),
    loaded("the rows of the table are one off", "forward",
           'tensors["embedding"] = torch.roll(tensors["embedding"], 1, 0)'),
    wrong("the table is the head though there is another one", "forward",
          ("weights.py", 'return pack(checkpoint.take("lm_head.weight", VOCAB, HIDDEN))',
           'checkpoint.take("lm_head.weight", VOCAB, HIDDEN)\n    return embedding'), base="qwen3"),
    wrong("the table is not the head though it should be", "forward", ("weights.py", "    return embedding",
          "    return pack(torch.randn(embedding.shape, generator=torch.Generator().manual_seed(1)))")),
    wrong("what is missing is made anew", "errors_model", ("weights.py",
          "        if name not in self.files or name in self.consumed:",
          "        if name not in self.files:\n            return torch.randn(shape)\n"
          "        if name not in self.files or name in self.consumed:")),
    wrong("what is unknown is passed over", "errors_model", ("weights.py", "if unknown := [name for name in left if",
          "if unknown := [name for name in left if False and")),
    wrong("a shape of as many elements is taken", "errors_model", ("weights.py", "if tuple(tensor.shape) != shape:",
          "if tensor.numel() != torch.Size(shape).numel():")),
    wrong("a tensor may be taken twice", "errors_model", ("weights.py", "or name in self.consumed:",
          "or name in self.consumed[:0]:")),
    wrong("a tensor is taken in the books alone", "weights", ("weights.py", "tuple(self.consumed), tuple(left))",
          "tuple(self.consumed)[:-1], tuple(left))")),
    wrong("weights through float16", "linear", ("kernels.py", "return weight.to(DTYPE, copy=True)",
          "return weight.half().to(DTYPE)")),
    wrong("weights through bfloat16", "linear", ("kernels.py", "return weight.to(DTYPE, copy=True)",
          "return weight.bfloat16().to(DTYPE)")),
    wrong("weights in eight bits by row", "linear", ("kernels.py", "return weight.to(DTYPE, copy=True)",
          "scale = weight.abs().amax(-1, keepdim=True) / 127\n"
          "    return ((weight / scale).round() * scale).to(DTYPE)")),
    wrong("weights in eight bits when the model is loaded", "forward", ("weights.py", PACK,
          "pack((torch.cat(joined) * 512).round() / 512)")),
    wrong("step: weights in eight bits by row", "linear", ("kernels.py", "return weight.to(PACKED_DTYPE, copy=True)",
          "scale = weight.float().abs().amax(-1, keepdim=True) / 127\n"
          "    return ((weight / scale).round() * scale).to(PACKED_DTYPE)"), base="qwen3 bfloat16"),
    wrong("step: the address of q for that of o", "step", ("model.py", "part[name].data_ptr() for name in LAYER_PARTS",
          'part["q" if name == "o" else name].data_ptr() for name in LAYER_PARTS'), base="llama native"),
    wrong("step: layers in the other order", "step", ("model.py", "for part in self.parts])",
          "for part in self.parts[::-1]])"), base="llama native"),
)  # fmt: skip
