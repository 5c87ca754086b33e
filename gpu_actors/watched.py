"""The parent's end of a child's watch (drivers/watch.py): the rules it is given, and what it told."""

import json
import os
from dataclasses import dataclass, field
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


@dataclass
class Told:
    """What one child's watch has told so far."""

    fd: int
    violations: list[tuple[ViolationKind, str, int, str]] = field(default_factory=list)
    """Kind, file, line, what."""
    marks: set[str] = field(default_factory=set)
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
                self.marks.add(str(message["mark"]))
                return
            kind: ViolationKind = "read" if message["kind"] == "read" else "runtime"
            self.violations.append((kind, str(message["file"]), int(message["line"]), str(message["what"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            self.violations.append(("runtime", "", 0, f"wrote to the pipe of its watch: {line[:60]!r}"))

    def rows(self, candidate: str, gate: str) -> tuple[Violation, ...]:
        """The violations as rows, each once."""
        return tuple(
            Violation(candidate=candidate, gate=gate, kind=kind, file=file, line=line, what=what)
            for kind, file, line, what in dict.fromkeys(self.violations)
        )
