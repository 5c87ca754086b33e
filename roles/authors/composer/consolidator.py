"""Consolidator: generalises measured effects by how many candidates agree on them, and keeps what was mended."""

from ckb.facts import Facts
from ckb.records import Choice
from roles.briefs import ConsolidatorAnswer, ConsolidatorBrief, Lesson, Mended

Key = tuple[str, tuple[tuple[str, Choice], ...], str]


def consolidate(brief: ConsolidatorBrief) -> ConsolidatorAnswer:
    """One row for each change and class of targets, with the signal that its measurements support."""
    groups: dict[Key, list[Lesson]] = {}
    for row in brief.measured:
        groups.setdefault((row.kind, tuple(sorted(row.change.items())), row.applies_to), []).append(row)
    mended = (remembered(item, brief.facts) for item in brief.mended)
    return ConsolidatorAnswer(experience=(*(merge(rows) for rows in groups.values()), *mended))


def remembered(mended: Mended, facts: Facts) -> Lesson:
    """A gate that a later attempt passed: what it had found, for whoever meets it again."""
    where = mended.evidence
    return Lesson(
        id=f"mended-{where.contract}-{where.gate}",
        title=f"Gate {where.gate} of contract {where.contract} failed first",
        kind="failure_mode",
        applies_to=f"platform.accelerator == {facts.platform.accelerator!r}",
        signal="probable",
        fixed=mended.id,
        text=f"It found: {where.summary.rstrip('.')}. The attempt that passed: {mended.notes or 'no notes'}",
    )


def merge(rows: list[Lesson]) -> Lesson:
    """The row of the median effect stands for its group, of two in the middle the one that claims less."""
    known = [row for row in rows if row.effect is not None]
    if not known:
        return rows[0]
    known.sort(key=lambda row: (abs(row.effect or 0.0), row.id))
    chosen = known[(len(known) - 1) // 2]
    signs = {sign(row) for row in known}
    clear = signs <= {1} or signs <= {-1}
    signal = "confirmed" if clear and len(known) > 1 else "probable" if clear else "tentative"
    return chosen.model_copy(update={"signal": signal, "text": f"{chosen.text.rstrip()} {agreement(known)}".strip()})


def sign(row: Lesson) -> int:
    """1 or -1 when the interval is clear of zero, else 0."""
    if row.interval is None:
        return 0
    low, high = row.interval
    return 1 if low > 0 else -1 if high < 0 else 0


def agreement(rows: list[Lesson]) -> str:
    effects = ", ".join(f"{row.effect:+.1%}" for row in rows)
    return f"Measured on {len(rows)} candidate{'s' * (len(rows) > 1)}: {effects}."
