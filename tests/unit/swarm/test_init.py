"""A Target from a checkpoint, a platform and the user's words."""

from pathlib import Path

import pytest

from roles.completion import CompletionReply, CompletionRequest, Message, Price
from roles.settings import LitellmSettings
from swarm.init import completed, configured_model, draft_target, header
from swarm.target import TargetError
from swarm.target_text import render_target
from tests.unit.ckb.samples import FACTS, facts

SETTINGS = LitellmSettings(model="openai/some-model", usd_per_million_prompt=0, usd_per_million_completion=0)


class Provider:
    """A model that edits one line of the draft it was given, in a fenced block."""

    def __init__(self, old: str, new: str):
        self._old, self._new = old, new

    def complete(self, request: CompletionRequest) -> CompletionReply:
        prompt = request.messages[-1].content
        draft = prompt[prompt.rindex("yaml\n") + 5 :].split("\n```")[0]
        assert self._old in draft
        content = f"Here it is.\n```yaml\n{draft.replace(self._old, self._new)}\n```"
        message = Message(role="assistant", content=content)
        return CompletionReply(
            message=message, finish_reason="stop", prompt_tokens=9, completion_tokens=9, usd=0.0, seconds=0.1
        )

    def price(self, model: str) -> Price | None:
        return Price(prompt=0.0, completion=0.0)


def draft_text() -> str:
    return render_target(draft_target(Path("/models/x"), FACTS.model, FACTS.platform, "long prompts"))


def test_the_words_become_values_of_the_target() -> None:
    old = draft_target(Path("/models/x"), FACTS.model, FACTS.platform, "").workload.prompt_tokens[0]
    provider = Provider(f"prompt_tokens: [{old}]", "prompt_tokens: [5]")
    target, text = completed("long prompts", draft_text(), SETTINGS, provider)
    assert target.workload.prompt_tokens == (5,)
    assert "# Prompt lengths to measure" in text, "the comments stay"


def test_an_answer_that_is_no_target_is_refused_with_its_faults() -> None:
    with pytest.raises(
        TargetError, match=r"the answer of openai/some-model has 1 fault.*\n  search.parallel: .*got 'many'"
    ):
        completed("many at once", draft_text(), SETTINGS, Provider("parallel: 4", "parallel: many"))


def test_a_draft_fits_the_model_and_the_machine() -> None:
    short = facts(max_positions=10)
    target = draft_target(Path("/models/x"), short.model, short.platform, "")
    assert target.workload.prompt_tokens[0] + target.workload.new_tokens[0] <= 10
    assert target.constraints.dtype == "float32"
    device = FACTS.platform.model_copy(update={"accelerator": "cuda"})
    assert draft_target(Path("/models/x"), FACTS.model, device, "").constraints.dtype == "bfloat16"


def test_every_line_of_the_header_is_a_comment() -> None:
    text = header(FACTS.model, FACTS.platform, "one line\nand: another " * 20)
    assert all(line.startswith("#") for line in text.splitlines())
    assert f"{FACTS.model.layers} layers" in text


def test_the_environment_names_the_model_that_reads_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGINESMITH_MODEL", raising=False)
    assert configured_model() is None
    monkeypatch.setenv("ENGINESMITH_MODEL", "openai/x")
    monkeypatch.setenv("ENGINESMITH_API_BASE", "http://127.0.0.1:1/v1")
    assert configured_model() == LitellmSettings(model="openai/x", api_base="http://127.0.0.1:1/v1")
