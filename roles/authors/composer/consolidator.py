"""Consolidator: generalises measured effects by how many candidates agree on them."""

from statistics import fmean

from ckb.records import Choice
from roles.briefs import ConsolidatorAnswer, ConsolidatorBrief, Experience

Key = tuple[str, tuple[tuple[str, Choice], ...], str]


def consolidate(brief: ConsolidatorBrief) -> ConsolidatorAnswer:
    """One row for each change and class of targets, with the signal that its measurements support."""
    groups: dict[Key, list[Experience]] = {}
    for row in brief.measured:
        groups.setdefault((row.kind, tuple(sorted(row.change.items())), row.applies_to), []).append(row)
    return ConsolidatorAnswer(experience=tuple(merge(rows) for rows in groups.values()))


def merge(rows: list[Experience]) -> Experience:
    """The row nearest to the mean stands for its group: an effect that is stated was measured."""
    known = [row for row in rows if row.effect is not None]
    if not known:
        return rows[0]
    mean = fmean(row.effect for row in known if row.effect is not None)
    chosen = min(known, key=lambda row: (abs((row.effect or 0.0) - mean), row.id))
    signs = {sign(row) for row in known}
    clear = signs <= {1} or signs <= {-1}
    signal = "confirmed" if clear and len(known) > 1 else "probable" if clear else "tentative"
    return chosen.model_copy(update={"signal": signal, "text": f"{chosen.text.rstrip()} {agreement(known)}".strip()})


def sign(row: Experience) -> int:
    """1 or -1 when the interval is clear of zero, else 0."""
    if row.interval is None:
        return 0
    low, high = row.interval
    return 1 if low > 0 else -1 if high < 0 else 0


def agreement(rows: list[Experience]) -> str:
    effects = ", ".join(f"{row.effect:+.1%}" for row in rows)
    return f"Measured on {len(rows)} candidate{'s' * (len(rows) > 1)}: {effects}."
