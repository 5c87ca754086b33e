"""What a verdict's gates found so far, in order; each piece of evidence is a file named by its hash."""

import json
from pathlib import Path

from ckb.hashing import sha256
from gpu_actors.gates.base import Finding
from gpu_actors.gates.evidence import Evidence, checked
from gpu_actors.jobs import EvidenceFile, GateResult, Level, VerifyJob


class Record:
    """The results so far."""

    def __init__(self, job: VerifyJob):
        self._job = job
        self.results: list[GateResult] = []
        self.found: dict[str, Finding] = {}
        """What each gate found, by its id."""

    @property
    def levels(self) -> set[Level]:
        return {result.level for result in self.results}

    @property
    def passed(self) -> bool:
        return all(result.status == "PASS" for result in self.results)

    def add(
        self,
        gate: str,
        level: Level,
        contract: str,
        finding: Finding,
        seconds: float,
        schema: type[Evidence] = Evidence,
    ) -> None:
        self.found[gate] = finding
        head = {"gate": gate, "tree": self._job.engine.tree, "status": finding.status, "summary": finding.summary}
        shown = finding.data if finding.blocked else checked(schema, finding.data)
        data = json.dumps(head | {"data": shown}, sort_keys=True).encode()
        evidence = EvidenceFile(sha256=sha256(data), what=f"{gate} on tree {self._job.engine.tree[:12]}")
        if self._job.evidence_dir:
            folder = Path(self._job.evidence_dir)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{evidence.sha256}.json").write_bytes(data)
        self.results.append(
            GateResult(
                gate=gate,
                level=level,
                contract=contract,
                status=finding.status,
                summary=finding.summary,
                seconds=seconds,
                evidence=(evidence,),
                blocked=finding.blocked,
                violations=finding.violations,
            )
        )
