"""A coding agent's command line as an author: it gets the brief as files, and what it leaves in the folder is read.

It works alone, without tools of ours and without a person. Each run is confined (shell.py) and ends at a deadline; what
it did outside of its write scope is put back and recorded.
"""

import os
import tempfile
import time
from pathlib import Path

from pydantic import Field

from ckb.facts import Frozen
from ckb.records import Choice
from roles.author import Answer, AnyBrief, AuthorError, NoAnswer, Usage
from roles.authors.cli.bill import Bill
from roles.authors.cli.files import ANSWER_FILE, BRIEF_FILE, FAULTS_FILE, TREE, as_files
from roles.authors.cli.presets import argv_of
from roles.authors.cli.shell import Command, Finished, Shell
from roles.authors.cli.told import Told
from roles.authors.cli.workplace import Workplace
from roles.briefs import Hypothesis, ImplementerBrief
from roles.budget import Budget
from roles.completion import Message
from roles.redact import SHORTEST, redact
from roles.replies import FormatError, parse
from roles.settings import CliSettings
from roles.table import ROLES
from roles.tools.files import Files
from roles.tools.handing_in import OneAnswer, ReportGap, Tree
from roles.transcript import ExchangeRecord, Transcript, brief_hash

LAST_WORDS = 600
"""Characters of a command's output that an error quotes."""
LONGEST_RECORD = 20_000
"""Characters of its output that the transcript keeps, from the end."""


class Work(Frozen):
    """What an implementer's ANSWER.json says of the tree beside it; all of it may be left out."""

    summary: str = Field("its author gave no summary", min_length=1)
    choices: dict[str, Choice] = Field(default_factory=dict)
    missing_contract: str | None = None
    filed: tuple[Hypothesis, ...] = ()


class CliAuthor:
    """Answers any role by running a command in a fresh folder."""

    name = "cli"

    def __init__(self, settings: CliSettings, shell: Shell, budget: Budget, transcript: Transcript | None = None):
        self._settings = settings
        self._shell = shell
        self._budget = budget
        self._transcript = transcript

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        """Raises AuthorError when the command can't be run, NoAnswer when it fails, never ends, or leaves nothing
        behind that can be used."""
        bill = Bill(self._settings, self._budget)
        variables = variables_of(self._settings)
        writes = (ANSWER_FILE, *(f"{TREE}/{name}" for name in ROLES[brief.role].writes))
        with tempfile.TemporaryDirectory(prefix="enginesmith-cli-", ignore_cleanup_errors=True) as place:
            workplace = Workplace(Path(place).resolve(), as_files(brief), writes)
            try:
                answer = self._work(brief, workplace, variables, bill)
            except AuthorError as error:
                error.usage = bill.usage() if bill.runs else None
                raise
        return answer, bill.usage()

    def _work(self, brief: AnyBrief, workplace: Workplace, variables: dict[str, str], bill: Bill) -> Answer:
        fault = ""
        for number in range(self._settings.attempts):
            finished, told = bill.run(lambda: run(self._settings, self._shell, workplace.folder, variables))
            outside, cluttered = put_back(workplace)
            answer, broken, fault = None, failure(self._settings, finished, told) or cluttered, ""
            if not broken:
                try:
                    answer = result(brief, workplace, variables)
                except FormatError as error:
                    fault = str(error)
            bill.outside += outside
            fault = redact(broken or fault, variables)
            self._record(brief, number, finished, fault, outside, variables)
            if answer is not None:
                return answer
            if broken:
                raise NoAnswer(fault)
            workplace.add(FAULTS_FILE, f"What you left here can't be used. Mend it:\n\n{fault}\n")
        runs = f"{bill.runs} run(s) (attempts: {self._settings.attempts})"
        raise NoAnswer(f"{self._settings.label} left no answer as {brief.role} in {runs}, last: {fault}")

    def _record(
        self,
        brief: AnyBrief,
        number: int,
        finished: Finished,
        fault: str,
        outside: tuple[str, ...],
        variables: dict[str, str],
    ) -> None:
        if self._transcript is None:
            return
        self._transcript.append(
            ExchangeRecord(
                role=brief.role,
                brief=brief_hash(brief),
                turn=number,
                sent=(Message(role="user", content=as_files(brief)[BRIEF_FILE]),),
                reply=Message(role="assistant", content=redact(finished.output[-LONGEST_RECORD:], variables)),
                fault=fault,
                outside=outside,
                at=time.time(),
            )
        )


def variables_of(settings: CliSettings) -> dict[str, str]:
    """The environment variables that the command is given. Raises AuthorError for one that isn't set."""
    if missing := [name for name in settings.environment if name not in os.environ]:
        raise AuthorError(
            f"the environment variable {missing[0]} (environment of the author {settings.label}) is not set"
        )
    return {name: os.environ[name] for name in settings.environment}


def run(settings: CliSettings, shell: Shell, folder: Path, variables: dict[str, str]) -> Finished:
    """One run of the command on the brief in a folder. Raises UserError where it can't be run."""
    argv = argv_of(settings, folder, folder / BRIEF_FILE)
    command = Command(argv, folder, settings.timeout_s, variables, settings.read, settings.write)
    return shell.run(command)


def put_back(workplace: Workplace) -> tuple[tuple[str, ...], str]:
    """What was put back, and why that was not possible, or empty."""
    try:
        return workplace.put_back(), ""
    except FormatError as error:
        return (), str(error)


def failure(settings: CliSettings, finished: Finished, told: Told) -> str:
    """Why a run is of no use whatever it left behind; empty if it may be."""
    words = " ".join((finished.errors.strip() or finished.output.strip())[-LAST_WORDS:].split())
    last = f"; its last words: {words}" if words else ""
    if finished.ended:
        return f"{settings.label} was ended: {finished.ended}{last}"
    if finished.status != 0:
        return f"{settings.label} failed with exit status {finished.status}{last}"
    return f"{settings.label} says that it failed: {told.failure[:LAST_WORDS]}" if told.failure else ""


def result(brief: AnyBrief, workplace: Workplace, variables: dict[str, str]) -> Answer:
    """The answer that lies in a folder. Raises FormatError for one that can't be used; a claim alone is none."""
    text = workplace.taken(ANSWER_FILE)
    if not isinstance(brief, ImplementerBrief):
        if text is None:
            raise FormatError(f"there is no {ANSWER_FILE}")
        no_secret(ANSWER_FILE, text, variables)
        return OneAnswer(brief).plain(text)
    writes = ROLES[brief.role].writes
    found = {name: workplace.taken(f"{TREE}/{name}") for name in writes}
    files = Files({name: text for name, text in found.items() if text is not None}, writes)
    work = parse(Work, "{}" if text is None else text)
    for name, content in (*files.texts.items(), (ANSWER_FILE, text or "")):
        no_secret(name, content, variables)
    tree = Tree(brief, files)
    if work.missing_contract is not None:
        return tree.gap(ReportGap(contract=work.missing_contract, why=work.summary))
    return tree.handed_in(work.summary, work.choices, work.filed)


def no_secret(name: str, text: str, variables: dict[str, str]) -> None:
    """Raises FormatError for a file with what only the command may know: answers go into git and into reports."""
    for variable, value in variables.items():
        if len(value) >= SHORTEST and value in text:
            raise FormatError(f"{name} holds the value of the environment variable {variable}")
