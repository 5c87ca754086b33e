"""What is written down is read back, survives a killed writer, and replays; a replay that runs out says so."""

from pathlib import Path

import pytest

from roles import briefs as b
from roles.author import Answer, AnyBrief, AuthorError, Usage
from roles.authors.by_hand import check_author
from roles.authors.replay import ReplayAuthor
from roles.settings import ReplaySettings
from roles.transcript import AnswerRecord, Recorded, Transcript, TranscriptError, brief_hash, read_transcript, subject
from tests.unit.roles.example_briefs import BRIEFS, EVALUATOR, FAILED, FILES, HYPOTHESIS, IMPLEMENTER, MEASURED

ANSWERS: dict[str, Answer] = {
    "implementer": b.ImplementerAnswer(files=FILES, choices={"BLOCK": 8, "FAST": True, "x": 1.5}, summary="plain"),
    "reviewer": b.ReviewerAnswer(),
    "judge": b.JudgeAnswer(),
    "evaluator": b.EvaluatorAnswer(hypotheses=(HYPOTHESIS,)),
    "orchestrator": b.OrchestratorAnswer(dispatch=(0,), memory="Try tiles."),
    "analyst": b.AnalystAnswer(cause="implementation", contract="linear", explanation="e", next_step="n"),
    "consolidator": b.ConsolidatorAnswer(experience=(MEASURED,)),
}


class Scripted:
    """Gives prepared answers, one after the other."""

    name = "scripted"

    def __init__(self, *answers: Answer):
        self.answers = list(answers)

    def answer(self, brief: AnyBrief) -> tuple[Answer, Usage]:
        return self.answers.pop(0), Usage(author=self.name, model="m", prompt_tokens=7, usd=0.5, seconds=2.0)


def record(path: Path, *pairs: tuple[AnyBrief, Answer]) -> None:
    transcript = Transcript(path)
    author = Recorded(Scripted(*(answer for _, answer in pairs)), transcript)
    for brief, _ in pairs:
        author.answer(brief)
    transcript.close()


def test_every_roles_answer_replays_the_same_even_where_several_look_alike(tmp_path: Path) -> None:
    record(tmp_path / "t.jsonl", *((BRIEFS[role], answer) for role, answer in ANSWERS.items()))
    replay = ReplayAuthor(tmp_path / "t.jsonl")
    for role, answer in reversed(ANSWERS.items()):
        again, usage = replay.answer(BRIEFS[role])
        assert (type(again), again) == (type(answer), answer)
        assert (usage.author, usage.usd, usage.prompt_tokens) == ("replay", 0, 0)
    first = read_transcript(tmp_path / "t.jsonl")[0]
    assert isinstance(first, AnswerRecord)
    assert (first.author, first.model, first.seconds, first.usage.usd) == ("scripted", "m", 2.0, 0.5)
    assert first.at > 1_700_000_000


def test_the_same_question_gets_its_answers_in_order_and_then_an_error(tmp_path: Path) -> None:
    one, two = (b.ImplementerAnswer(files=FILES, summary=s) for s in ("one", "two"))
    record(tmp_path / "t.jsonl", (IMPLEMENTER, one), (IMPLEMENTER, two))
    replay = ReplayAuthor(tmp_path / "t.jsonl")
    assert [replay.answer(IMPLEMENTER)[0] for _ in range(2)] == [one, two]
    with pytest.raises(AuthorError, match=r"t\.jsonl has no answer to this brief left for the implementer; 0 to other"):
        replay.answer(IMPLEMENTER)


def test_another_run_matches_and_another_question_does_not(tmp_path: Path) -> None:
    record(tmp_path / "t.jsonl", (IMPLEMENTER, ANSWERS["implementer"]))
    assert brief_hash(IMPLEMENTER.model_copy(update={"run": "run-2"})) == brief_hash(IMPLEMENTER)
    with pytest.raises(AuthorError, match="1 to other briefs of that role are unused"):
        ReplayAuthor(tmp_path / "t.jsonl").answer(IMPLEMENTER.model_copy(update={"seed": 2}))


def test_by_subject_briefs_with_other_measured_numbers_replay_too(tmp_path: Path) -> None:
    other = IMPLEMENTER.model_copy(update={"seed": 2})
    answers = [b.ImplementerAnswer(files=FILES, summary=s) for s in ("one", "two")]
    pairs = [(IMPLEMENTER, answers[0]), (other, answers[1]), (EVALUATOR, ANSWERS["evaluator"])]
    record(tmp_path / "t.jsonl", *pairs)
    replay = ReplayAuthor(tmp_path / "t.jsonl", "subject")
    evidence = FAILED.model_copy(update={"summary": "another number"})
    assert replay.answer(other.model_copy(update={"failures": (evidence,)}))[0] == answers[1]
    assert replay.answer(EVALUATOR.model_copy(update={"current": 79.9}))[0] == ANSWERS["evaluator"]
    with pytest.raises(AuthorError, match="no answer about 'execution/2' left for the implementer; 1 to other"):
        replay.answer(other)
    assert (subject(IMPLEMENTER), subject(EVALUATOR)) == ("execution/1", "")


def test_a_line_that_a_killed_writer_left_torn_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    record(path, (IMPLEMENTER, ANSWERS["implementer"]))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(read_transcript(path)) == 1
    record(path, (BRIEFS["judge"], b.JudgeAnswer()))
    assert [r.role for r in read_transcript(path)] == ["implementer", "judge"]


def test_several_writers_of_one_file_leave_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    first = Transcript(path)
    Recorded(Scripted(b.JudgeAnswer()), first).answer(BRIEFS["judge"])
    record(path, (IMPLEMENTER, ANSWERS["implementer"]))
    Recorded(Scripted(b.ReviewerAnswer()), first).answer(BRIEFS["reviewer"])
    first.close()
    assert [r.role for r in read_transcript(path)] == ["judge", "implementer", "reviewer"]


def test_a_folder_of_transcripts_is_read_whole(tmp_path: Path) -> None:
    record(tmp_path / "b.jsonl", (BRIEFS["judge"], b.JudgeAnswer()))
    record(tmp_path / "a.jsonl", (IMPLEMENTER, ANSWERS["implementer"]))
    assert [r.role for r in read_transcript(tmp_path)] == ["implementer", "judge"]
    check = check_author(ReplaySettings(transcript=tmp_path.name), home=tmp_path.parent)
    assert (check.author, check.answer) == ("replay", "2 recorded answers")


def test_a_bad_transcript_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with pytest.raises(TranscriptError, match="No such file"):
        ReplayAuthor(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TranscriptError, match="holds no transcript"):
        read_transcript(tmp_path / "empty")
    record(path, (IMPLEMENTER, ANSWERS["implementer"]))
    line = path.read_text()
    path.write_text(line + line.replace('"role":"implementer"', '"role":"reviewer"'))
    with pytest.raises(TranscriptError, match=r"line 2 is no transcript record: answer\.answer"):
        read_transcript(path)
