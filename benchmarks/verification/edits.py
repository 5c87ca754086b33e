"""Six wrong engines: small edits of a composed tree, each a fault of another kind that the gates must see."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ckb.errors import UserError


@dataclass(frozen=True)
class Edit:
    """A pattern in one module, and what stands in its place; a group may be kept by its number."""

    file: str
    pattern: str
    replacement: str


EDITS: dict[str, Edit] = {
    "another theta": Edit("kernels.py", r"(?m)^ROPE_THETA = .*$", "ROPE_THETA = 10000.0"),
    "gated values 1% too large": Edit("kernels.py", r"return F\.silu\(gate\) \* up", "return F.silu(gate) * up * 1.01"),
    "queries one position late": Edit(
        "model.py", r"(rope\((?:rms_norm\(q, layer\[.q_norm.\]\)|q), )start\)", r"\1start + 1)"
    ),
    "every fifth position's values stay stale": Edit(
        "cache.py", r"( +)(self\.v\[layer, :, start:end\] = )", r"\1if start % 5 or end - start > 1:\n\1    \2"
    ),
    "gate and up exchanged": Edit("kernels.py", r"gate, up = gate_up\.chunk", "up, gate = gate_up.chunk"),
    "a fixed answer": Edit(
        "engine.py",
        r"return \[list\(self\.stream\(.*\)\) for prompt in prompts\]",
        "return [[11] * max_new_tokens for prompt in prompts]",
    ),
}


def edited(files: Mapping[str, str], name: str) -> dict[str, str]:
    """The tree with one edit. Raises UserError where its place is not there, or twice."""
    edit = EDITS[name]
    text, count = re.subn(edit.pattern, edit.replacement, files[edit.file])
    if count != 1:
        raise UserError(f"{edit.file} has {count} places for the edit {name!r}; it must have one")
    return {**files, edit.file: text}
