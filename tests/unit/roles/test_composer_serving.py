"""The serving half of composed engines: text, sampling, scheduling and HTTP, through its own entry points."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoModelForCausalLM, LlamaConfig

from ckb.facts import Facts
from tests.unit.gpu_actors.tiny import write_tokenizer
from tests.unit.roles.composed import brief_of, compose, facts_of, imported

CONFIG = LlamaConfig(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    vocab_size=400,
    max_position_embeddings=256,
    rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    tie_word_embeddings=True,
)
TEMPLATE = "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
TEMPLATE += "<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-model")
    torch.manual_seed(5)
    AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32).save_pretrained(folder)
    write_tokenizer(folder / "tokenizer.json", 400)
    settings = {"bos_token": {"content": "<end>"}, "chat_template": [{"name": "default", "template": TEMPLATE}]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def package(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return imported(compose(brief_of(facts_of(CONFIG, "fp32"), {"linear": "torch"})), tmp_path_factory.mktemp("greedy"))


@pytest.fixture(scope="module")
def client(package: ModuleType, checkpoint: Path) -> Iterator[TestClient]:
    engine = package.engine.Engine.load(checkpoint)
    with TestClient(package.server.application(engine, "tiny")) as client:
        yield client


def sampling() -> Facts:
    facts = facts_of(CONFIG, "fp32")
    return facts.model_copy(update={"workload": facts.workload.model_copy(update={"decoding": "sample"})})


def post(client: TestClient, path: str = "completions", **body: Any) -> tuple[int, Any]:
    answer = client.post(f"/v1/{path}", json=body)
    return answer.status_code, answer.json()


def streamed(client: TestClient, path: str = "completions", **body: Any) -> list[Any]:
    lines = [line for line in client.post(f"/v1/{path}", json={**body, "stream": True}).text.splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


# --- text -------------------------------------------------------------------------------------------------------------


def test_text_is_streamed_in_whole_characters(package: ModuleType, checkpoint: Path) -> None:
    tokenizer = package.engine.Tokenizer(checkpoint)
    text = "Grüße, 世界 😀!"
    tokens = tokenizer.encode(text)
    stream = package.engine.TextStream(tokenizer)
    pieces = [stream.feed(token) for token in tokens]
    assert len(tokens) > len(text), "characters of several bytes are several tokens here"
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    assert stream.end() == ""
    cut = package.engine.TextStream(tokenizer)
    shown = "".join(cut.feed(token) for token in tokenizer.encode("a😀")[:-1])
    assert (shown, cut.end()) == ("a", "\ufffd")


def test_stop_strings_are_found_across_tokens_and_never_shown(package: ModuleType, checkpoint: Path) -> None:
    tokenizer = package.engine.Tokenizer(checkpoint)
    for text, stop, expected in (
        ("one END two", ("END",), "one "),
        ("one EN two", ("END",), "one EN two"),
        ("aab", ("ab", "aab"), ""),
        ("x<|", ("<|x|>",), "x<|"),
    ):
        stream, shown = package.engine.TextStream(tokenizer, stop), ""
        for token in tokenizer.encode(text):
            shown += stream.feed(token)
            if stream.stopped:
                break
        else:
            shown += stream.end()
        assert shown == expected, (text, stop)


# --- sampler ----------------------------------------------------------------------------------------------------------


def test_greedy_takes_the_first_of_equals_and_refuses_a_temperature(package: ModuleType) -> None:
    sampler = package.sampler.Sampler.from_request({"temperature": 0, "top_p": 0.1})
    assert sampler(torch.tensor([0.0, 2.0, 2.0])) == 1
    with pytest.raises(ValueError, match=r"temperature must be 0, not 0\.7"):
        package.sampler.Sampler.from_request({"temperature": 0.7})


def test_sampling_follows_temperature_top_k_top_p_and_seed(tmp_path: Path) -> None:
    make = imported(compose(brief_of(sampling(), {"linear": "torch"})), tmp_path).sampler.Sampler
    logits = torch.tensor([1.0, 3.0, 2.0, 0.0])
    chances = torch.softmax(logits / 0.8, 0)

    def drawn(count: int = 2000, **options: Any) -> torch.Tensor:
        sampler = make(temperature=0.8, seed=3, **options)
        return torch.bincount(torch.tensor([sampler(logits) for _ in range(count)]), minlength=4) / count

    assert (drawn() - chances).abs().max() < 0.04
    two = chances * torch.tensor([0, 1, 1, 0])
    assert (drawn(top_k=2) - two / two.sum()).abs().max() < 0.04
    assert (drawn(top_p=0.85) - two / two.sum()).abs().max() < 0.04
    assert drawn(50, top_p=0.01).tolist() == [0, 1, 0, 0]
    assert drawn(50).tolist() == drawn(50).tolist()
    assert make()(logits) == 1
    for name, value in (
        ("temperature", 3),
        ("top_p", 0),
        ("top_k", -1),
        ("top_k", 1.5),
        ("seed", "x"),
        ("top_p", True),
    ):
        with pytest.raises(ValueError, match=name):
            make.from_request({name: value})


# --- scheduler --------------------------------------------------------------------------------------------------------


def test_the_scheduler_keeps_order_bounds_its_queue_cancels_and_survives_failures(package: ModuleType) -> None:
    scheduling, gate, said = package.scheduler, threading.Semaphore(0), []

    def run(request: Any) -> Iterator[int]:
        for token in request.prompt:
            gate.acquire()
            if token < 0:
                raise RuntimeError("a bad token")
            yield token

    def request(*tokens: int) -> Any:
        return scheduling.Request(list(tokens), len(tokens), said.append)

    scheduler = scheduling.Scheduler(run, max_waiting=3)
    first, bad, late, last = request(1, 2), request(-1), request(5), request(7)
    scheduler.submit(first)
    while first.state != "running":
        pass
    for waiting in (bad, late, last):
        scheduler.submit(waiting)
    with pytest.raises(scheduling.QueueFull, match="3 requests"):
        scheduler.submit(request(9))
    scheduler.cancel(late)
    gate.release(4)
    scheduler.close()
    assert said == [1, 2, None, None, None, 7, None]
    assert [r.state for r in (first, bad, late, last)] == ["finished", "failed", "cancelled", "finished"]
    scheduler.cancel(first)
    assert first.state == "finished"


# --- server -----------------------------------------------------------------------------------------------------------


def test_completions_agree_with_generate_streamed_or_not(
    client: TestClient, package: ModuleType, checkpoint: Path
) -> None:
    engine = package.engine.Engine.load(checkpoint)
    tokens = engine.tokenizer.encode("Hello")
    (wanted,) = engine.generate([tokens], 12)
    text = engine.tokenizer.decode(wanted)
    status, whole = post(client, model="tiny", prompt="Hello", max_tokens=12)
    assert (status, whole["object"], whole["choices"][0]["text"]) == (200, "text_completion", text)
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"] == {"prompt_tokens": len(tokens), "completion_tokens": 12, "total_tokens": len(tokens) + 12}
    chunks = streamed(client, prompt=tokens, max_tokens=12, stream_options={"include_usage": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == text
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])
    stop = text[3:5]
    _, stopped = post(client, prompt="Hello", max_tokens=12, stop=[stop])
    assert stopped["choices"][0] == {
        "index": 0, "finish_reason": "stop", "logprobs": None, "text": text[: text.index(stop)]
    }  # fmt: skip


def test_chats_are_rendered_by_the_checkpoints_template(
    client: TestClient, package: ModuleType, checkpoint: Path
) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    status, whole = post(client, "chat/completions", messages=messages, max_completion_tokens=5)
    tokenizer = package.engine.Tokenizer(checkpoint)
    expected = tokenizer.encode("<end><user>Hello\n<assistant>")
    assert (status, whole["usage"]["prompt_tokens"]) == (200, len(expected))
    assert whole["choices"][0]["message"]["role"] == "assistant"
    chunks = streamed(client, "chat/completions", messages=messages, max_tokens=5)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert said == whole["choices"][0]["message"]["content"]
    status, refused = post(client, "chat/completions", messages=[{"role": "tool", "content": "x"}])
    assert (status, "no tools" in refused["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"prompt": "a", "model": "other"}, 404, "no model 'other'"),
        ({"prompt": "a", "temperature": 1}, 400, "temperature"),
        ({"prompt": "a", "n": 2}, 400, "n = 2"),
        ({"prompt": "a", "logprobs": 3}, 400, "logprobs = 3"),
        ({"prompt": "a", "max_tokens": "many"}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": 128}, 400, "at most 0 as 128"),
        ({"prompt": "a", "stop": [1]}, 400, "stop"),
        ({"prompt": ["a", "b"]}, 400, "prompt"),
        ({"prompt": [4000]}, 400, "between 0 and 399"),
        ({"prompt": ""}, 400, "0 tokens"),
        ({}, 400, "prompt"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(
    client: TestClient, body: dict[str, Any], status: int, message: str
) -> None:
    found, answer = post(client, **body)
    assert (found, message in answer["error"]["message"]) == (status, True), answer


def test_bodies_that_are_no_json_objects_models_and_health(client: TestClient) -> None:
    for content in (b"{", b"[]", b"\xff"):
        assert client.post("/v1/completions", content=content).status_code == 400
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny"]
    assert client.get("/health").json() == {"status": "ok"}
