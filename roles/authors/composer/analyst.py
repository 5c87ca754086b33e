"""Failure analyst: from the failed gate and its evidence to the contract and the kind of cause."""

from roles.author import AuthorError
from roles.briefs import AnalystAnswer, AnalystBrief, Evidence

SIGNS = (
    (("memory", "MemoryError", "SIGILL", "Illegal instruction", "compiler"), "platform limit"),
    (("TIMEOUT", "deadline", "did not answer"), "implementation"),
    (("harness", "could not be measured"), "harness"),
)
"""Words of evidence -> what kind of cause they speak for; the first that matches counts."""

NEXT = {
    "knowledge gap": "extend the knowledge base: the contract needs a fragment whose condition this Target meets",
    "wrong assumption": "compare the contract's text with the checkpoint's config: a fragment's condition is too wide",
    "implementation": "mend the fragment that fulfils the contract, or lower its rank",
    "platform limit": "choose another option for the decision that the contract leaves open",
    "harness": "run the gate again on an idle machine before anything else is changed",
}


def analyse(brief: AnalystBrief) -> AnalystAnswer:
    """Blames the earliest contract in the order of construction, for later failures tend to follow from it.

    Raises AuthorError without evidence.
    """
    if not brief.failures:
        raise AuthorError(f"issue {brief.issue} has no evidence to analyse")
    order = [contract.id for contract in brief.contracts]
    place = {name: index for index, name in enumerate(order)}
    first = min(brief.failures, key=lambda failure: place.get(failure.contract, len(order)))
    contract = first.contract if first.contract in place else order[-1]
    cause = cause_of(first)
    return AnalystAnswer(
        cause=cause,
        contract=contract,
        explanation=f"gate {first.gate}: {first.summary}",
        next_step=NEXT[cause],
    )


def cause_of(failure: Evidence) -> str:
    for words, cause in SIGNS:
        if any(word.lower() in failure.summary.lower() for word in words):
            return cause
    return "wrong assumption" if failure.gate.startswith("acceptance") else "implementation"
