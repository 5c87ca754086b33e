"""What shows only in long answers and after long use: a limit inside of an answer, a counter or a page that leaks.

It follows the greedy tokens of the acceptance, so the engine has made those before, in the same process.
"""

from benchmarks import prompts
from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.cases import plan, said
from gpu_actors.gates.evidence import Said
from gpu_actors.gates.integration import outside_the_band

SCREENED = 96
"""New tokens of the long answer in a screen; the other acceptance asks for as many as the Target allows."""
AGAIN = 8
BAND = 8.0
"""What a benchmark allows, too: of a hundred tokens one may be as close a tie as no other gate's few tokens are, and
what is looked for here lies far below the best."""


def lasting(subject: Subject) -> Finding:
    """An answer as long as the Target's longest, after a short prompt and after the longest one, token by token the
    best of the engine's own logits; and behind them the first prompt again, with the same answer."""
    subject.load_engine()
    asked, workload = plan(subject), subject.facts.workload
    screen = asked.which == "screen"
    new = min(SCREENED, workload.max_new) if screen else workload.max_new
    lengths = [min(3, asked.context - new)] + ([] if screen else [max(1, asked.context - new)])
    drawn = prompts.cut(subject.checkpoint, lengths, int(subject.draws("lasting").integers(1 << 30)))
    few = min(AGAIN, new)
    first = said(subject, drawn[0], few)
    answers = [said(subject, prompt, new) for prompt in drawn]
    for prompt, tokens in zip(drawn, answers, strict=True):
        if fault := outside_the_band(subject, prompt, tokens, BAND):
            return failed(f"{new} tokens after {len(prompt)}: {fault}")
    again = said(subject, drawn[0], few)
    if again != first:
        return failed(
            f"after {sum(map(len, answers))} more tokens the same prompt is answered with {again}, not {first}"
        )
    return passed(f"{new} tokens after each of {lengths}, then the first prompt again", tokens=answers)


GATES = (Gate("lasting", "engine", "acceptance", lasting, level="L3", evidence=Said, repeatable=False),)
