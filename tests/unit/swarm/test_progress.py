"""What a run shows while it works: plain lines in a log, a live view on a terminal."""

import contextlib
import io
import threading

from rich.console import Console

from swarm.events import AnyEvent
from swarm.limits import Limits
from swarm.progress import ISSUES, ROWS, Progress, budget_line, clock_text, latest_candidates
from swarm.state import RunState, fold
from swarm.tables import candidates_table, evidence_lines, runs_table, summary_lines
from swarm.target import Budget
from tests.unit.swarm.example_run import Example


def show_run(console: Console, events: list[AnyEvent]) -> None:
    state = RunState()
    with Progress(Limits(Budget(minutes=30)), console) as progress:
        for event in events:
            state.apply(event)
            progress.on_event(event, state)
            progress.note(f"after {event.kind}")


def rendered(part: object, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(part)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def test_without_a_terminal_each_event_is_one_plain_line() -> None:
    output = io.StringIO()
    show_run(Console(file=output, width=80), list(Example().events()))
    lines = output.getvalue().splitlines()
    assert "\x1b" not in output.getvalue()
    assert all(line.startswith("[") for line in lines), "a line was broken at the width of the console"
    text = output.getvalue()
    for expected in (
        "issue s1 opened: Stage 1: the execution modules",
        "s1-c0 written on candidate/s1-c0 by composer",
        "s3-c0 reviewed: no findings",
        "s1-c0 gates of its stage: 1 of 5 fail, first linear (kernels.linear): largest error 3.1e-2",
        "benchmark (baseline): huggingface 10",
        "discarded: no effect beyond noise: +0.3% [-1.1%, +1.6%]",
        "engine written to engines/smollm2-135m-cpu/",
        "knowledge base version 2: 56 rows added",
        "finished: accepted",
    ):
        assert expected in text, expected


def test_a_terminal_of_80_columns_shows_the_run_without_wrapping_a_line() -> None:
    output = io.StringIO()
    console = Console(file=output, width=80, height=24, force_terminal=True, color_system="standard")
    show_run(console, list(Example().events()))
    printed = [line for line in Console(file=io.StringIO()).render_str(output.getvalue()).plain.splitlines() if line]
    assert max(map(len, printed)) > 40
    assert "finished: accepted" in output.getvalue()
    events = list(Example().events())
    opened = next(i for i, e in enumerate(events) if e.kind == "issue_opened" and e.issue.id == "s3")
    events = events[: opened + 6]
    progress = Progress(Limits(Budget(minutes=30)), Console(file=io.StringIO(), width=80))
    state = fold(events)
    progress.on_event(events[-1], state)
    progress.note(
        "s2-c0: gates L0 to L2, with a long text that goes on and on beyond the width of any terminal there is"
    )
    view = rendered(progress.render()).splitlines()
    assert max(map(len, view)) <= 80
    assert len(view) <= 1 + ROWS + ISSUES + 3, "one line a candidate, the header, the issues, now and the budget"
    assert any(line.startswith("issue s3: Stage 3: the integration modules") for line in view)
    assert any(line.startswith("now: s2-c0: gates L0 to L2") for line in view)
    assert "elapsed" in view[-1]
    assert "left" in view[-1]


def test_a_line_is_printed_while_another_thread_draws_the_view() -> None:
    """That thread holds the console's lock and asks for ours: whoever prints with ours held waits for ever."""

    class Drawing(Console):
        def print(self, *objects: object, **options: object) -> None:
            drawn = threading.Thread(target=progress.render, daemon=True)
            drawn.start()
            drawn.join(10.0)
            assert not drawn.is_alive(), "it waits for us, and we would wait for it"

    for terminal in (True, False):
        progress = Progress(Limits(Budget()), Drawing(file=io.StringIO(), force_terminal=terminal))
        with progress if terminal else contextlib.nullcontext():
            progress.on_event(next(iter(Example().events())), RunState())
            progress.note("at work")


def test_the_live_view_keeps_the_candidates_of_open_issues() -> None:
    events = list(Example().events())
    opened = next(i for i, e in enumerate(events) if e.kind == "issue_opened" and e.issue.id == "r2-1")
    state = fold(events[: opened + 4])
    assert [c.id for c in latest_candidates(state)][-1] == "r2-1-c0"
    assert len(latest_candidates(state)) <= ROWS


def test_the_budget_line_counts_what_earlier_drivers_used() -> None:
    state = fold(list(Example().events()))
    line = budget_line(state, Budget(minutes=30, usd=1, tokens=500), elapsed=125)
    assert line.startswith("elapsed 2:05, 27:55 left · device ")
    assert "0.00 of 1.00 USD" in line
    assert "0 of 500 tokens" in line
    assert clock_text(3600) == "60:00"


def test_the_elapsed_time_goes_on_between_events() -> None:
    now = [1000.0]
    progress = Progress(Limits(Budget()), Console(file=io.StringIO()), clock=lambda: now[0])
    events = list(Example().events())[:3]
    state = fold(events)
    progress.on_event(events[-1], state)
    now[0] += 7
    assert progress.elapsed() == state.time.seconds + 7


def test_the_status_tables_say_why_a_candidate_was_kept_or_discarded() -> None:
    state = fold(list(Example().events()))
    text = rendered(candidates_table(state), width=160)
    assert "s1-c0" in text
    assert "discarded" in text
    assert "linear: largest error 3.1e-2 at [0, 117], allowed 1e-4" in text
    assert "merged" in text
    assert any("engine: engines/smollm2-135m-cpu/" in line for line in summary_lines(state, Budget()))
    assert "accepted" in rendered(runs_table({"demo-1": state}), width=160)


def test_status_names_the_file_of_the_evidence_against_each_candidate() -> None:
    state = fold(list(Example().events()))
    lines = evidence_lines(state, "runs/demo-1/evidence")
    rejected = [(c, v) for c in state.candidates.values() for v in c.verdicts.values() if v.failures]
    assert len(lines) == len(rejected) > 0
    for line, (candidate, verdict) in zip(lines, rejected, strict=True):
        gate = verdict.failures[0]
        assert line.startswith(f"evidence of {candidate.id}: {gate.gate} (")
        assert line.endswith(f": runs/demo-1/evidence/{gate.evidence[0].sha256}.json")
