"""Answers from a stored transcript: the same answers again, without the author that gave them."""

import threading
from collections import defaultdict, deque
from pathlib import Path
from typing import Literal

from roles.author import Answer, AnyBrief, AuthorError, Usage
from roles.transcript import AnswerRecord, brief_hash, read_transcript, subject


class ReplayAuthor:
    """Gives each recorded answer once, in the order in which the same question was answered."""

    name = "replay"

    def __init__(self, transcript: Path, match: Literal["brief", "subject"] = "brief"):
        """Raises TranscriptError for a transcript that can't be read."""
        self._path = transcript
        self._match = match
        self._lock = threading.Lock()
        self._left: dict[tuple[str, str], deque[AnswerRecord]] = defaultdict(deque)
        for record in read_transcript(transcript):
            if isinstance(record, AnswerRecord):
                key = record.brief if match == "brief" else record.subject
                self._left[record.role, key].append(record)

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        """Raises AuthorError when no recorded answer to the brief is left. A replay costs nothing."""
        key = brief_hash(brief) if self._match == "brief" else subject(brief)
        with self._lock:
            records = self._left.get((brief.role, key))
            record = records.popleft() if records else None
        if record is None:
            raise AuthorError(f"the transcript {self._path} {self._what_is_left(brief)}")
        return record.answer, Usage(author=self.name, model=record.model)

    def _what_is_left(self, brief: AnyBrief) -> str:
        same_role = sum(len(records) for (role, _), records in self._left.items() if role == brief.role)
        what = "to this brief" if self._match == "brief" else f"about {subject(brief)!r}"
        return f"has no answer {what} left for the {brief.role}; {same_role} to other briefs of that role are unused"
