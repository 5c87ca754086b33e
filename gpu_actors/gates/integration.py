"""Stage tests of the whole engine: that its ways to say the same thing agree, what it refuses, and its tokenizer."""

import json
import re
from datetime import datetime
from typing import Any

import numpy as np
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from benchmarks import prompts
from gpu_actors.gates.base import Finding, Gate, Subject, failed, passed
from gpu_actors.gates.compare import rms
from gpu_actors.gates.evidence import Said
from gpu_actors.gates.model import BOUND

LONGEST_PROMPT = 128
"""Of the drawn prompts here: acceptance asks long ones."""
MESSAGES = [{"role": "user", "content": "Name three rivers, and say where each of them ends."}]
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a river."},
    {"role": "assistant", "content": "The Rhine."},
    {"role": "user", "content": "Where does it end?"},
]
"""A word of everybody who may speak: what of it gets lost is missed."""


def sampler(subject: Subject) -> Finding:
    """At temperature 0 the sampler takes the largest logit, whatever its place, sign or neighbours."""
    rng, vocab = subject.draws("sampler"), subject.facts.model.vocab
    for best in (0, vocab - 1, int(rng.integers(1, vocab - 1))):
        row = rng.normal(-50.0, 3.0, size=vocab).astype(np.float32)
        row[best] = row.max() + 1e-3
        for body in (None, {"temperature": 0}):
            found = subject.call("sample", logits=row, body=body, count=2).value("tokens", list[int])
            if found != [best, best]:
                return failed(f"the sampler of {body or 'no parameters'} must take the arg max {best}; it took {found}")
    return passed(f"the arg max of {vocab} logits, three places, twice each")


def scheduler(subject: Subject) -> Finding:
    """In order of admission; a full queue refuses; a cancelled or failed request ends and the next one is served; one
    that is cancelled while it runs makes no further token."""
    rng = subject.draws("scheduler")
    waiting = int(rng.integers(9, 21))
    cancelled, failing = (int(i) for i in rng.choice(np.arange(1, waiting + 1), 2, replace=False))
    requests = waiting + 3  # one runs, `waiting` wait, two find the queue full
    options = {"requests": requests, "cancelled": cancelled, "failing": failing, "max_waiting": waiting}
    found = subject.call("schedule", **options).values
    said: list[list[int | None]] = [[i, i + 100, None] for i in range(waiting + 1)] + [[], []]
    said[cancelled], said[failing] = [None], [failing, None]
    states = ["finished"] * (waiting + 1) + ["waiting", "waiting"]
    states[cancelled], states[failing] = "cancelled", "failed"
    order = [i for i in range(waiting + 1) if i != cancelled]
    wanted = {"said": said, "states": states, "order": order, "refused": 2}
    wrong = [
        f"{name}: expected {wanted[name]}, found {found.get(name)}"
        for name in wanted
        if found.get(name) != wanted[name]
    ]
    if wrong:
        return failed(f"{requests} requests, {waiting} may wait, {cancelled} cancelled, {failing} fails: {wrong[0]}")
    given = int(rng.integers(1, 5))
    reply = subject.call("leave", after=given)
    made, told = reply.value("made", int), reply.value("given", int)
    # the token that is made while its client leaves may be finished, and the one that is begun behind it
    if not given < made <= given + 2 or told != given or reply.value("state", str) != "cancelled":
        return failed(f"cancelled after {given} tokens, while the next one is made: {reply.values}")
    return passed(f"{requests} requests, {waiting} may wait: order, refusal, cancel and failure as agreed")


def agreement(subject: Subject) -> Finding:
    """generate, stream and the arg max of logits on the engine's own output tell the same tokens."""
    subject.load_engine()
    rng = subject.draws("agreement")
    context = subject.facts.workload.max_context
    count = min(8, context // 3)
    longest = min(context - count, LONGEST_PROMPT)
    drawn = prompts.cut(subject.checkpoint, [min(3, longest), int(rng.integers(1, longest + 1))], subject.job.seed)
    notes, tokens = [], []
    for prompt in drawn:
        whole = subject.continuation(prompt, count, ignore_eos=True)
        streamed = subject.stream(prompt, count)
        if len(whole) != count or len(streamed) != count:
            return failed(f"asked for {count} tokens: generate gave {len(whole)}, stream gave {len(streamed)}")
        single = [subject.continuation(prompt, 1, ignore_eos=True), subject.stream(prompt, 1)]
        if single != [whole[:1], streamed[:1]]:
            return failed(
                f"one token after {len(prompt)}: {single}; the first of {count} is {[whole[:1], streamed[:1]]}"
            )
        said = {"stream": streamed, "generate": whole} if whole != streamed else {"generate and stream": whole}
        tokens += [whole, streamed]
        for name, found in said.items():
            if fault := outside_the_band(subject, prompt, found):
                return failed(f"{name} after {len(prompt)} tokens: {fault}")
        notes.append(f"{len(prompt)}+{count}: {sum(a == b for a, b in zip(whole, streamed, strict=True))} equal")
    return passed(f"generate, stream and logits agree ({'; '.join(notes)})", tokens=tokens)


def outside_the_band(subject: Subject, prompt: list[int], tokens: list[int], times: float = 2.0) -> str:
    """The first token that is not the arg max of the engine's own logits, as far as its rounding lets one say. `times`:
    of the error that rounding explains."""
    positions = list(range(len(prompt) - 1, len(prompt) + len(tokens) - 1))
    rows = subject.logits(prompt + tokens, positions)
    band = times * BOUND[subject.facts.workload.dtype] * rms(rows)
    for i, token in enumerate(tokens):
        gap = float(rows[i].max() - rows[i][token])
        if not gap <= band:
            return (
                f"new token {i} is {token}, whose logit lies {gap:.3g} below the largest (rounding explains {band:.3g})"
            )
    return ""


def batch(subject: Subject) -> Finding:
    """Several prompts in one call answer as each would alone, in order; another order gives the same answers. So do
    more prompts than an engine may have slots for."""
    subject.load_engine()
    context = subject.facts.workload.max_context
    count = min(6, context // 4)
    drawn = prompts.cut(subject.checkpoint, [2, 9, min(23, context - count)], subject.job.seed + 1)
    together = subject.generate(drawn, count, ignore_eos=True)
    backwards = subject.generate(drawn[::-1], count, ignore_eos=True)[::-1]
    for order, found in (("given", together), ("reversed", backwards)):
        if [len(tokens) for tokens in found] != [count] * len(drawn):
            return failed(f"{len(drawn)} prompts, {count} tokens each: found {[len(t) for t in found]}")
        for prompt, tokens, judged in zip(drawn, found, together, strict=True):
            if found is backwards and tokens == judged:
                continue
            if fault := outside_the_band(subject, prompt, tokens):
                return failed(f"a prompt of {len(prompt)} tokens, {len(drawn)} prompts in {order} order: {fault}")
    rng = subject.draws("batch")
    many = prompts.cut(subject.checkpoint, [1, 2, 3] * int(rng.integers(3, 6)), int(rng.integers(1 << 30)))
    firsts, lasts = (subject.generate(asked, 1, ignore_eos=True) for asked in (many, many[::-1]))
    if [len(tokens) for tokens in (*firsts, *lasts)] != [1] * 2 * len(many):
        return failed(f"{len(many)} prompts, one token each: found {[len(tokens) for tokens in (*firsts, *lasts)]}")
    for prompt, one, other in zip(many, firsts, lasts[::-1], strict=True):
        for tokens in [one, other] if one != other else []:
            if fault := outside_the_band(subject, prompt, tokens):
                return failed(f"{len(many)} prompts in two orders, a prompt of {len(prompt)} tokens: {fault}")
    return passed(
        f"{len(drawn)} prompts of 2 to {len(drawn[-1])} tokens in two orders, and {len(many)} of 1 to 3",
        tokens=[*together, *backwards, *firsts, *lasts],
    )


def end_of_text(subject: Subject) -> Finding:
    """Without ignore_eos an end token ends the text and is its last token."""
    subject.load_engine()
    ends = set(subject.facts.model.eos_tokens)
    count = min(16, subject.facts.workload.max_context // 2)
    if chat_template(subject):
        prompt = subject.call("chat", messages=MESSAGES).value("ids", list[int])
    else:  # a base model: any text
        prompt = subject.call("tokenizer", text=MESSAGES[0]["content"]).value("ids", list[int])
    prompt = prompt[-(subject.facts.workload.max_context - count) :]
    bounded, free = (subject.continuation(prompt, count, ignore_eos=ignore) for ignore in (False, True))
    stop = next((i + 1 for i, token in enumerate(free) if token in ends), count)
    if len(free) != count or bounded != free[:stop]:
        return failed(
            f"ignoring end tokens {sorted(ends)} the engine said {free}; without ignoring it must say the first {stop} "
            f"of these, it said {bounded}"
        )
    reached = "reached" if stop < count else "not reached"
    return passed(f"{stop} of at most {count} tokens; end token {reached}", tokens=[bounded, free])


def refusals(subject: Subject) -> Finding:
    """An empty prompt and one that is too long raise ValueError; the latter with its length and the limit."""
    subject.load_engine()
    count = min(8, subject.facts.workload.max_context // 2)
    limit = subject.facts.workload.max_context - count
    long = [subject.facts.model.vocab // 2] * (limit + 1)
    for op, name in (("generate", "prompts"), ("stream", "prompt")):
        for what, prompt in (("an empty prompt", []), (f"a prompt of {limit + 1} tokens", long)):
            arguments = {name: [prompt] if op == "generate" else prompt, "max_new_tokens": count, "ignore_eos": True}
            failure = subject.raised(op, **arguments)
            if failure is None or failure.error_type != "ValueError":
                return failed(f"{op} of {what} must raise ValueError; found {failure or 'an answer'}")
            if prompt and not {str(limit + 1), str(limit)} <= numbers(str(failure)):
                return failed(
                    f"{op} of {what}: the message must name {limit + 1} and {limit}; it says {str(failure)!r}"
                )
    return passed(f"empty prompts and prompts over {limit} tokens are refused with the numbers")


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", re.sub(r"(?<=\d)[,_](?=\d{3})", "", text)))


def tokenizer(subject: Subject) -> Finding:
    """encode, decode and the chat template against the checkpoint's own files."""
    subject.load_engine()
    own = prompts.tokenizer(subject.checkpoint)
    for language in prompts.languages():
        text = prompts.text(language)[:300]
        ids = own.encode(text).ids
        reply = subject.call("tokenizer", text=text)
        found, decoded = reply.value("ids", list[int]), reply.value("text", str)
        if found != ids:
            return failed(f"encode of {text[:40]!r}... gives {found[:8]}..., the tokenizer file says {ids[:8]}...")
        if decoded != own.decode(ids):
            return failed(f"decode(encode(text)) of {text[:40]!r}... gives {decoded[:60]!r}")
    marked = [*ids[:3], subject.facts.model.eos_tokens[0], *ids[3:5]]
    decoded = subject.call("decode", ids=marked).value("text", str)
    if decoded != own.decode(marked):
        return failed(
            f"decode of {marked}, an end token among them, gives {decoded!r} in place of {own.decode(marked)!r}"
        )
    template = chat_template(subject)
    if template:
        for messages, wanted in ((MESSAGES, rendered(subject, MESSAGES)), conversation(subject)):
            chat = subject.call("chat", messages=messages).value("ids", list[int])
            if chat != wanted:
                said = own.decode(wanted, skip_special_tokens=False)
                return failed(f"chat gives {len(chat)} ids, the template {len(wanted)}: {wanted[:12]}... for {said!r}")
    return passed(
        f"{len(prompts.languages())} languages{' and the chat template' if template else ', no chat template'}"
    )


def rendered(subject: Subject, messages: list[dict[str, str]]) -> list[int]:
    """The ids of a conversation by the checkpoint's own files, up to where the answer starts. Raises ValueError or a
    jinja2.TemplateError where its template, which there must be, refuses the conversation."""
    text = chat_template(subject).render(messages=messages, add_generation_prompt=True, **special_tokens(subject))
    own = prompts.tokenizer(subject.checkpoint)
    return list(own.encode(text, add_special_tokens=False).ids)


def conversation(subject: Subject) -> tuple[list[dict[str, str]], list[int]]:
    """One between all roles that the checkpoint's template, which there must be, knows; and its ids."""
    try:
        return CONVERSATION, rendered(subject, CONVERSATION)
    except (ValueError, TemplateError):  # some templates know no system message, and say so
        return CONVERSATION[1:], rendered(subject, CONVERSATION[1:])


def tokenizer_config(subject: Subject) -> dict[str, Any]:
    path = subject.checkpoint / "tokenizer_config.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def special_tokens(subject: Subject) -> dict[str, str]:
    config = tokenizer_config(subject)
    found = {name: config.get(name) or "" for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    return {name: value if isinstance(value, str) else value["content"] for name, value in found.items()}


def chat_template(subject: Subject) -> Any:
    """The checkpoint's chat template as transformers documents it: trimmed blocks and two functions."""
    path = subject.checkpoint / "chat_template.jinja"
    text = path.read_text(encoding="utf-8") if path.exists() else tokenizer_config(subject).get("chat_template")
    if not text:
        return None

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(text)


GATES = (
    Gate("sampler", "sampler", "integration", sampler),
    Gate("scheduler", "scheduler", "integration", scheduler),
    Gate("tokenizer", "tokenizer", "integration", tokenizer),
    Gate("agreement", "engine", "integration", agreement, evidence=Said),
    Gate("batch", "engine", "integration", batch, evidence=Said),
    Gate("end_of_text", "engine", "integration", end_of_text, evidence=Said),
    Gate("refusals", "engine", "integration", refusals),
)
