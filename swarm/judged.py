"""What `verify --json` prints, for whoever starts it: a verdict, and what a reader needs to follow it up."""

from ckb.facts import Frozen
from gpu_actors.jobs import Verdict


class Judged(Frozen):
    verdict: Verdict
    told: tuple[str, ...]
    """The same in lines for people, without the gates that it passed."""
    evidence: str
    """Folder of the files that the gates name."""
    seed: int
    """Of the draws: the same one asks the same again."""
