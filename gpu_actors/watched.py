"""The parent's end of a child's watch (drivers/watch.py): the rules it is given, and what it told."""

import hashlib
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckb.audit_tables import ENGINE_LIBRARIES
from ckb.frameworks import OPERATOR_LIBRARIES
from ckb.violations import Violation, ViolationKind
from gpu_actors.confinement import Confinement, targets

SIZE = 1 << 20


def rules(forbidden: tuple[str, ...], confinement: Confinement) -> dict[str, Any] | None:
    """What a child's watch is told; None for a child that may import everything and runs no generated code."""
    if not forbidden:
        return None
    return {
        "forbidden": list(forbidden),
        # what torch.compile generates lies where the candidate may write, and imports triton whatever a Target lists
        "allowed": [*sorted(ENGINE_LIBRARIES), "triton", *confinement.operators, "driver"],
        "parts": [f"{name}.{part}" for name, parts in OPERATOR_LIBRARIES.items() for part in parts],
        "writable": [str(path) for path in confinement.write],
        "readable": [str(path) for data in (*confinement.read, *confinement.data) for path in (data, *targets(data))],
    }


def held(given: dict[str, Any], tree: str) -> str:
    """The digest of what a watch that was given these rules holds, with a tree opened (drivers/watch.py)."""
    state = {
        "rules": given,
        "forbidden": sorted(set(given["forbidden"])),
        "allowed": sorted(frozenset(given["allowed"]) - sys.stdlib_module_names - {Path(tree).name}),
        "parts": given["parts"],
        "changed": [],
    }
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Mark:
    """What a watch said of itself when it was asked."""

    state: str
    """Digest of what it holds."""
    tree: str
    """The candidate's folder; empty before it was opened."""


@dataclass
class Told:
    """What one child's watch has told so far."""

    fd: int
    violations: list[tuple[ViolationKind, str, int, str]] = field(default_factory=list)
    """Kind, file, line, what."""
    given: dict[str, Any] | None = None
    """The rules that the watch was given."""
    marks: dict[str, Mark] = field(default_factory=dict)
    """By the nonce that was asked for."""
    _rest: bytes = b""

    def read(self) -> None:
        """Takes in what lies in the pipe. Whoever writes something else to it tampers with the watch."""
        os.set_blocking(self.fd, False)
        while True:
            try:
                data = os.read(self.fd, SIZE)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines[:100]:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            if "mark" in message:
                self.marks[str(message["mark"])] = Mark(str(message["state"]), str(message["tree"]))
                return
            kind: ViolationKind = "read" if message["kind"] == "read" else "runtime"
            self.violations.append((kind, str(message["file"]), int(message["line"]), str(message["what"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            self.violations.append(("runtime", "", 0, f"wrote to the pipe of its watch: {line[:60]!r}"))

    def changed(self, nonce: str, tree: Path) -> str:
        """What became of the watch by its mark, in words; empty where it is as it was given, for this tree."""
        if (mark := self.marks.get(nonce)) is None:
            return "silenced its watch: a mark that was asked for did not arrive"
        if mark.tree not in ("", f"{tree.resolve()}/"):
            return f"changed its watch: it takes {mark.tree!r} for the candidate's tree"
        if self.given is not None and mark.state != held(self.given, mark.tree):
            return "changed its watch: what it forbids, allows or does is not what it was given"
        return ""

    def rows(self, candidate: str, gate: str) -> tuple[Violation, ...]:
        """The violations as rows, each once."""
        return tuple(
            Violation(candidate=candidate, gate=gate, kind=kind, file=file, line=line, what=what)
            for kind, file, line, what in dict.fromkeys(self.violations)
        )
