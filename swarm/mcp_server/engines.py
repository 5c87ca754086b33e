"""Verdicts on an engine's folder, made by `enginesmith verify` in a process of its own."""

from typing import Literal

from pydantic import Field

from ckb.facts import Frozen
from gpu_actors.jobs import GateResult
from swarm.engines import find_engine
from swarm.judged import Judged
from swarm.mcp_server.children import run_to_end
from swarm.mcp_server.tool import ADDS, AnyTool, Report, Tool


class Verify(Frozen):
    engine: str
    """Folder of the engine, or of its Target below engines/. Its manifest.json says what it was made for."""
    full: bool = False
    """The whole context and fresh prompts, as before a release."""
    seed: int | None = Field(None, ge=0)
    """Repeats the draws of an earlier call; left out: new ones."""
    checkpoint: str | None = None
    """Hugging Face directory; left out: the one of the manifest."""


class JudgedGate(Frozen):
    level: str
    gate: str
    contract: str
    status: Literal["PASS", "FAIL", "BLOCKED_BY_HARDWARE"]
    summary: str
    """What was expected and what was found, with the numbers."""
    evidence: tuple[str, ...]
    """Files."""


class VerdictTold(Frozen):
    outcome: Literal["passed", "rejected", "undecided"]
    """undecided: nothing is held against it but that this machine could not ask everything."""
    gates: tuple[JudgedGate, ...]
    told: tuple[str, ...]
    """The gates that it did not pass, how it reads and the conclusion, in lines."""
    tree: str
    """Hash of what was judged."""
    sandbox: str
    """The isolation that was in force."""
    seed: int
    """Of the draws."""


async def verify(asked: Verify, report: Report) -> VerdictTold:
    """Judges an engine by all gates, in a sandbox: also one that was written or edited by hand.

    Takes some minutes; what is being waited for is reported. A rejected engine is an answer, not an error."""
    arguments = ["verify", str(find_engine(asked.engine)), "--json"]
    arguments += ["--full"] if asked.full else []
    arguments += ["--seed", str(asked.seed)] if asked.seed is not None else []
    arguments += ["--checkpoint", asked.checkpoint] if asked.checkpoint else []
    ended = await run_to_end(arguments, report)
    return verdict_of(Judged.model_validate_json(ended.output))


def verdict_of(judged: Judged) -> VerdictTold:
    verdict = judged.verdict
    return VerdictTold(
        outcome="passed" if verdict.passed else "rejected" if verdict.failures else "undecided",
        gates=tuple(judged_gate(gate, judged.evidence) for gate in verdict.gates),
        told=judged.told,
        tree=verdict.tree,
        sandbox=verdict.sandbox,
        seed=judged.seed,
    )


def judged_gate(gate: GateResult, folder: str) -> JudgedGate:
    return JudgedGate(
        level=gate.level,
        gate=gate.gate,
        contract=gate.contract,
        status=gate.status,
        summary=gate.summary,
        evidence=tuple(f"{folder}/{piece.file}" for piece in gate.evidence),
    )


TOOLS: tuple[AnyTool, ...] = (Tool("verify", Verify, VerdictTold, verify, ADDS),)
