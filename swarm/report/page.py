"""The report of a run: one HTML page that opens offline and loads nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from benchmarks.metrics import Metric
from ckb.hashing import tree_files
from gpu_actors.benchmark_jobs import Benchmark
from roles.briefs import Span
from swarm.context import RunFiles
from swarm.journal import read_events
from swarm.measure import compare, objective_of
from swarm.paths import resolve
from swarm.plan import Plan
from swarm.release import Manifest
from swarm.report import chart, tables, views, words
from swarm.state import RunState, fold

WIDE, NARROW = (1120.0, 380.0), (360.0, 320.0)
"""Width and height of the trajectory on a desktop and on a phone, px: one picture scaled is unreadable on either."""

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("swarm", "templates"),
    autoescape=True,  # summaries, choices and paths come from candidates and models
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters.update(words.FILTERS)


@dataclass(frozen=True)
class Card:
    """One number that the reader wants first."""

    value: str
    label: str


def write_report(run_dir: Path) -> Path:
    """Writes RUN/report.html from the journal, the Target and the Plan, whatever the run has reached by now.

    A released engine gets the same page beside its modules.
    """
    files = RunFiles(run_dir)
    state = fold(read_events(run_dir))
    plan, target = files.read_plan(), files.target.read_text(encoding="utf-8")
    page = render(run_dir.name, state, plan, plan.definition, target, engine_lines(state), engine_spans(state))
    files.report.write_text(page, encoding="utf-8")
    if state.released and (engine := resolve(state.released.path)).is_dir():
        (engine / "report.html").write_text(page, encoding="utf-8")
    return files.report


def engine_lines(state: RunState) -> dict[str, int]:
    """Lines of each file of the released engine; empty before the release or when its folder was moved away."""
    if not state.released:
        return {}
    root = resolve(state.released.path)
    return {
        file.relative_to(root).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in tree_files(root)
    }


def engine_spans(state: RunState) -> tuple[Span, ...]:
    """Which lines came from which fragment: of the released engine, or of the last tree on main."""
    manifest = resolve(state.released.path) / "manifest.json" if state.released else None
    if manifest and manifest.is_file():
        return Manifest.model_validate_json(manifest.read_bytes()).spans
    return state.incumbent.submitted.spans if state.incumbent else ()


def render(
    run: str,
    state: RunState,
    plan: Plan,
    metric: Metric,
    target: str,
    lines: Mapping[str, int],
    spans: tuple[Span, ...],
) -> str:
    """The page.

    `run` is the name of the run's folder, `target` the resolved Target as YAML, `lines` the released engine's files,
    `spans` its bill of materials.
    """
    final = state.final_benchmark
    shots = views.shots(state, incumbent_values(state, plan), plan.unit)
    levels = reference_levels(state, plan)
    return ENVIRONMENT.get_template("report.html").render(
        run=run,
        state=state,
        title=state.started.target if state.started else run,
        outcome=state.finished.outcome if state.finished else "running",
        cards=cards(state, plan, final),
        facts=facts(state, plan),
        plan=plan,
        metric=metric,
        wide=chart.draw(shots, levels, plan.unit, *WIDE, labels=True),
        narrow=chart.draw(shots, levels, plan.unit, *NARROW, labels=False),
        final=final,
        tables=tables.benchmark_tables(final, plan) if final else (),
        user_metrics=tables.user_metrics(final) if final else (),
        tree=views.branch_tree(state),
        verdicts=views.verdicts(state),
        roles=views.role_costs(state),
        devices=views.device_costs(state),
        lines=lines,
        ablations=views.ablations(state, plan),
        readability=views.readability(state),
        materials=views.bill_of_materials(spans),
        target=target,
    )


def arm_objective(benchmark: Benchmark | None, arm: str, plan: Plan) -> float | None:
    """The objective of one arm, None where it was not measured or has no valid row."""
    return objective_of(benchmark, arm, plan) if benchmark else None


def incumbent_values(state: RunState, plan: Plan) -> dict[str, float]:
    """The objective of candidates that were merged without a measurement of their own, the first whole engine above
    all: as the incumbent of the next round's benchmark, or as the released engine."""
    found: dict[str, float] = {}
    for made in state.benchmarks:
        arm = {"round": "incumbent", "release": "engine"}.get(made.purpose)
        earlier = [m for m in state.merges if made.purpose == "release" or round_of(state, m.candidate) < made.round]
        value = arm_objective(made.benchmark, arm, plan) if arm else None
        if earlier and value is not None:
            found.setdefault(earlier[-1].candidate, value)
    return found


def round_of(state: RunState, candidate: str) -> int:
    return state.issues[state.candidates[candidate].submitted.issue].issue.round


def reference_levels(state: RunState, plan: Plan) -> tuple[chart.Level, ...]:
    """The lines of the trajectory: the roofline's bound and Hugging Face."""
    levels = [chart.Level("roofline", plan.bound, "floor")] if plan.bound is not None else []
    if value := arm_objective(state.benchmark("baseline", 0), tables.REFERENCE, plan):
        levels.append(chart.Level("Hugging Face", value, "huggingface"))
    return tuple(levels)


def cards(state: RunState, plan: Plan, final: Benchmark | None) -> tuple[Card, ...]:
    """The first numbers of the page."""
    found = []
    if final:
        value = arm_objective(final, "engine", plan)
        if value is not None:
            found.append(Card(f"{words.number(value)} {plan.unit}", plan.metric))
        measured = compare(final, plan, against=tables.REFERENCE).get("engine")
        if measured:
            ratio = tables.ratio(measured.effect, measured.low, measured.high)
            found.append(Card(ratio.split(" ")[0], f"Hugging Face in {plan.metric} {ratio.split(' ', 1)[1]}"))
    kept = sum(views.fate(c) == "kept" for c in state.candidates.values())
    found.append(Card(f"{kept} of {len(state.candidates)}", "candidates kept"))
    if state.incumbent:
        found.append(Card(words.count(state.incumbent.submitted.lines), "lines of engine"))
    found.append(Card(words.duration(state.time.seconds), f"at work, {words.money(state.usd)}"))
    return tuple(found)


def roofline(plan: Plan) -> str:
    return "no roofline" if plan.bound is None else f"roofline {words.number(plan.bound)} {plan.unit}"


def facts(state: RunState, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Name and value of what identifies the run."""
    model, platform, workload = plan.facts.model, plan.facts.platform, plan.facts.workload
    rows = [
        ("Model", f"{model.architecture}, {model.parameters / 1e6:,.0f} M parameters in {model.weights}"),
        ("Machine", f"{platform.name}, {platform.cores} cores, {words.size(platform.memory_bytes)}"),
        ("Workload", f"{workload.kind}, batch {workload.batch}, {workload.decoding}, {workload.dtype}"),
        ("Objective", f"{plan.metric}, {roofline(plan)}"),
    ]
    if plan.operators:
        rows.append(("Operators", "; ".join(f"{o.operator.name} {o.words}" for o in plan.operators)))
    if state.released:
        rows.append(("Engine", state.released.path))
    if state.started:
        rows.append(("Host", state.started.host))
    return tuple(rows)
