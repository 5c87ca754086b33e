"""What a finished run hands to the consolidator: measured effects, evaluation records, the engine's provenance."""

from datetime import UTC, datetime
from importlib.metadata import version
from statistics import median

from benchmarks.metrics import find_metric
from ckb.consolidate import Lessons
from ckb.evidence import rule_and_fact, target_of
from ckb.hashing import sha256_json
from ckb.records import Provenance
from ckb.schemas.experience import Evidence, Experience
from ckb.schemas.runs import Median, Run
from ckb.schemas.traces import Correctness, Environment, Performance, Trace
from gpu_actors.benchmark_jobs import Benchmark
from gpu_actors.jobs import GateResult, Verdict
from roles import briefs as b
from swarm.context import Context
from swarm.inner_loop import InnerLoop
from swarm.measure import by_cell, objective_of
from swarm.release import composed_of
from swarm.state import Candidate

ENGINE = "engine"
HUGGINGFACE = "huggingface"
MEDIANS = ("ttft_ms", "tpot_ms", "latency_ms", "decode_tok_s")


def lessons_of(context: Context, inner: InnerLoop) -> Lessons:
    """Asks the consolidator what the run's measurements teach, and adds the records that need no judgement."""
    state = context.state
    assert state.released, "a run consolidates what it released"
    verdict = released_verdict(context)
    benchmark = state.benchmark("release", 0, state.released.candidate)
    assert benchmark, "an engine is measured before it is released"
    brief = b.ConsolidatorBrief(
        run=context.files.root.name,
        facts=context.facts,
        choices=context.choices,
        measured=tuple(x for c in state.candidates.values() if (x := measured_effect(context, c))),
        mended=tuple(x for c in state.candidates.values() for x in mended(c)),
    )
    answer, _ = inner.ask(brief, b.ConsolidatorAnswer, None, None)
    origin = Provenance(source="run", run=run_id(context), verdict=sha256_json(verdict.model_dump(mode="json")))
    return Lessons(
        run=run_row(context, verdict, benchmark, origin),
        experience=tuple(row for x in answer.experience for row in experience_rows(x, context, origin)),
        traces=tuple(traces(context, benchmark, verdict, origin)),
    )


def run_id(context: Context) -> str:
    """Folder and identity: folders of two runs may have the same name."""
    assert context.state.started
    return f"{context.files.root.name}-{context.state.started.run[:8]}"


def released_verdict(context: Context) -> Verdict:
    released = context.state.released
    assert released, "an engine was released"
    return context.state.candidates[released.candidate].verdicts["release"]


def measured_effect(context: Context, candidate: Candidate) -> b.Lesson | None:
    """One candidate of the performance loop, with the effect that the harness measured."""
    issue = context.state.issues[candidate.submitted.issue].issue
    decided = candidate.decided
    if issue.hypothesis is None or decided is None or decided.effect is None:
        return None
    facts = context.facts
    change = context.state.change_of(candidate)
    claim = [context.plan.metric, change]
    return b.Lesson(
        id=f"{facts.platform.accelerator}-{facts.workload.dtype}-{sha256_json(claim)[:12]}",
        title=issue.title,
        kind="optimisation",
        applies_to=(
            f"platform.accelerator == {facts.platform.accelerator!r} and workload.dtype == {facts.workload.dtype!r}"
        ),
        change=change,
        metric=context.plan.metric,
        effect=decided.effect,
        interval=decided.interval,
        signal="tentative",
        text=f"{issue.title}: {decided.reason} (predicted {issue.hypothesis.expected_effect:+.1%}).",
    )


def mended(candidate: Candidate) -> list[b.Mended]:
    """The gates that refused an earlier attempt of a candidate, and let its last one pass."""
    earlier: list[GateResult] = []
    attempt = candidate.before
    while attempt:
        earlier += [gate for verdict in attempt.verdicts.values() for gate in verdict.failures]
        attempt = attempt.before
    now = {gate.gate for verdict in candidate.verdicts.values() for gate in verdict.gates if gate.status == "PASS"}
    return [
        b.Mended(
            id=f"{candidate.submitted.issue}/{gate.gate}",
            evidence=b.Evidence(gate=gate.gate, contract=gate.contract, summary=gate.summary),
            author=candidate.submitted.author,
            notes=candidate.submitted.summary,
        )
        for gate in {gate.gate: gate for gate in earlier if gate.gate in now}.values()
    ]


def experience_rows(lesson: b.Lesson, context: Context, origin: Provenance) -> tuple[Experience, Experience]:
    """The rule that the role states, and the fact about this target that stands behind it."""
    told = {name: getattr(lesson, name) for name in ("effect", "interval", "fixed", "text")}
    found = Evidence(target=target_of(context.facts), run=run_id(context), **told)
    signed = origin.model_copy(update=tried_in(lesson, context))
    return rule_and_fact(Experience(**lesson.model_dump(), evidence=(found,), provenance=signed), context.facts)


def tried_in(lesson: b.Lesson, context: Context) -> dict[str, str | None]:
    """Issue, candidate and verdict that a finding is from."""
    candidates = context.state.candidates.values()
    measured = (c for c in candidates if (own := measured_effect(context, c)) and own.id == lesson.id)
    fixed = (c for c in candidates if any(m.id == lesson.fixed for m in mended(c)))
    of = next(fixed if lesson.fixed else measured, None)
    if of is None:
        return {"issue": None, "candidate": None, "verdict": None}
    verdict = list(of.verdicts.values())[-1] if of.verdicts else None
    hashed = sha256_json(verdict.model_dump(mode="json")) if verdict else None
    return {"issue": of.submitted.issue, "candidate": of.id, "verdict": hashed}


def run_row(context: Context, verdict: Verdict, benchmark: Benchmark, origin: Provenance) -> Run:
    state, facts = context.state, context.facts
    assert state.started
    assert state.released
    merged = next(m for m in state.merges if m.commit == state.released.commit)
    submitted = state.candidates[merged.candidate].submitted
    return Run(
        id=run_id(context),
        target=state.started.target,
        engine=state.released.path.rsplit("/", 1)[-1],
        model_type=facts.model.model_type,
        platform=facts.platform.name,
        knowledge=context.plan.ckb_version,
        plan=context.plan.sha256,
        tree=state.released.tree,
        verdict=origin.verdict or "",
        commit=state.released.commit,
        author=submitted.author,
        choices=merged.choices,
        fragments=tuple(composed_of(context, merged)),
        metric=context.plan.metric,
        value=objective_of(benchmark, ENGINE, context.plan),
        medians=tuple(medians(benchmark)),
        candidates=len(state.candidates),
        violations=tuple(found.row for found in state.violations),
        operators=tuple(planned.operator for planned in context.plan.operators),
        provenance=origin,
    )


def medians(benchmark: Benchmark) -> list[Median]:
    """The median of each metric in each cell, for each arm."""
    return [
        Median(
            arm=arm,
            prompt_tokens=cell[0],
            new_tokens=cell[1],
            metric=metric,
            value=find_metric(metric).value(list(rows.values())),
        )
        for arm in (ENGINE, HUGGINGFACE)
        for cell, rows in by_cell(benchmark, arm).items()
        for metric in MEDIANS
    ]


def traces(context: Context, benchmark: Benchmark, verdict: Verdict, origin: Provenance) -> list[Trace]:
    """The engine as a Solution of the Definition `generate`: one Trace a cell that both it and Hugging Face have."""
    mine, theirs = by_cell(benchmark, ENGINE), by_cell(benchmark, HUGGINGFACE)
    model, workload = context.facts.model, context.facts.workload
    return [
        Trace(
            id=f"{run_id(context)}-p{cell[0]}-g{cell[1]}",
            definition=f"generate_{model.model_type}_l{model.layers}_h{model.hidden}_{workload.dtype}",
            workload=sha256_json([cell, benchmark.prompts])[:32],
            axes={"prompt_tokens": cell[0], "new_tokens": cell[1], "batch": workload.batch},
            solution=f"engine_{verdict.tree[:8]}",
            evaluation="PASSED",
            environment=Environment(hardware=benchmark.device, libs={"torch": version("torch")}),
            timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
            correctness=Correctness(),
            performance=performance(
                median(row.latency_ms for row in mine[cell].values()),
                median(row.latency_ms for row in theirs[cell].values()),
            ),
            provenance=origin,
        )
        for cell in mine
        if cell in theirs
    ]


def performance(latency_ms: float, reference_ms: float) -> Performance:
    return Performance(
        latency_ms=latency_ms, reference_latency_ms=reference_ms, speedup_factor=reference_ms / latency_ms
    )
