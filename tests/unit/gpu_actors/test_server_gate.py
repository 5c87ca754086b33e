"""What the server's gate hears, and what it takes for wrong: without a socket."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu_actors.child import ENGINE, Child
from gpu_actors.engine_process import confinement, open_tree
from gpu_actors.gates.base import Subject
from gpu_actors.gates.client import Fault, Response, differ, heard
from gpu_actors.gates.conversations import in_parts
from gpu_actors.gates.crowd import spoken
from gpu_actors.gates.integration import CONVERSATION, conversation
from gpu_actors.jobs import EngineJob
from gpu_actors.reference import Reference
from gpu_actors.sandbox import UNTIMED
from tests.unit.gpu_actors import tiny

REFUSING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "llama", "llama")


@contextmanager
def opened(engine: EngineJob, work: Path) -> Iterator[Subject]:
    """A tree in a process of its own, with its engine loaded."""
    rules = confinement(engine, work / "cache", environment=UNTIMED)
    with (
        Reference(work / "cache", Path(engine.checkpoint), engine.facts) as reference,
        Child(ENGINE, rules) as child,
        Subject(tiny.verify_job(engine), child, reference, time.monotonic() + 300, work) as subject,
    ):
        open_tree(child, engine, 120.0)
        subject.load_engine()
        yield subject


def of(checkpoint: Path, work: Path, name: str, edits: dict[str, tuple[str, str]] | None = None) -> EngineJob:
    return tiny.engine_job(tiny.write_engine(work / name, "llama", edits), checkpoint)


def stream(*ids: str) -> Response:
    lines = [json.dumps({"id": name, "choices": [{"text": "a", "finish_reason": None}]}) for name in ids]
    return Response(200, "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]))


def test_an_answer_has_one_id_and_no_two_answers_share_it() -> None:
    one, other = (heard(stream(name, name), {"stream": True}, "a text") for name in ("x", "y"))
    assert (one.text, one.id) == ("aa", "x")
    differ([one, other])
    with pytest.raises(Fault, match="3 answers have 2 ids"):
        differ([one, other, one])
    with pytest.raises(Fault, match="have 2 ids"):
        heard(stream("x", "y"), {"stream": True}, "a text")
    with pytest.raises(Fault, match="the id of the answer is ''"):
        heard(stream(""), {"stream": True}, "a text")
    with pytest.raises(Fault, match="a text: there is no choice"):
        heard(Response(200, "application/json", '{"id": "x", "choices": []}'), {}, "a text")
    with pytest.raises(Fault, match="a text: it answers 500"):
        heard(Response(500, "application/json", "{}"), {}, "a text")


def test_a_right_server_says_what_its_engine_says_and_a_template_may_refuse_the_system(
    checkpoint: Path, tmp_path: Path
) -> None:
    with opened(of(checkpoint, tmp_path, "right"), tmp_path) as subject:
        messages, ids = conversation(subject)
        talk = in_parts(subject)
        assert messages == CONVERSATION
        assert talk is not None
        assert talk.ids == ids
        assert [part["text"] for part in talk.messages[-1]["content"]] == ["Where doe", "s it end?"]
        spoken(subject, "served", talk)
        other = tmp_path / "refusing"
        shutil.copytree(checkpoint, other)
        (other / "tokenizer_config.json").write_text(json.dumps({"chat_template": REFUSING}))
        refusing = subject.other_form(subject.job.engine.model_copy(update={"checkpoint": str(other)}), subject.child)
        messages, without = conversation(refusing)
        assert messages == CONVERSATION[1:]
        assert 0 < len(without) < len(ids)


@pytest.mark.parametrize(
    ("name", "edit", "fault"),
    [
        ("id", ('f"answer-{next(NUMBERS)}"', '"answer"'), "8 answers have 1 ids"),
        ("limit", ("MAX_CONTEXT - len(prompt) if chat else 16", "16"), "a chat without a limit"),
        ("newer_name", ('("max_completion_tokens", "max_tokens")', '("max_tokens",)'), "max_completion_tokens of 3"),
        ("stops", ('body.get("stop") or []', '(body.get("stop") or [])[:2]'), "four stop strings"),
    ],
)  # fmt: skip
def test_a_server_that_leaves_something_out_is_found(
    checkpoint: Path, tmp_path: Path, name: str, edit: tuple[str, str], fault: str
) -> None:
    engine = of(checkpoint, tmp_path, name, {"server.py": edit})
    with opened(engine, tmp_path) as subject, pytest.raises(Fault, match=fault):
        spoken(subject, "served", in_parts(subject))
