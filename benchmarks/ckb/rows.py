"""Rows of experience that look like those of real runs, made from their number alone."""

from ckb.records import Provenance
from ckb.schemas import Experience

RARE = 1000
"""One row in so many is a failure mode: what the filtered read looks for."""


def row(id: str, number: int, run: str = "benchmark") -> Experience:
    """Row `number` of a store."""
    effect = (number % 97 - 40) / 200
    return Experience(
        id=id,
        title=f"blocks of {2 ** (number % 8)} rows in the linear layers",
        kind="failure_mode" if number % RARE == 0 else "optimisation",
        applies_to="platform.cores > 1 and model.hidden >= 512",
        status="verified",
        provenance=Provenance(source="run", run=run, issue=f"{run}-{number % 7}", candidate=f"c{number:08d}"),
        created="2026-01-01",
        change={"ROWS": 2 ** (number % 8), "layout": "token-major"},
        metric="tpot_ms",
        effect=effect,
        interval=(effect - 0.01, effect + 0.01),
        signal="confirmed",
        meaning=f"rows-{number % 50}",
        text=f"Row {number}: the paired benchmark of {run} against its incumbent, {number % 89} repetitions on one "
        f"leased device, gave an effect of {effect:+.3f}; the interval excludes zero in {number % 13} of 13 halves.",
    )
