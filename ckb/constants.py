"""The constants that a fragment may ask for by name: facts of the Target, written at the top of a module."""

from ckb.errors import UserError
from ckb.facts import Facts


def constants(facts: Facts) -> dict[str, str]:
    """Name -> Python expression of its value, for every constant that a fragment can list in `constants:`."""
    m, p, w = facts.model, facts.platform, facts.workload
    values: dict[str, object] = {
        "LAYERS": m.layers,
        "HIDDEN": m.hidden,
        "INTERMEDIATE": m.intermediate,
        "HEADS": m.heads,
        "KV_HEADS": m.kv_heads,
        "HEAD_DIM": m.head_dim,
        "VOCAB": m.vocab,
        "MAX_POSITIONS": m.max_positions,
        "NORM_EPS": m.norm_eps,
        "ROPE_THETA": m.rope_theta,
        "BOS_TOKEN": m.bos_token,
        "EOS_TOKENS": m.eos_tokens,
        "THREADS": p.cores,
        "MAX_CONTEXT": w.max_context,
    }
    return {name: repr(value) for name, value in values.items()} | {
        "DTYPE": f"torch.{w.dtype}",
        "WEIGHT_DTYPE": {"bf16": "torch.bfloat16", "fp32": "torch.float32"}.get(m.weights, repr(m.weights)),
    }


def constant(name: str, facts: Facts) -> str:
    """The expression of one constant. Raises UserError for a name that no fact gives."""
    known = constants(facts)
    if name not in known:
        raise UserError(f"no fact gives the constant {name!r}; known are {', '.join(sorted(known))}")
    return known[name]
