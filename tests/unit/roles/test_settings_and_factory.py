"""From what a user writes to the author who answers."""

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from ckb.errors import KnowledgeGap
from roles import briefs as b
from roles.author import AuthorError, Usage
from roles.authors.by_hand import check_author
from roles.authors.factory import make_author
from roles.budget import Unlimited
from roles.settings import ComposerSettings, LitellmSettings, ReplaySettings, settings_for
from roles.transcript import AnswerRecord, Transcript, read_transcript
from tests.unit.roles.example_briefs import BRIEFS, REVIEWER

MODEL = LitellmSettings(model="provider/model")


def test_a_role_gets_the_author_that_is_named_for_it_else_the_default_else_the_composer() -> None:
    replay = ReplaySettings(transcript="t.jsonl")
    assert settings_for({"default": replay, "reviewer": MODEL}, "reviewer") == MODEL
    assert settings_for({"default": replay, "reviewer": MODEL}, "judge") == replay
    assert settings_for({"reviewer": MODEL}, "judge") == ComposerSettings()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"model": ""}, "at least 1 character"),
        (
            {"model": "m", "usd_per_million_prompt": 1},
            "give both usd_per_million_prompt and usd_per_million_completion",
        ),
        ({"model": "m", "api_key": "sk-secret"}, "Extra inputs are not permitted"),
        ({"model": "m", "temperature": 3}, "less than or equal to 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        LitellmSettings.model_validate(fields)


def test_the_composers_answers_are_recorded_and_replay(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    composer = make_author(ComposerSettings(), gateway=None, budget=Unlimited(), transcript=transcript)
    replay = ReplaySettings(transcript="t.jsonl")
    answers = {role: composer.answer(BRIEFS[role]) for role in ("reviewer", "judge", "orchestrator")}
    transcript.close()
    records = read_transcript(tmp_path / "t.jsonl")
    assert [(r.role, r.author) for r in records if isinstance(r, AnswerRecord)] == [(r, "composer") for r in answers]
    replayed = make_author(replay, gateway=None, budget=Unlimited(), home=tmp_path)
    for role, (answer, _) in answers.items():
        assert replayed.answer(BRIEFS[role])[0] == answer
    with pytest.raises(AuthorError, match="no answer to this brief left"):
        replayed.answer(REVIEWER)


def test_a_model_without_a_gateway_is_an_error_and_the_composer_needs_no_check() -> None:
    with pytest.raises(AuthorError, match="'provider/model' needs a gateway"):
        make_author(MODEL, gateway=None, budget=Unlimited())
    assert check_author(ComposerSettings()).answer == "embedded: no call, no cost"


def test_the_errors_of_an_author_survive_the_way_between_processes() -> None:
    for error in (KnowledgeGap("rope", "a model"), AuthorError("no key", Usage(author="litellm", usd=1.0))):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_composer_that_is_asked_as_reviewer_answers_as_reviewer() -> None:
    answer, usage = make_author(ComposerSettings(), gateway=None, budget=Unlimited()).answer(REVIEWER)
    assert isinstance(answer, b.ReviewerAnswer)
    assert (usage.author, usage.usd) == ("composer", 0)
