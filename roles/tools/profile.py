"""Where a decode step of the tree spends its time, for those whose brief has it."""

from ckb.facts import Frozen
from roles.briefs import EvaluatorBrief, ImplementerBrief
from roles.tools.offer import Offer, Offers


class ReadProfile(Frozen):
    pass


class Profile:
    """The tool `read_profile`."""

    def __init__(self, brief: ImplementerBrief | EvaluatorBrief):
        self._brief = brief
        about = "Shows which part of a decode step takes how much of its time, as the harness measured it."
        self.offers: Offers = (Offer("read_profile", about, ReadProfile, self._read),)

    def _read(self, _: ReadProfile) -> str:
        brief = self._brief
        ordered = sorted(brief.shares.items(), key=lambda part: -part[1])
        lines = [f"- {part}: {share:.1%}" for part, share in ordered]
        of = "of a decode step by the part of the engine that takes them"
        whole = f"; a step takes {brief.step_ms:.3f} ms by our clock" if brief.step_ms is not None else ""
        return "\n".join([f"Shares {of}{whole}:", *lines])
