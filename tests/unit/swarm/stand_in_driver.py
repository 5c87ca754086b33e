"""A driver as `enginesmith mcp` meets it, without Ray: it writes what a run leaves on disk, and obeys the Target.

`user.instructions` says what becomes of it: refuse, crash, vanish (no run although it ends well), sleep (nothing for a
long time), deaf (that, and no interrupt ends it), or a run that goes on until it is interrupted.
"""

import signal
import sys
import time
from pathlib import Path

from swarm.context import RunFiles
from swarm.journal import Journal
from swarm.target import load_target
from tests.unit.swarm.example_run import Example, example_plan


def main(command: str, *arguments: str) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if command == "resume":
        files = RunFiles(Path(arguments[0]))
        words = files.read_target().user.instructions
    else:
        files = RunFiles(Path(arguments[2]))
        target = load_target(Path(arguments[0]))
        words = target.user.instructions
    if words == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("measuring this machine", file=sys.stderr, flush=True)
    if words == "refuse":
        print("enginesmith: the model cannot fit: 3 GiB needed,\n2 GiB are there", file=sys.stderr)
        return 2
    if words == "crash":
        raise RuntimeError("a defect")
    if words == "vanish":
        return 0
    if words in ("sleep", "deaf"):
        time.sleep(600)
    if command == "generate":
        files.write("mine", target, example_plan())
        while not (files.root / "go").exists():  # begun, and Ray is starting: there is no journal yet
            time.sleep(0.05)
    journal = Journal(files.root)
    for event in () if command == "resume" else Example().events():
        journal.append(event)
    time.sleep(600)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
