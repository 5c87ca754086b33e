"""The journal of a run that ended as one Arrow table, for whoever asks many runs at once.

The journal itself stays what counts: the table is written from it, and may be written again.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import feather

from ckb.whole_files import replacing
from swarm import events as e
from swarm.journal import read_events
from swarm.process import EDITS

FILE = "events.arrow"
SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("epoch", pa.int32()),
        ("kind", pa.string()),
        ("issue", pa.string()),
        ("candidate", pa.string()),
        ("role", pa.string()),
        ("author", pa.string()),
        ("model", pa.string()),
        ("tokens", pa.int64()),
        ("usd", pa.float64()),
        ("seconds", pa.float64()),
        ("tool_calls", pa.int32()),
        ("edits", pa.int32()),
        ("commit", pa.string()),
        ("error", pa.string()),
        ("event", pa.string()),
    ]
)
"""A null is what an event doesn't say. `seconds`: of a role's conversation, or for which a device was held. `error`:
why something was discarded, failed or ended. `event`: the whole event as JSON."""


def write_table(run_dir: Path) -> Path:
    """Writes RUN/events.arrow, an Arrow IPC file that can be mapped into memory."""
    events = read_events(run_dir)
    run = next((event.run for event in events if isinstance(event, e.RunStarted)), "")
    rows = [{"run": run, **row_of(event)} for event in events]
    with replacing(run_dir / FILE) as draft:
        feather.write_feather(pa.Table.from_pylist(rows, schema=SCHEMA), str(draft), compression="uncompressed")
    return run_dir / FILE


def row_of(event: e.AnyEvent) -> dict[str, Any]:
    """One event's columns, without the run's."""
    common = {"at": round(event.at * 1e6), "epoch": event.epoch, "kind": event.kind, "event": event.model_dump_json()}
    named = {
        name: value for name in ("issue", "candidate", "commit") if isinstance(value := getattr(event, name, None), str)
    }
    return common | named | told_by(event)


def told_by(event: e.AnyEvent) -> dict[str, Any]:
    """The columns that only some events have."""
    match event:
        case e.RoleCalled(role=role, usage=usage):
            counted = None not in (usage.prompt_tokens, usage.completion_tokens)
            return {
                "role": role,
                "author": usage.author,
                "model": usage.model,
                "tokens": (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if counted else None,
                "usd": usage.usd,
                "seconds": usage.seconds,
                "tool_calls": sum(usage.tools.values()),
                "edits": sum(usage.tools.get(name, 0) for name in EDITS),
            }
        case e.IssueOpened(issue=issue):
            return {"issue": issue.id}
        case e.DeviceUsed(seconds=seconds):
            return {"seconds": seconds}
        case e.CandidateSubmitted(author=author):
            return {"author": author}
        case e.VerdictMade(verdict=verdict) if verdict.failures:
            return {"error": f"{verdict.failures[0].gate}: {verdict.failures[0].summary}"}
        case e.CandidateDecided(decision="discarded", reason=reason):
            return {"error": reason}
        case e.RunFinished(outcome=outcome, reason=reason) if outcome != "accepted":
            return {"error": f"{outcome}: {reason}"}
    return {}
