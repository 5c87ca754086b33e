"""What an experience row of a run rests on, and what that allows: a rule for many targets, or a fact about one.

What a run learned is stored twice. The *rule* names the class of targets for which it should hold, and stays a draft
until two targets support it. The *fact* names the model, the machine, the precision and the batch that it was found on,
and may be used there at once. Neither is more than tentative without a measured effect above noise, or a failing test
that it fixed (MetaInfer, section 3.3; docs/design/009-consolidation.md).
"""

from ckb.facts import Facts
from ckb.hashing import sha256_json
from ckb.satisfiable import satisfiable
from ckb.schemas.experience import Evidence, Experience

TARGETS_OF_A_RULE = 2
"""Different targets that must support a rule before generation may use it."""


def target_of(facts: Facts) -> str:
    """What a finding was made on, in words. Workloads that differ in their lengths alone are one target."""
    model, platform, workload = facts.model, facts.platform, facts.workload
    return (
        f"{model.model_type} of {model.layers} layers x {model.hidden} in {model.weights}, "
        f"{platform.count} x {platform.name}, {workload.dtype} at batch {workload.batch}"
    )


def local_condition(facts: Facts) -> str:
    """The predicate that holds for the target of `facts`, and for no other model, machine, precision or batch."""
    model, platform = facts.model, facts.platform
    names = {
        "model.model_type": model.model_type,
        "model.layers": model.layers,
        "model.hidden": model.hidden,
        "model.weights": model.weights,
        "platform.name": platform.name,
        "platform.count": platform.count,
        "workload.dtype": facts.workload.dtype,
        "workload.batch": facts.workload.batch,
    }
    return " and ".join(f"{name} == {value!r}" for name, value in names.items())


def rule_and_fact(rule: Experience, facts: Facts) -> tuple[Experience, Experience]:
    """A run's finding as both of its rows. The fact keeps the rule's meaning: it is about the same thing."""
    place = sha256_json(local_condition(facts))[:8]
    fact = rule.model_copy(
        update={"id": f"{rule.id}-{place}", "meaning": rule.id, "scope": "fact", "applies_to": local_condition(facts)}
    )
    return rule.model_copy(update={"scope": "rule", "meaning": rule.id}), fact


def sign(row: Experience | Evidence) -> int:
    """1 or -1 when the interval of the effect is clear of zero, else 0."""
    if row.effect is None or row.interval is None:
        return 0
    low, high = row.interval
    return 1 if low > 0 else -1 if high < 0 else 0


def supported(row: Experience) -> bool:
    """Whether a row rests on an effect above noise, or on a test that failed and passes. A test that was fixed says
    nothing of how fast a change is."""
    return bool(sign(row) or (row.fixed and row.kind != "optimisation" and not row.change))


def targets(row: Experience) -> set[str]:
    """The different targets whose evidence the row rests on; what is within noise is none."""
    return {item.target for item in row.evidence if sign(item) or item.fixed}


def standing(row: Experience) -> Experience:
    """A run's row with the signal and the status that its evidence allows, never more than it claims."""
    signal = row.signal if supported(row) else "tentative"
    alone = row.scope == "rule" and len(targets(row)) < TARGETS_OF_A_RULE
    return row.model_copy(
        update={"signal": signal, "status": "draft" if signal == "tentative" or alone else row.status}
    )


def same_claim(a: Experience, b: Experience) -> bool:
    """Whether two rows of one meaning say the same of the same class of targets, however large they found it."""
    names = ("kind", "scope", "change", "metric", "applies_to")
    alike = sign(a) == sign(b) and supported(a) == supported(b)
    return alike and all(getattr(a, name) == getattr(b, name) for name in names)


def opposed(a: Experience, b: Experience) -> bool:
    """Whether two rows can't both hold: they speak of one thing, and are clear of zero on different sides. Rows of
    other names speak of one thing by the same change, measured alike, where some Target may meet both."""
    named = (a.meaning or a.id) == (b.meaning or b.id)
    alike = bool(a.change) and (a.kind, a.change, a.metric) == (b.kind, b.change, b.metric)
    if sign(a) * sign(b) >= 0 or not (named or alike):
        return False
    return named or satisfiable(a.applies_to, b.applies_to) is not False


def merged(old: Experience, new: Experience) -> Experience:
    """One row for two findings of the same claim: the evidence of both, the numbers and words of the one that claims
    less. Two runs that agree confirm it. A status that its evidence does not explain was decided by somebody, or is
    that of a disputed rule: it stays."""
    evidence = tuple({(item.target, item.run): item for item in (*old.evidence, *new.evidence)}.values())
    least = min(old, new, key=lambda row: abs(row.effect or 0.0))
    claimed = {name: getattr(least, name) for name in ("effect", "interval", "title", "text")}
    agreed = supported(least) and len({item.run for item in evidence}) > 1
    signal = "confirmed" if agreed else old.signal
    row = old.model_copy(update={**claimed, "evidence": evidence, "signal": signal})
    decided = old.status != standing(old.model_copy(update={"status": "verified"})).status
    return row if decided else standing(row.model_copy(update={"status": "verified"}))
