"""What authors were asked and what they answered: JSONL, one record a line, only ever appended. Holds no secret."""

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny, TypeAdapter, ValidationError, ValidationInfo, field_validator

from ckb.errors import UserError
from ckb.facts import Frozen
from ckb.hashing import sha256_json
from roles import briefs as b
from roles.author import Answer, AnyBrief, Author, Usage
from roles.briefs import RoleName
from roles.completion import Message
from roles.redact import redact
from roles.table import ROLES


class TranscriptError(UserError):
    """A transcript that can't be read; the message names file and line."""


def brief_hash(brief: AnyBrief) -> str:
    """What the role was asked, whichever run asked it."""
    return sha256_json(brief.model_dump(mode="json", exclude={"run"}))


def subject(brief: AnyBrief) -> str:
    """What the brief is about: the issue, and for an implementer which of them it is."""
    if isinstance(brief, b.ImplementerBrief):
        return f"{brief.issue}/{brief.seed}"
    return getattr(brief, "issue", "")


class AnswerRecord(Frozen):
    """One answered brief."""

    kind: Literal["answer"] = "answer"
    role: RoleName
    brief: str
    """brief_hash of the brief."""
    subject: str
    answer: SerializeAsAny[Answer]
    usage: Usage
    author: str
    model: str
    seconds: float
    at: float
    """Seconds since the epoch."""

    @field_validator("answer", mode="before")
    @classmethod
    def of_its_role(cls, value: object, info: ValidationInfo) -> object:
        """Several answers may all be empty: only the role tells which one it is."""
        role = info.data.get("role")
        return ROLES[role].answer.model_validate(value) if role else value


class ExchangeRecord(Frozen):
    """One turn of a conversation with a model: what was said to it since its last reply, and what it said."""

    kind: Literal["exchange"] = "exchange"
    role: RoleName
    brief: str
    turn: int
    sent: tuple[Message, ...]
    reply: Message
    fault: str = ""
    """Why (part of) the reply was of no use."""
    outside: tuple[str, ...] = ()
    """Paths that it wrote or wanted to write and its role may not."""
    at: float


Record = Annotated[AnswerRecord | ExchangeRecord, Field(discriminator="kind")]
RECORD: TypeAdapter[AnswerRecord | ExchangeRecord] = TypeAdapter(Record)


class Transcript:
    """Appends records to one file, which other processes of the machine may append to as well."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._threads = threading.Lock()
        self._file = path.open("ab", buffering=0)
        with self._alone():  # a writer that was killed may have left a torn line
            self._file.truncate(path.read_bytes().rfind(b"\n") + 1)

    def append(self, record: AnswerRecord | ExchangeRecord) -> None:
        line = redact(record.model_dump_json()) + "\n"
        with self._alone():
            self._file.write(line.encode())

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread and no other process writes meanwhile. The lock goes with a process that dies."""
        with self._threads:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)


def read_transcript(path: Path) -> list[AnswerRecord | ExchangeRecord]:
    """The records of a file, or of every *.jsonl of a folder in order of their names. A torn last line is left out."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise TranscriptError(f"the folder {path} holds no transcript (*.jsonl)")
    records = []
    for file in files:
        try:
            lines = file.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise TranscriptError(f"can't read the transcript {file}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            try:
                records.append(RECORD.validate_json(line))
            except ValidationError as error:
                fault = error.errors()[0]
                where = ".".join(map(str, fault["loc"]))
                raise TranscriptError(
                    f"{file} line {number} is no transcript record: {where}: {fault['msg']}"
                ) from error
    return records


class Recorded:
    """An author whose answers are written down."""

    def __init__(self, author: Author, transcript: Transcript):
        self.name = author.name
        self._author = author
        self._transcript = transcript

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        answer, usage = self._author.answer(brief)
        record = AnswerRecord(
            role=brief.role,
            brief=brief_hash(brief),
            subject=subject(brief),
            answer=answer,
            usage=usage,
            author=usage.author,
            model=usage.model,
            seconds=usage.seconds,
            at=time.time(),
        )
        self._transcript.append(record)
        return answer, usage
