"""Kills random parts of runs at random moments, and compares what comes of them with an undisturbed run.

`python -m tests.ray.chaos [--kills 30] [--seed N]` (`make chaos`). A moment is an event of the journal and up to a
second after it. The victim is any actor's process, the driver, or all of the cluster at once. Exit status 1, with the
difference, where a disturbed run ends otherwise than the undisturbed one.
"""

import argparse
import difflib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from swarm.journal import read_events
from tests.ray.whole_run import check_finished, environment, make_home, nothing_twice, start, state_of

KILLS_OF_A_RUN = 3
DRIVER = "tests.ray.timed_by_tree"
TIMEOUT_S = 1200
"""Of one disturbed run: far beyond what it takes, since what else the machine does is not known."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=1, help="0 disturbs the stages and the release alone")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    asked = parser.parse_args()
    seed = random.randrange(2**32) if asked.seed is None else asked.seed
    print(f"seed {seed}: {asked.kills} kills", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        difference = chaos(folder, asked.kills, random.Random(seed), asked.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(difference or f"{asked.kills} kills: the same issues, trees, verdicts and rows as undisturbed, nothing twice")
    return 1 if difference else 0


def chaos(folder: Path, kills: int, rng: random.Random, rounds: int = 1) -> str:
    """Runs once undisturbed, then as often as `kills` takes, and says the first difference; nothing where there is
    none. `folder` is new or empty."""
    planned = make_home(folder / "planned home", "llama", layers=2, rounds=rounds)
    plan = [sys.executable, "-m", DRIVER, "plan", "target.yaml", str(run_of(planned))]
    subprocess.run(plan, cwd=planned, env=environment(planned), check=True)
    calm = folder / "calm home"
    shutil.copytree(planned, calm)
    disturbed(calm, [], rng)
    expected = essence(run_of(calm))
    events = len(read_events(run_of(calm)))
    print(f"undisturbed: {events} events", flush=True)
    done = 0
    while done < kills:
        stormy = folder / f"home after {done} kills"
        shutil.copytree(planned, stormy)
        moments = sorted(rng.sample(range(1, events), min(KILLS_OF_A_RUN, kills - done)))
        done += disturbed(stormy, moments, rng)
        check_finished(stormy, run_of(stormy))
        nothing_twice(run_of(stormy))
        if difference := "\n".join(difflib.unified_diff(expected, essence(run_of(stormy)), "calm", "stormy", n=1)):
            return difference
    return ""


def run_of(home: Path) -> Path:
    return home / "runs" / "chaos"


def disturbed(home: Path, moments: Iterable[int], rng: random.Random) -> int:
    """Drives a planned run to its end, with a kill after each of the journal's events that `moments` number, and
    resumes it where a kill ended it. Returns how many kills there were: one whose victim is gone by then is none."""
    run, ours = run_of(home), set[psutil.Process]()
    driver, kills, starts = start(home, "drive", str(run), module=DRIVER), 0, 1
    deadline = time.monotonic() + TIMEOUT_S
    waiting = [*moments]
    try:
        while True:
            assert time.monotonic() < deadline, f"no end in {TIMEOUT_S} s: {[e.kind for e in read_events(run)][-5:]}"
            if driver.poll() is not None:
                output = driver.communicate()[0]
                if driver.returncode == 0:
                    return kills
                assert starts <= kills, f"the driver ended and nobody had killed it: {output[-4000:]}"
                driver, starts = start(home, "drive", str(run), module=DRIVER), starts + 1
            ours |= family_of(driver)
            if waiting and any((run / "journal").glob("*.jsonl")) and len(read_events(run)) >= waiting[0]:
                waiting.pop(0)
                time.sleep(rng.random())
                kills += kill_one(driver, rng)
            time.sleep(0.1)
    finally:
        end(ours)
        driver.wait()
        assert driver.stdout
        driver.stdout.close()


def kill_one(driver: subprocess.Popen[str], rng: random.Random) -> bool:
    """SIGKILL of a random victim; whether there was one."""
    family = family_of(driver)
    ours = (p for p in family if title(p).startswith("ray::") and not title(p).endswith(("IDLE", "Agent")))  # not Ray's
    actors = sorted(ours, key=lambda p: p.pid)
    kind = rng.choice(["actor", "actor", "driver", "cluster"])
    victims = (
        {"actor": [rng.choice(actors)] if actors else [], "driver": [psutil.Process(driver.pid)]} if family else {}
    )
    chosen = family if kind == "cluster" else victims.get(kind, [])
    print(f"  {kind}: {', '.join(sorted({title(p) for p in chosen if kind == 'actor'})) or len(chosen)}", flush=True)
    end(chosen)
    return bool(chosen)


def family_of(driver: subprocess.Popen[str]) -> set[psutil.Process]:
    """The driver and everything below it; nothing once it has ended."""
    try:
        parent = psutil.Process(driver.pid)
        return {parent, *parent.children(recursive=True)} if parent.status() != psutil.STATUS_ZOMBIE else set()
    except psutil.NoSuchProcess:
        return set()


def title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:40].strip()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def end(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()  # psutil looks first whether another process has its number by now
        except psutil.NoSuchProcess:
            continue


def essence(run: Path) -> list[str]:
    """What must not depend on interruptions, as lines: issues, trees, verdicts by gate, decisions, merges, the keys of
    the rows. Left out: times, ids, and what a call that was made again cost."""
    state = state_of(run)
    rows = {
        (made.purpose, made.round, made.candidate, row.arm, row.prompt_tokens, row.new_tokens, row.repeat, row.shown)
        for made in state.benchmarks
        for row in made.benchmark.counted
    }
    found = {
        "issues": {name: [i.issue.title, i.closed and i.closed.outcome] for name, i in state.issues.items()},
        "trees": {name: [c.submitted.tree, c.attempts] for name, c in state.candidates.items()},
        "verdicts": {
            f"{name} {purpose}": [[g.level, g.gate, g.contract, g.status] for g in verdict.gates]
            for name, c in state.candidates.items()
            for purpose, verdict in c.verdicts.items()
        },
        "decisions": {
            name: c.decided and [c.decided.decision, c.decided.reason] for name, c in state.candidates.items()
        },
        "merges": [[m.candidate, m.tree] for m in state.merges],
        "rows": sorted(map(str, rows)),
        "released": state.released and state.released.tree,
        "outcome": state.finished and state.finished.outcome,
    }
    return json.dumps(found, indent=1, sort_keys=True).splitlines()


if __name__ == "__main__":
    sys.exit(main())
