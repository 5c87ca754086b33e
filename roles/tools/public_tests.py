"""The tests of an implementer's stage, before it hands in: where a Target allows them, and on draws of their own."""

from collections.abc import Mapping
from typing import Protocol

from pydantic import Field

from ckb.facts import Frozen
from ckb.records import Choice
from roles.briefs import Evidence, ImplementerBrief
from roles.replies import FormatError
from roles.tools.handing_in import Tree
from roles.tools.offer import Offer, Offers


class Tried(Frozen):
    """What the tests found. It is no verdict: those are made on other draws, after the work is handed in."""

    passed: tuple[str, ...]
    """Names of the gates that let the tree through."""
    failures: tuple[Evidence, ...]
    blocked: tuple[str, ...] = ()
    """What could not be asked here, a line each."""
    device_seconds: float = 0.0
    """For which the device was held."""


class PublicTests(Protocol):
    def run(
        self, brief: ImplementerBrief, files: Mapping[str, str], choices: Mapping[str, Choice], number: int
    ) -> Tried:
        """Runs the gates of the brief's stage on a tree, in the sandbox. `number`: which run of this brief it is; each
        has draws of its own, and none those of a verdict. Whatever the tree does, it is a failure in the answer."""
        ...


class RunTests(Frozen):
    choices: dict[str, Choice] = Field(default_factory=dict)
    """The value taken for each decision and parameter, as for `submit`."""


class Tests:
    """The tool `run_tests`, at most `most` times in one conversation."""

    def __init__(self, brief: ImplementerBrief, tree: Tree, tests: PublicTests, most: int):
        self._brief = brief
        self._tree = tree
        self._tests = tests
        self._most = most
        self._runs = 0
        self.device_seconds = 0.0
        about = f"Runs the tests of your stage on the tree as it is, at most {most} times. Passing them is no verdict."
        self.offers: Offers = (Offer("run_tests", about, RunTests, self._run),)

    def _run(self, arguments: RunTests) -> str:
        if self._runs == self._most:
            raise FormatError(f"the tests ran {self._most} times already, which is all that the Target allows")
        answer = self._tree.handed_in("tried", arguments.choices)  # what can't be handed in is not worth a device
        tried = self._tests.run(self._brief, answer.files, answer.choices, self._runs)
        self._runs += 1
        self.device_seconds += tried.device_seconds
        return told(tried)


def told(tried: Tried) -> str:
    """What the tests found, in words."""
    lines = [f"{len(tried.passed)} test(s) passed: {', '.join(tried.passed) or 'none'}"]
    lines += [f"{failure.gate} of contract {failure.contract} failed: {failure.summary}" for failure in tried.failures]
    return "\n".join([*lines, *(f"not decided: {line}" for line in tried.blocked)])
