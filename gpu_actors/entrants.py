"""The arms of a running benchmark: what is known of each, and how it is judged."""

from dataclasses import dataclass, field
from typing import Literal

from ckb.facts import Facts
from ckb.violations import Violation
from gpu_actors.arms import Runner
from gpu_actors.benchmark_jobs import ArmResult
from gpu_actors.child import ChildFailure
from gpu_actors.conduct import Conduct

Status = Literal["OK", "CRASHED", "TIMEOUT", "WRONG"]


@dataclass
class Entrant:
    """One arm while the run goes on."""

    name: str
    runner: Runner
    engine: bool
    conduct: Conduct
    status: Status = "OK"
    detail: str = ""
    load_s: float = 0.0
    said: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    """Group, prompt and tokens of each generation of the right length."""
    violations: tuple[Violation, ...] = ()
    not_judged: tuple[str, ...] = ()

    def look_at_the_watch(self) -> None:
        """An engine that behaved in its gates may try while it is timed what it must not."""
        told = self.runner.child.told
        told.read()
        self.violations = told.rows(self.name, "benchmark")
        if self.violations:
            self.status, self.detail = "WRONG", f"violation: {self.violations[0].what}"

    def look_at_its_conduct(self, facts: Facts, tokens: int) -> None:
        """`tokens`: of the longest sequence that was timed."""
        self.not_judged = self.conduct.not_judged(facts)
        if self.status == "OK" and (fault := self.conduct.fault(facts, tokens)):
            self.status, self.detail = "WRONG", fault

    def drop(self, failure: ChildFailure) -> None:
        self.status = "TIMEOUT" if failure.kind == "TIMEOUT" else "CRASHED"
        self.detail = f"{failure.kind}: {failure}"[:500]

    def result(self) -> ArmResult:
        return ArmResult(
            arm=self.name,
            status=self.status,
            detail=self.detail,
            load_s=self.load_s,
            peak_rss_bytes=self.runner.child.sandbox.peak_rss_bytes,
            violations=self.violations,
            not_judged=self.not_judged,
            setting=self.runner.setting,
            usage=self.conduct.usage,
        )
