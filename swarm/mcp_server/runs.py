"""Runs: started in the background by a process of their own, and looked at on disk."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from ckb.errors import UserError
from gpu_actors.say import Say
from swarm.commands.run import find_run, need_git, run_dirs
from swarm.context import RunFiles
from swarm.journal import epochs, state_of
from swarm.mcp_server.children import OURS, CommandFailed, check, end
from swarm.mcp_server.knowledge import existing
from swarm.mcp_server.run_records import (
    Begun,
    CandidateLine,
    Generate,
    NamedRun,
    NoArguments,
    ReportPage,
    RunLine,
    Runs,
    RunStatus,
)
from swarm.mcp_server.tool import READS, RENEWS, STARTS, AnyTool, Report, Tool, in_thread
from swarm.paths import new_run_dir
from swarm.progress import candidate_state
from swarm.report import write_report
from swarm.state import RunState
from swarm.tables import evidence_lines, summary_lines
from swarm.target import load_target

POLL_S = 0.2


class Drivers:
    """The drivers that this server started. They go on without it: a run is on disk, whoever looks at it."""

    def __init__(self, command: Sequence[str] = OURS):
        self._command = command
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    async def generate(self, asked: Generate, report: Report) -> Begun:
        """Starts a run that makes an engine for a Target, and returns its id once its plan is frozen.

        Everything that speaks against the Target is said now: faults of the file, memory, gaps of the knowledge base.
        The run goes on by itself for minutes to hours, and spends at most what the Target's `budget:` allows; ask
        `run_status`."""
        need_git()
        target_file = existing(asked.target)
        load_target(target_file)  # its faults, before a process is started
        folder = new_run_dir(target_file.stem)
        folder.mkdir(parents=True)
        files = RunFiles(folder)
        try:
            arguments = ["generate", str(target_file), "--run-dir", str(folder)]
            await self._start(files, arguments, files.identity.exists, report)
        finally:
            if not files.identity.exists():
                shutil.rmtree(folder)
        return begun(files)

    async def resume(self, asked: NamedRun, report: Report) -> Begun:
        """Goes on with a run whose driver ended, however it ended.

        A run that met its budget goes on once `budget:` in its target.yaml is larger."""
        need_git()
        files = RunFiles(find_run(asked.run))
        if self.word(files.root) == "at work":
            raise UserError(f"{files.root.name} has a driver that is at work: ask run_status")
        before = len(epochs(files.root / "journal"))

        def taken_over() -> bool:
            return len(epochs(files.root / "journal")) > before

        await self._start(files, ["resume", str(files.root)], taken_over, report)
        return begun(files)

    async def _start(
        self, files: RunFiles, arguments: Sequence[str], is_begun: Callable[[], bool], report: Report
    ) -> None:
        """Starts a driver and waits until the run is begun. Raises UserError if it refuses, CommandFailed if it
        crashes. A call that is cancelled before that ends it."""
        with files.driver_log.open("ab") as log:
            told = log.tell()
            process = subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            await self._wait(process, files.driver_log, told, is_begun, report)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(end, process)
            raise
        self._processes[files.root] = process

    async def _wait(
        self, process: "subprocess.Popen[bytes]", log: Path, start: int, is_begun: Callable[[], bool], report: Report
    ) -> None:
        """Reports what a driver says until its run is begun."""
        told = start
        while True:
            ended = process.poll() is not None  # before the last look, so that nothing is said between
            said = log.read_bytes()
            whole = said.rfind(b"\n") + 1
            for line in said[told:whole].decode("utf-8", errors="replace").splitlines():
                await report(line)
            told = max(told, whole)
            if is_begun():
                return
            if ended:
                text = said[start:].decode("utf-8", errors="replace")
                check(process.returncode, text)
                raise CommandFailed(f"exit status {process.returncode} before the run had begun: {text}")
            await anyio.sleep(POLL_S)

    def word(self, folder: Path) -> str:
        """What is known of a run's driver."""
        process = self._processes.get(folder)
        if process is None:
            return "not known"
        return "at work" if process.poll() is None else f"ended with exit status {process.returncode}"

    def status(self, asked: NamedRun, _: Say) -> RunStatus:
        """Shows where a run stands: candidates and what became of each, the budget, the engine, how it ended."""
        files = RunFiles(find_run(asked.run))
        state = state_of(files.root)
        return RunStatus(
            run=files.root.name,
            state=outcome(state),
            driver=self.word(files.root),
            now=files.now.read_text(encoding="utf-8").strip() if files.now.exists() else "",
            issues={issue.issue.id: issue.issue.title for issue in state.issues.values() if issue.closed is None},
            candidates=candidate_lines(state),
            summary=tuple(summary_lines(state, files.limits_now())),
            evidence=tuple(evidence_lines(state, str(files.evidence))),
            engine=state.released.path if state.released else None,
            log=str(files.driver_log) if files.driver_log.exists() else None,
        )


def begun(files: RunFiles) -> Begun:
    minutes = files.read_target().budget.minutes
    return Begun(run=files.root.name, folder=str(files.root), log=str(files.driver_log), minutes=minutes)


def outcome(state: RunState) -> str:
    return state.finished.outcome.replace("_", " ") if state.finished else "not finished"


def candidate_lines(state: RunState) -> tuple[CandidateLine, ...]:
    return tuple(
        CandidateLine(
            issue=candidate.submitted.issue,
            candidate=candidate.id,
            state=candidate_state(candidate)[0],
            effect=candidate.decided.effect if candidate.decided else None,
            why=candidate.decided.reason if candidate.decided else candidate.submitted.summary,
        )
        for candidate in state.candidates.values()
    )


def runs(_: NoArguments, __: Say) -> Runs:
    """Lists the runs below ENGINESMITH_HOME."""
    states = {folder.name: state_of(folder) for folder in run_dirs()}
    return Runs(
        runs=tuple(
            RunLine(
                run=name,
                state=outcome(state),
                candidates=len(state.candidates),
                merged=len(state.merges),
                engine=state.released.path if state.released else None,
            )
            for name, state in states.items()
        )
    )


def report_page(asked: NamedRun, _: Say) -> ReportPage:
    """Writes the report of a run anew: trajectory, branches, gates, benchmark, cost."""
    return ReportPage(path=str(write_report(find_run(asked.run))))


def run_tools(drivers: Drivers) -> tuple[AnyTool, ...]:
    return (
        Tool("generate", Generate, Begun, drivers.generate, STARTS),
        Tool("resume", NamedRun, Begun, drivers.resume, STARTS),
        Tool("runs", NoArguments, Runs, in_thread(runs), READS),
        Tool("run_status", NamedRun, RunStatus, in_thread(drivers.status), READS),
        Tool("run_report", NamedRun, ReportPage, in_thread(report_page), RENEWS),
    )
