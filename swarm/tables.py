"""Tables for the terminal. Colours are the basic ones, which dark and light terminals both show."""

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ckb.coverage import Coverage
from ckb.records import STAGES
from ckb.schemas.platforms import STATE_WORDS
from swarm.doctor import Finding, OperatorFinding
from swarm.feasibility import gib
from swarm.plan import Plan
from swarm.process import Process
from swarm.progress import benchmark_line, budget_line, candidate_state
from swarm.report.words import duration, money
from swarm.state import RunState
from swarm.target import Budget

STATE_STYLE = {"fine": "green", "limited": "blue", "missing": "bold red"}


def plain_table(*columns: str) -> Table:
    """A table without frames."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns[:-1]:
        table.add_column(column)
    table.add_column(columns[-1], overflow="fold")
    return table


def doctor_table(findings: list[Finding]) -> Table:
    table = plain_table("what", "state", "found, and what follows")
    for finding in findings:
        if isinstance(finding, OperatorFinding):
            continue
        text = Text(finding.found)
        if finding.consequence:
            text.append(f"\n{finding.consequence}", style="italic")
        table.add_row(finding.what, Text(finding.state, style=STATE_STYLE[finding.state]), text)
    return table


def operators_table(findings: list[Finding]) -> Table:
    """The operator libraries among the findings."""
    table = plain_table("operator", "on", "state", "speed", "why, and what follows")
    for finding in findings:
        if isinstance(finding, OperatorFinding):
            state = Text(STATE_WORDS[finding.status], style=STATE_STYLE[finding.state])
            follows = ". ".join(part.rstrip(".") for part in (finding.why, finding.consequence) if part)
            table.add_row(finding.what, finding.device, state, finding.speed, follows)
    return table


def speed_lines(findings: list[Finding]) -> list[str]:
    """What the speeds of operators_table are speeds of."""
    tried = [finding.tried for finding in findings if isinstance(finding, OperatorFinding) and finding.tried]
    return [f"{o.name} on {o.device}: {o.measured}" for o in tried if o.speeds]


def coverage_table(coverage: Coverage) -> Table:
    """Each need with what serves it, or with what is missing."""
    table = plain_table("need", "subject", "covered by")
    for need in coverage.needs:
        gaps = Text("\n".join(f"{gap.kind}: {gap.detail}" for gap in need.gaps), style="red")
        served = Text(need.note or ", ".join(need.covered_by))
        table.add_row(need.what, need.subject, gaps if need.gaps else served)
    return table


def candidates_table(state: RunState) -> Table:
    """Each candidate with the row that says why it was kept or discarded."""
    table = plain_table("issue", "candidate", "state", "effect", "why")
    for issue in state.issues.values():
        for candidate in issue.candidates.values():
            word, style = candidate_state(candidate)
            decided = candidate.decided
            effect = f"{decided.effect:+.1%}" if decided and decided.effect is not None else ""
            why = decided.reason if decided else candidate.submitted.summary
            table.add_row(issue.issue.id, candidate.id, Text(word, style=style), effect, Text(why))
    return table


def evidence_lines(state: RunState, folder: str) -> list[str]:
    """For each verdict that rejected a candidate, the first gate that failed and the file in `folder` with what it
    saw."""
    return [
        f"evidence of {candidate.id}: {gate.gate} ({purpose}): {folder}/{gate.evidence[0].file}"
        for candidate in state.candidates.values()
        for purpose, verdict in candidate.verdicts.items()
        for gate in verdict.failures[:1]
    ]


def runs_table(runs: dict[str, RunState]) -> Table:
    """Run name -> state, one row each."""
    table = plain_table("run", "state", "merged", "engine")
    for name, state in runs.items():
        word = state.finished.outcome.replace("_", " ") if state.finished else "not finished"
        merged = f"{len(state.merges)} of {len(state.candidates)}"
        table.add_row(name, word, merged, state.released.path if state.released else "")
    return table


def budget_table(budget: Budget, used: Mapping[str, float]) -> Table:
    """What a run has used of its limits."""
    table = plain_table("limit", "used", "allowed", "nothing new from")
    for name in used:
        allowed = float(getattr(budget, name))
        table.add_row(name, f"{used[name]:,.4g}", f"{allowed:,.4g}", f"{allowed * budget.soft:,.4g}")
    return table


def process_lines(process: Process) -> list[str]:
    """The figures of a run as a whole."""
    unknown = f" (of {process.unknown} conversations nobody told)" if process.unknown else ""
    engine = "per accepted engine: no engine was accepted"
    if process.engines:
        hours = duration(process.build_s / process.engines)
        engine = f"per accepted engine: {hours}, {process.tokens // process.engines:,} tokens, "
        engine += money(process.per_engine(process.usd))
    tools = ", ".join(f"{name} {count:,}" for name, count in process.tools.items())
    return [
        f"run {process.run}: {process.outcome.replace('_', ' ')}",
        f"build time: {duration(process.build_s)} of {process.drivers} driver(s)",
        f"agents: {process.agents:,}, messages {process.messages:,}, overlap factor {process.overlap:.2f}",
        f"tool calls: {sum(process.tools.values()):,}, of which edits {process.edits:,}"
        + (f" ({tools})" if tools else ""),
        f"tokens: {process.tokens:,}, cost {money(process.usd)}{unknown}",
        f"candidates: {process.candidates}, attempts {process.attempts}, merged {process.merged}; "
        f"lines +{process.lines_added:,} -{process.lines_deleted:,}",
        f"zero-reference violations: {process.violations}",
        engine,
    ]


def process_tables(process: Process) -> list[Table | str]:
    """By role, and what was done by no author."""
    roles = plain_table(
        "role", "agents", "messages", "active", "share", "an agent", "overlap", "tools", "tokens", "cost"
    )
    for work in process.roles:
        roles.add_row(
            work.role,
            f"{work.agents:,}",
            f"{work.messages:,}",
            duration(work.active_s),
            f"{work.share:.0%}",
            duration(work.per_agent_s),
            f"{work.overlap:.2f}",
            f"{sum(work.tools.values()):,}",
            f"{work.tokens:,}",
            money(None if work.unknown == work.agents else work.usd),
        )
    code = plain_table("by code", "times", "device time")
    for one in process.code:
        code.add_row(one.what, f"{one.times:,}", duration(one.device_s))
    return [roles, "", code]


def summary_lines(state: RunState, budget: Budget) -> list[str]:
    """Where a run stands, below its candidates."""
    last = state.benchmarks[-1:]
    lines = [f"last benchmark ({b.purpose}): {benchmark_line(b.benchmark)}" for b in last]
    lines.append(budget_line(state, budget, state.time.seconds))
    if state.filed:
        lines.append(f"ideas that roles filed: {len(state.filed)}, of which {len(state.backlog)} wait")
    if state.violations:
        last_one = state.violations[-1].row
        lines.append(f"zero-reference violations: {len(state.violations)}, last {last_one.candidate}: {last_one.what}")
    if state.released:
        lines.append(f"engine: {state.released.path}")
    if state.finished:
        lines.append(f"finished: {state.finished.outcome.replace('_', ' ')} {state.finished.reason}".rstrip())
    else:
        lines.append("not finished: a driver is at work, or go on with `enginesmith resume`")
    return lines


def plan_text(plan: Plan) -> str:
    """What a dry run shows of a Plan."""
    feasible, facts = plan.feasibility, plan.facts
    stages = {stage: [c.id for c in plan.contracts if c.stage == stage] for stage in STAGES}
    lines = [
        f"platform: {facts.platform.name}, {facts.platform.cores} core(s), {' '.join(facts.platform.isa)}",
        f"memory: at least {gib(feasible.needed_bytes)} (weights {gib(feasible.weight_bytes)}, cache "
        f"{gib(feasible.kv_bytes)}, workspace {gib(feasible.workspace_bytes)}) of {gib(feasible.allowed_bytes)}",
        f"bound: {bound_text(plan)}",
        "operators:",
        *(f"  {planned.operator.name}: {planned.words}" for planned in plan.operators),
        "scenarios: " + ", ".join(f"{s.prompt_tokens}+{s.new_tokens} tokens" for s in plan.scenarios),
        f"knowledge base version {plan.ckb_version}: {len(plan.contracts)} contracts, {len(plan.tests)} tests",
        *(f"  {stage}: {', '.join(ids)}" for stage, ids in stages.items()),
        "open decisions and parameters:",
        *(f"  {name}: {', '.join(map(str, values))}" for name, values in plan.space.items()),
    ]
    return "\n".join(lines)


def bound_text(plan: Plan) -> str:
    if plan.bound is None:
        return f"none for {plan.metric}, which user.benchmark prints"
    return f"{plan.metric} {plan.bound:.4g} {plan.unit} at {plan.feasibility.read_gb_s:.1f} GB/s"


def show(*parts: Table | str) -> None:
    """Prints to stdout, 160 columns wide where it is no terminal. Text is printed as it is: brackets are no markup."""
    width = None if sys.stdout.isatty() else 160
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
