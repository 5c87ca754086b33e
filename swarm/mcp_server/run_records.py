"""What the tools on runs are asked and what they answer."""

from ckb.facts import Frozen


class Generate(Frozen):
    target: str
    """A Target: a YAML file. `enginesmith init` drafts one; unknown keys are errors."""


class NamedRun(Frozen):
    run: str
    """Folder of the run, or its name below runs/."""


class NoArguments(Frozen):
    """Nothing to choose."""


class Begun(Frozen):
    run: str
    """Its name, for `run_status`."""
    folder: str
    log: str
    """File with what its driver says."""
    minutes: float
    """Most time that the Target's budget gives it."""


class RunLine(Frozen):
    run: str
    state: str
    """`not finished`, or how it ended."""
    candidates: int
    merged: int
    engine: str | None
    """Folder of the engine, below ENGINESMITH_HOME."""


class Runs(Frozen):
    runs: tuple[RunLine, ...]


class CandidateLine(Frozen):
    issue: str
    candidate: str
    state: str
    effect: float | None
    """Relative gain of the objective over the incumbent, positive is better; None where it was not measured."""
    why: str
    """Why it was kept or discarded, or what its author says of it."""


class RunStatus(Frozen):
    run: str
    state: str
    """`not finished`, or how it ended: accepted, ..."""
    driver: str
    """`at work` or how it ended, if this server started it; else `not known`."""
    now: str
    """What was being done last."""
    issues: dict[str, str]
    """Id -> title of each issue that is open."""
    candidates: tuple[CandidateLine, ...]
    summary: tuple[str, ...]
    """Benchmark, budget, violations, engine and end, a line each."""
    evidence: tuple[str, ...]
    """The file with the evidence of each verdict that rejected a candidate."""
    engine: str | None
    """Folder of the engine, below ENGINESMITH_HOME."""
    log: str | None
    """File with what its driver says, if it had no terminal."""


class ReportPage(Frozen):
    path: str
    """An HTML page that opens offline."""
