"""The report page: what it says, what it escapes, and that it loads nothing."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from statistics import geometric_mean, mean, median, stdev

import pytest

from benchmarks.metrics import METRICS
from roles.author import Usage
from swarm import events as e
from swarm.context import RunFiles
from swarm.journal import Journal
from swarm.report import write_report
from swarm.report.page import arm_objective, engine_spans, render
from swarm.report.tables import benchmark_tables
from swarm.report.views import branch_tree, device_costs, role_costs
from swarm.state import RunState, fold
from swarm.target import parse_target
from tests.unit.swarm.example_run import MARKUP, Example, example_plan

TARGET = parse_target({"model": {"path": "models/smollm2-135m-instruct"}}, "target")
LINES = {"engine.py": 120, "kernels.py": 340}
VOID = {"meta", "br", "link", "img", "hr", "input"}


@pytest.fixture(scope="module")
def events() -> list[e.AnyEvent]:
    return list(Example().events())


@pytest.fixture(scope="module")
def state(events: list[e.AnyEvent]) -> RunState:
    return fold(events)


@dataclass
class Seen(HTMLParser):
    """Tags that are open, references to elsewhere, and the text of the page."""

    open: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another tag, after {''.join(self.text)[-80:]!r}"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Seen:
    seen = Seen()
    seen.feed(page)
    seen.close()
    return seen


def page_of(state: RunState, lines: dict[str, int] = LINES) -> str:
    target = "model: {path: models/x}\n"
    return render("run-1", state, example_plan(), METRICS["tpot_ms"], target, lines, engine_spans(state))


def test_the_page_is_whole_at_any_moment_of_the_run(events: list[e.AnyEvent]) -> None:
    for count in [1, 2, *range(5, len(events), 11), len(events)]:
        state = fold(events[:count])
        seen = read(page_of(state, LINES if state.released else {}))
        assert seen.open == [], f"unclosed tags after {count} events"


def test_the_page_loads_nothing_and_runs_nothing(state: RunState) -> None:
    page = page_of(state)
    seen = read(page)
    assert [r for r in seen.references if not r.startswith("#")] == []
    assert seen.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    for word in ("url(", "@import", "http:", "https:", "javascript:", "onclick"):
        assert word not in page


def test_what_a_candidate_or_a_model_wrote_is_escaped_wherever_it_is_shown(events: list[e.AnyEvent]) -> None:
    poisoned = fold([poison(event) for event in events])
    seen = read(page_of(poisoned, {f"{MARKUP}.py": 3}))
    text = "".join(seen.text)
    assert "script" not in seen.tags
    for place in ("summary", "choice", "branch", "reason", "title", "gate", "file", "explanation"):
        assert f"{place} {MARKUP}" in text, f"the {place} is not shown as it was written"


def poison(event: e.AnyEvent) -> e.AnyEvent:
    match event:
        case e.IssueOpened(issue=issue):
            return event.model_copy(update={"issue": issue.model_copy(update={"title": f"title {MARKUP}"})})
        case e.CandidateSubmitted():
            words = {"summary": f"summary {MARKUP}", "branch": f"branch {MARKUP}"}
            choices = event.choices | {"x": f"choice {MARKUP} {event.candidate}"}
            return event.model_copy(update=words | {"choices": choices})
        case e.CandidateReviewed(findings=findings):
            found = tuple(f.model_copy(update={"file": f"file {MARKUP}"}) for f in findings)
            return event.model_copy(update={"findings": found})
        case e.CandidateDecided():
            return event.model_copy(update={"reason": f"reason {MARKUP}"})
        case e.VerdictMade(verdict=verdict):
            gates = tuple(g.model_copy(update={"summary": f"gate {MARKUP}"}) for g in verdict.gates)
            return event.model_copy(update={"verdict": verdict.model_copy(update={"gates": gates})})
        case e.FailureAnalysed(answer=answer):
            spoiled = answer.model_copy(update={"explanation": f"explanation {MARKUP}"})
            return event.model_copy(update={"answer": spoiled})
    return event


def test_every_candidate_has_its_commit_decision_and_reason_on_the_page(state: RunState) -> None:
    tree = page_of(state).split('id="branches"')[1].split("</section>")[0]
    text = " ".join("".join(read(f"<section{tree}</section>").text).split())
    assert len(state.candidates) == 22
    for candidate in state.candidates.values():
        assert candidate.decided
        assert candidate.id in text
        assert candidate.submitted.commit[:10] in text
        assert candidate.decided.reason in text


def test_every_piece_of_evidence_is_named_as_its_file_is(state: RunState) -> None:
    page = page_of(state)
    for candidate in state.candidates.values():
        for verdict in candidate.verdicts.values():
            for file in (file for gate in verdict.gates for file in gate.evidence):
                assert f'title="{file.sha256}.json: ' in page
                assert f">{file.sha256[:10]}*.json<" in page
    assert "run-1/evidence/" in page


def test_the_secret_that_verdicts_draw_from_is_not_on_the_page(state: RunState) -> None:
    assert str(example_plan().draw) not in page_of(state)


def test_a_candidate_is_told_apart_by_what_it_chose_differently(state: RunState) -> None:
    views = {view.candidate.id: view for issue in branch_tree(state) for view in issue.candidates}
    first = [(c.name, c.old, c.new) for c in views["s1-c2"].changes]
    assert first == [("execution_layout", None, "paged")], "what all siblings chose alike says nothing"
    later = [(c.name, c.old, c.new) for c in views["r2-3-c0"].changes]
    assert later == [("accumulate", "float32", "bfloat16")], "only what differs from the incumbent it started from"


def test_the_benchmark_table_is_what_its_rows_say(state: RunState) -> None:
    plan = example_plan()
    final = state.benchmark("release", 0)
    assert final
    table = benchmark_tables(final, plan)[1]
    assert (table.scenario.prompt_tokens, table.scenario.new_tokens) == (256, 128)
    ours, reference = table.arms
    tpot = {
        arm: [r.tpot_ms for r in final.rows if r.arm == arm and r.prompt_tokens == 256]
        for arm in ("engine", "huggingface")
    }
    assert ours.timing
    assert ours.timing.tpot.mean == pytest.approx(mean(tpot["engine"]))
    assert ours.timing.tpot.median == pytest.approx(median(tpot["engine"]))
    assert ours.timing.tpot.sd == pytest.approx(stdev(tpot["engine"]))
    ratios = [theirs / mine for theirs, mine in zip(tpot["huggingface"], tpot["engine"], strict=True)]
    assert ours.speedup.startswith(f"{geometric_mean(ratios):.2f}×")
    assert reference.speedup == ""
    bytes_read = plan.facts.model.decode_bytes(256 + 64, "float32")
    assert ours.timing.read_share == pytest.approx(bytes_read / 17.2e9 / (mean(tpot["engine"]) / 1e3))


def test_void_rows_do_not_count_and_an_engine_without_rows_says_why(state: RunState) -> None:
    final = state.benchmark("release", 0)
    assert final
    rows = tuple(
        r.model_copy(update={"void": "9% foreign CPU time"} if r.arm == "engine" and r.repeat else {})
        for r in final.rows
    )
    ours = benchmark_tables(final.model_copy(update={"rows": rows}), example_plan())[0].arms[0]
    assert (ours.valid, ours.void) == (1, 2)
    assert ours.timing
    assert ours.timing.tpot.count == 1
    crashed = tuple(
        a.model_copy(update={"status": "CRASHED", "detail": "exit status -9"}) if a.arm == "engine" else a
        for a in final.arms
    )
    void = tuple(r.model_copy(update={"void": "9% foreign CPU time"}) if r.arm == "engine" else r for r in final.rows)
    assert arm_objective(final.model_copy(update={"rows": void}), "engine", example_plan()) is None
    without = tuple(r for r in final.rows if r.arm != "engine")
    ours = benchmark_tables(final.model_copy(update={"rows": without, "arms": crashed}), example_plan())[0].arms[0]
    assert ours.timing is None
    assert ours.why == "CRASHED: exit status -9"


def test_cost_adds_up_by_role_and_by_device(state: RunState) -> None:
    assert sum(row.calls for row in role_costs(state)) == len(state.roles) == 44
    assert sum(row.seconds for row in device_costs(state)) == pytest.approx(state.device_seconds)
    assert {row.what for row in device_costs(state)} == {"profile", "verify", "benchmark"}


def test_a_cost_that_nobody_knows_is_not_shown_as_none(events: list[e.AnyEvent]) -> None:
    told = {"usd": 0.5, "outside": ("../main.py",), "isolation": "bubblewrap"}
    usages = ({"usd": None, "prompt_tokens": None, "completion_tokens": None}, told)
    calls = [e.RoleCalled(role="judge", usage=Usage(author="cli", model="m", **fields), epoch=1) for fields in usages]
    for known, shown in ((1, "unknown"), (2, "$0.50 and 1 of unknown cost")):
        extra = [*events, *calls[:known]]
        without_others = [ev for ev in extra if not isinstance(ev, e.RoleCalled) or ev.usage.author == "cli"]
        state = fold(without_others)
        [row] = role_costs(state)
        assert (row.unpriced, row.usd) == (1, None if known == 1 else 0.5)
        page = page_of(state)
        assert f"<td>{shown}</td>" in page
    assert "The judge wrote or wanted to write what it may not, which was refused or put back: ../main.py." in page
    assert "Commands that answered as judge were confined by bubblewrap." in page


def test_the_report_of_a_run_folder_is_written_beside_its_journal(events: list[e.AnyEvent], tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "run")
    files.write("smollm2-135m-cpu", TARGET, example_plan())
    journal = Journal(files.root)
    for event in events[:40]:
        journal.append(event)
    path = write_report(files.root)
    page = path.read_text(encoding="utf-8")
    assert path == files.root / "report.html"
    assert "smollm2-135m-cpu" in page
    assert "running" in page
    assert "path: models/smollm2-135m-instruct" in page


def test_a_released_engine_gets_the_page_and_its_lines_are_counted(
    events: list[e.AnyEvent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    (released,) = (event for event in events if isinstance(event, e.EngineReleased))
    engine = tmp_path / released.path
    engine.mkdir(parents=True)
    (engine / "engine.py").write_text("import torch\n" * 77, encoding="utf-8")
    files = RunFiles(tmp_path / "run")
    files.write("smollm2-135m-cpu", TARGET, example_plan())
    journal = Journal(files.root)
    for event in events:
        journal.append(event)
    page = write_report(files.root).read_text(encoding="utf-8")
    assert (engine / "report.html").read_text(encoding="utf-8") == page
    assert "77 lines" in " ".join("".join(read(page).text).split())
