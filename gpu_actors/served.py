"""An arm of a benchmark that is a server: waits for it, finds out how it can be asked, and asks.

Whatever is wrong before the clock runs is a UserError with the server's last lines; what goes wrong later makes the arm
a row, and the others go on.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import prompts
from benchmarks.baselines.presets import preset_of
from benchmarks.baselines.records import Baseline, Graph, Setting, Way
from ckb.errors import UserError
from ckb.facts import Dtype
from gpu_actors.benchmark_jobs import BenchmarkJob
from gpu_actors.child import Array, ChildFailure, Event
from gpu_actors.completions import Answer, Client, ask
from gpu_actors.server_process import Elsewhere, ServerProcess

POLL_S = 0.1
SHORT_S = 10.0
"""Most time of a question that needs no model."""
DYING_S = 1.0
"""Between a broken connection and the end of its process."""
KEY = "ENGINESMITH_BASELINE_KEY"
"""Environment variable with the key of a server at a URL; it is in no record."""
NEVER = -100.0
"""The smallest logit_bias of OpenAI's API: such a token is not said."""
UNTOLD = "not told by the server"
WEIGHTS: dict[str, Dtype] = {"fp32": "float32", "bf16": "bfloat16"}
PATIENCE = 10.0
"""A timed answer may take so many times as long as the one that nobody timed, and PATIENCE_S at least: a server that
hangs must not spend the whole benchmark's time."""
PATIENCE_S = 5.0
VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


class ServerRunner:
    """One server as an arm. It gives no logits, so others judge what it says."""

    judges = False

    def __init__(self, name: str, baseline: Baseline, job: BenchmarkJob, cache_dir: Path):
        """`cache_dir`: its log goes to baselines/NAME.log there. Raises UserError where it does not run."""
        self._name, self._baseline, self._facts = name, baseline, job.facts
        self._preset = preset_of(baseline)
        self._checkpoint = Path(job.checkpoint)
        self._longest = max(job.scenarios, key=lambda s: s.prompt_tokens + s.new_tokens)
        self._seed = job.seed
        self._way = self._preset.ways[0]
        self._model, self._version = "", UNTOLD
        self._patience_s = PATIENCE_S
        self.tells_tokens = True
        accelerator = job.facts.platform.accelerator
        if accelerator not in self._preset.accelerators:
            runs = ", ".join(self._preset.accelerators)
            raise UserError(f"{self._preset.title} runs on {runs}; the engine was made for {accelerator}")
        self.child: ServerProcess | Elsewhere
        if baseline.url:
            self.child = Elsewhere(baseline.url)
            self._client = Client(baseline.url.removesuffix("/v1"), os.environ.get(KEY, ""))
        else:
            log = cache_dir / "baselines" / f"{name}.log"
            self.child = ServerProcess(baseline, job.facts, self._checkpoint, log)
            self._client = Client(f"http://127.0.0.1:{self.child.port}")

    @property
    def local(self) -> bool:
        """Whether this machine's memory bandwidth and processor time are the server's."""
        return not isinstance(self.child, Elsewhere) or self.child.local

    def load(self, deadline_s: float) -> int:
        """Waits until it serves, and has it answer the longest scenario once. Returns when it served, on
        time.perf_counter_ns. Raises UserError."""
        most_s = min(deadline_s, self._baseline.ready_s)
        try:
            self._await_ready(most_s if self._baseline.command else min(most_s, SHORT_S))
            ready_ns = time.perf_counter_ns()
            self._model = self._find_model()
            self._find_way(most_s)
            self._version = self._find_version()
        except ChildFailure as failure:
            raise self._wrong(f"{failure.kind}: {failure}") from failure
        return ready_ns

    def stream(self, prompt: list[int], new_tokens: int, deadline_s: float) -> Iterator[Event]:
        """An event for each token, its value the id, or None where the server doesn't tell ids."""
        answer = self._ask(self._way, prompt, new_tokens, min(deadline_s, self._patience_s))
        if fault := misread(answer, len(prompt)) or unstreamed(answer, new_tokens):
            raise ChildFailure("PROTOCOL", fault)
        ids: list[int] | list[None] = answer.ids or [None] * (new_tokens + 1)
        for token, at_ns in zip(ids, answer.token_times_ns(new_tokens), strict=False):
            yield Event(token, at_ns)

    def logits(self, tokens: list[int], positions: list[int], deadline_s: float) -> Array:
        raise ChildFailure("RAISED", f"{self._name} is a server, which gives no logits")

    @property
    def takes_text(self) -> bool:
        """It takes no token ids: prompts must be what the checkpoint's tokenizer makes of a text."""
        return self._way.prompt == "text"

    @property
    def setting(self) -> Setting:
        """How it runs; the version and the way of asking are known once it is loaded."""
        words = self.child.command if isinstance(self.child, ServerProcess) else []
        followed = [*self._baseline.command, *map(str, self._preset.config.values())]
        return Setting(
            version=self._version,
            command=shlex.join(words),
            dtype=self._dtype(followed),
            tensor_parallel=self._baseline.tensor_parallel if holds(followed, "{tensor_parallel}") else None,
            graph=self._graph(),
            asked=f"{self._way.prompt} over HTTP; connection, JSON and event stream are in its times",
            counted="token ids" if self.tells_tokens else "usage",
            not_given=self._not_given(),
            notes=(*self._preset.notes, *self._way_notes()),
        )

    def _dtype(self, followed: list[str]) -> Dtype | None:
        if self._preset.keeps_dtype:
            return WEIGHTS.get(self._facts.model.weights)
        return self._facts.workload.dtype if holds(followed, "{dtype}") else None

    def _graph(self) -> Graph | None:
        """As asked for: words of the user's can't ask a preset for another state. None where nobody could be asked."""
        asked = self._facts.workload.step
        return asked if isinstance(self.child, ServerProcess) and asked in self._preset.graph else None

    def _not_given(self) -> dict[str, str]:
        found = {"logits": "a server gives none: what it says is judged by another arm"}
        if not self.tells_tokens:
            found["logits"] = "a server gives none, and this one tells no token ids: what it says is not judged at all"
        if isinstance(self.child, Elsewhere):
            found["peak_memory_bytes"] = "its process is not ours"
            found["startup_s"] = "it ran already"
        if not self.local:
            found["read_bandwidth"] = "it runs on another machine"
        return found

    def _way_notes(self) -> tuple[str, ...]:
        notes = []
        if self._way.logit_bias:
            notes.append("end tokens made unlikely by logit_bias, since it can't be told to ignore them")
        if not self._baseline.preset:  # many servers leave a field alone that they don't know
            notes.append("whether it can ignore end tokens is not known: an answer that ends early is a wrong length")
        if not self.tells_tokens:
            notes.append("its first piece may hold several tokens, which makes TTFT look longer and TPOT shorter")
        return tuple(notes)

    def _await_ready(self, most_s: float) -> None:
        end = time.monotonic() + most_s
        found = "nobody listens"
        while time.monotonic() < end:
            if isinstance(self.child, ServerProcess) and not self.child.alive:
                raise self._wrong("it ended before it served anything")
            try:
                status, _ = self._client.get(self._preset.ready, SHORT_S)
                if status == 200:
                    return
                found = f"{self._preset.ready} answers {status}"
                if isinstance(self.child, Elsewhere):
                    raise self._wrong(f"{found}, so it is no OpenAI-compatible server (or needs a key in {KEY})")
            except ChildFailure as failure:
                found = str(failure)
            time.sleep(POLL_S)
        raise self._wrong(f"it did not serve within {most_s:.0f} s ({found})")

    def _find_model(self) -> str:
        """What the server calls the model. Raises UserError for another model, or a context that is too short."""
        status, found = self._client.get("/v1/models", SHORT_S)
        try:
            models = {str(row["id"]): row for row in found["data"]}
        except (KeyError, TypeError):
            raise self._wrong(f"/v1/models answers {status} {str(found)[:120]}: no OpenAI-compatible server") from None
        name = self._choose(list(models))
        needed, longest = self._longest.prompt_tokens + self._longest.new_tokens, models[name].get("max_model_len")
        if isinstance(longest, int) and longest < needed:
            raise self._wrong(f"its context is {longest} tokens, this benchmark needs {needed}")
        return name

    def _choose(self, served: list[str]) -> str:
        wanted, listed = self._baseline.model, ", ".join(served) or "nothing"
        checkpoint = self._checkpoint.resolve()
        if wanted:
            if wanted not in served:
                raise self._wrong(f"it has no model {wanted!r}; it serves {listed}")
            return wanted
        alike = [name for name in served if Path(name).name.casefold() == checkpoint.name.casefold()]
        if len(alike) == 1:
            return alike[0]
        if len(served) == 1 and self._baseline.command:  # it was given the checkpoint by us
            return served[0]
        raise self._wrong(
            f"it serves {listed}, the engine's checkpoint is {checkpoint.name}; name the model: URL#MODEL"
        )

    def _find_way(self, most_s: float) -> None:
        """The first way of asking that is answered in full. Raises UserError with what was wrong with each."""
        count, new = self._longest.prompt_tokens, self._longest.new_tokens
        faults = []
        for way in self._preset.ways:
            try:
                text = way.prompt == "text"
                (prompt,) = prompts.cut(self._checkpoint, [count], self._seed, through_text=text)
                start = time.monotonic()
                answer = self._ask(way, prompt, new, most_s)
                self._patience_s = max(PATIENCE_S, PATIENCE * (time.monotonic() - start))
                fault = fault_of(answer, count, new)
            except ChildFailure as failure:
                if failure.kind in ("CRASHED", "TIMEOUT"):
                    raise
                fault = str(failure)
            if not fault:
                self._way, self.tells_tokens = way, bool(answer.ids)
                return
            faults.append(fault)
        raise self._wrong("it can't be asked: " + "; ".join(dict.fromkeys(faults)))

    def _ask(self, way: Way, prompt: list[int], new_tokens: int, deadline_s: float) -> Answer:
        body = dict(way.body)
        if way.logit_bias:
            body["logit_bias"] = {str(token): NEVER for token in self._facts.model.eos_tokens}
        words: list[int] | str = prompt
        if way.prompt == "text":
            text = prompts.as_text(self._checkpoint, prompt)
            if text is None:
                raise ChildFailure("PROTOCOL", f"there is no text for these {len(prompt)} tokens, and it takes no ids")
            words = text
        try:
            answer = ask(self._client, self._preset.dialect, self._model, words, new_tokens, body, deadline_s)
            if not answer.done and (len(answer.ids) or answer.completion_tokens or 0) < new_tokens:
                raise ChildFailure("CRASHED", "its stream broke off in the middle of the answer")
        except ChildFailure as failure:
            words = self._last_words(DYING_S if failure.kind == "CRASHED" else 0.0)
            raise ChildFailure(failure.kind, f"{failure}{words}") from failure
        return answer

    def _find_version(self) -> str:
        for path in self._preset.version:
            status, found = self._client.get(path, SHORT_S)
            if status == 200 and isinstance(found, dict) and found.get("version"):
                return str(found["version"])
        return self._installed() if self._preset.package and self._baseline.command else UNTOLD

    def _installed(self) -> str:
        """The version of the distribution that the program's own interpreter finds."""
        python = Path(self._baseline.command[0]).parent / "python3"
        asked = [str(python), "-I", "-c", VERSION, self._preset.package]
        try:
            found = subprocess.run(asked, capture_output=True, text=True, timeout=SHORT_S, check=True)
        except (OSError, subprocess.SubprocessError):
            return UNTOLD
        return found.stdout.strip() or UNTOLD

    def _last_words(self, wait_s: float = 0.0) -> str:
        return f"; {self.child.last_words(wait_s)}" if isinstance(self.child, ServerProcess) else ""

    def _wrong(self, what: str) -> UserError:
        where = self._baseline.url or " ".join(self._baseline.command)
        words = "" if "its last output" in what else self._last_words()
        log = f" (log: {self.child.log})" if isinstance(self.child, ServerProcess) else ""
        return UserError(f"the baseline {self._name} ({where}): {what}{words}{log}")


def holds(words: list[str], name: str) -> bool:
    return any(name in word for word in words)


def misread(answer: Answer, prompt_tokens: int) -> str:
    """That the server read another prompt than was meant, or ""."""
    if answer.prompt_tokens in (None, prompt_tokens):
        return ""
    return f"it read {answer.prompt_tokens} tokens where {prompt_tokens} were meant: does its tokenizer add some?"


def unstreamed(answer: Answer, new_tokens: int) -> str:
    """That there is no time between the first token and the last, or ""."""
    if answer.pieces != 1 or new_tokens < 2:
        return ""
    return f"all {new_tokens} tokens came in one piece: it doesn't stream, so TTFT and TPOT can't be told"


def fault_of(answer: Answer, prompt_tokens: int, new_tokens: int) -> str:
    """Why an answer can't be timed, or ""."""
    if answer.counted is None:
        return "its stream holds neither token ids nor usage, and tokens are not counted by the pieces of a stream"
    found = len(answer.ids) or answer.completion_tokens
    wrong = f"asked for {new_tokens} tokens, found {found}" if found != new_tokens else ""
    return misread(answer, prompt_tokens) or wrong or unstreamed(answer, new_tokens)
