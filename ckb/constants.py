"""The constants that a fragment may ask for by name: facts of the Target, written at the top of a module."""

from ckb.errors import UserError
from ckb.facts import Facts

CONSTANTS = {
    "LAYERS": "model.layers",
    "HIDDEN": "model.hidden",
    "INTERMEDIATE": "model.intermediate",
    "HEADS": "model.heads",
    "KV_HEADS": "model.kv_heads",
    "HEAD_DIM": "model.head_dim",
    "VOCAB": "model.vocab",
    "MAX_POSITIONS": "model.max_positions",
    "NORM_EPS": "model.norm_eps",
    "ROPE_THETA": "model.rope_theta",
    "BOS_TOKEN": "model.bos_token",
    "EOS_TOKENS": "model.eos_tokens",
    "THREADS": "platform.cores",
    "MAX_CONTEXT": "workload.max_context",
    "DTYPE": "workload.dtype",
    "WEIGHT_DTYPE": "model.weights",
}
"""Constant -> the fact that it is. The last two are written as dtypes of torch."""
WEIGHT_DTYPES = {"bf16": "torch.bfloat16", "fp32": "torch.float32"}


def constants(facts: Facts) -> dict[str, str]:
    """Name -> Python expression of its value, for every constant that a fragment can list in `constants:`."""
    values = {name: repr(facts.lookup(fact)) for name, fact in CONSTANTS.items()}
    weights = facts.model.weights
    return values | {
        "DTYPE": f"torch.{facts.workload.dtype}",
        "WEIGHT_DTYPE": WEIGHT_DTYPES.get(weights, repr(weights)),
    }


def constant(name: str, facts: Facts) -> str:
    """The expression of one constant. Raises UserError for a name that no fact gives."""
    known = constants(facts)
    if name not in known:
        raise UserError(f"no fact gives the constant {name!r}; known are {', '.join(sorted(known))}")
    return known[name]
