"""Stage tests of an engine that samples: what its sampler draws, what its stream makes of it, what its server does.

Counts of draws are held against the softmax formula in float64. Of a count that is binomial with chance p, Chernoff's
bound says that a share q of n draws or one further away comes at most with probability exp(-n KL(q || p)): no
approximation, for any n. A gate refuses below ALARM, divided by twice the number of its comparisons.
"""

import json
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np

from benchmarks import prompts
from ckb.facts import Facts
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed, read
from gpu_actors.gates.compare import rms
from gpu_actors.gates.evidence import Said
from gpu_actors.gates.integration import MESSAGES, chat_template
from gpu_actors.gates.model import BOUND

ALARM = 1e-7
"""Largest probability with which one of these gates refuses a right engine: two of them count, 2e-7 a verdict."""
DRAWS = 600
"""Of each case. The smallest fault that must show, temperature 2.89 for 1.7, then stands at 1.6 times the bound."""
PAIRED = 64
"""Draws of samplers that take turns."""
HOTTEST = 2.0
"""The largest temperature that an API allows: draws are as far from the best token as they can be."""
STREAMS = 24
TOKENS = 4
"""New tokens of each of the streams: many short ones, since a first token is chosen elsewhere than those behind it."""
LEVELS = np.arange(1, 10) / 10
"""Of the distribution function: where the ranks of streamed tokens are counted."""
AGAIN = 6
"""Streams that are asked for a second time: one alone may say the same by chance."""
PROMPT, TEXTS = 8, 12
"""Length of a prompt, and among how many one is chosen."""
Body = dict[str, Any]


def softmax(logits: Array) -> Array:
    """Along the last axis, in float64."""
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    chances: Array = raised / raised.sum(axis=-1, keepdims=True)
    return chances


def left(chances: Array, top_k: int, top_p: float) -> Array:
    """What top_k and then top_p leave of chances that fall, renormalised: the smallest set that reaches top_p."""
    kept = np.where(np.arange(len(chances)) < (top_k or len(chances)), chances, 0.0)
    kept = kept / kept.sum()
    above = np.cumsum(kept) - kept
    kept = np.where((above < top_p) | (np.arange(len(kept)) == 0), kept, 0.0)
    result: Array = kept / kept.sum()
    return result


def surprise(counts: Array, chances: Array, draws: int, slack: float = 0.0) -> Array:
    """-log of Chernoff's bound on counts among `draws`, elementwise, each chance known but for `slack`."""
    shares = counts / draws
    chances = np.clip(shares, np.clip(chances - slack, 0, 1), np.clip(chances + slack, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(q > 0, q * np.log(q / p), 0.0) for q, p in ((shares, chances), (1 - shares, 1 - chances))]
    result: Array = draws * (parts[0] + parts[1])
    return result


def allowed(comparisons: int) -> float:
    """The largest surprise of as many two-sided comparisons that is no alarm."""
    return log(2 * comparisons / ALARM)


# --- the sampler alone ------------------------------------------------------------------------------------------------


def landscape(rng: np.random.Generator, vocab: int) -> tuple[Array, Array]:
    """Logits [VOCAB] float32, and the likely tokens, the most likely first: a dozen that fall steeply, and a plain on
    which a limit of 40 or 50 that nobody asked for cuts off a tenth and more. The others are 40 lower."""
    order = rng.permutation(vocab)[: min(96, vocab // 2)]
    heights = np.concatenate([-0.35 * np.arange(12), -3.9 - 0.004 * np.arange(len(order) - 12)])
    row = np.full(vocab, -40.0)
    row[order] = heights
    return (row + rng.normal(scale=10.0)).astype(np.float32), order


def cases(row: Array, likely: Array) -> list[Body]:
    """What is asked for. Each top_p lies in the middle between two sums, so that no rounding decides; beside a top_k it
    leaves the same tokens whether the chances were renormalised in between or not."""
    sums = {hot: np.cumsum(softmax(row[likely] / hot)) for hot in (0.5, 1.0, 1.7)}

    def between(hot: float, size: int) -> float:
        return float(sums[hot][size - 2] + sums[hot][size - 1]) / 2

    cold = sums[0.5]
    return [
        {"temperature": 0.5},
        {"temperature": 1.0},
        {"temperature": 1.7},
        {"temperature": 1.7, "top_k": 3},
        {"temperature": 0.5, "top_p": between(0.5, 4)},
        {"temperature": 1.0, "top_p": float(sums[1.0][0]) / 2},
        {"temperature": 1.7, "top_p": between(1.7, 8)},
        {"temperature": 0.5, "top_k": 6, "top_p": float(cold[2] + cold[1] / cold[5]) / 2},  # top_p leaves three of six
        {"temperature": 0.5, "top_k": 3, "top_p": float(1 + cold[1] / cold[2]) / 2},  # top_k leaves three, top_p all
    ]


def draws(subject: Subject) -> Finding:
    """Tokens follow the formula of temperature, top_k and top_p; equal seeds draw alike, whoever draws in between."""
    rng, vocab = subject.draws("draws"), subject.facts.model.vocab
    row, likely = landscape(rng, vocab)
    asked = cases(row, likely)
    seeds = [int(seed) for seed in rng.choice(1 << 30, len(asked), replace=False) + 1]
    if fault := generators(subject, row, seeds) or best(subject, row, likely, seeds):
        return failed(fault)
    chances = {hot: softmax(row / hot)[likely] for hot in (0.5, 1.0, 1.7)}
    bound, worst = allowed(len(asked) * 2 * (len(likely) + 1)), 0.0
    for body, seed in zip(asked, seeds, strict=True):
        found = drawn(subject, row, [body | {"seed": seed}], DRAWS)[0]
        counts = np.array([*(np.count_nonzero(found == token) for token in likely), 0])
        counts[-1] = DRAWS - counts.sum()
        held = chances[body["temperature"]]
        kept = left(np.append(held, max(0.0, 1 - held.sum())), body.get("top_k", 0), body.get("top_p", 1.0))
        alone, summed = surprise(counts, kept, DRAWS), surprise(np.cumsum(counts), np.cumsum(kept), DRAWS)
        if max(alone.max(), summed.max()) > bound:
            at = int(np.argmax(np.maximum(alone, summed)))
            return failed(
                f"{DRAWS} draws with {body}: {counts[: at + 1].sum() / DRAWS:.3f} of them among the {at + 1} most "
                f"likely tokens and {counts[at] / DRAWS:.3f} on the last of these; the formula says "
                f"{kept[: at + 1].sum():.3f} and {kept[at]:.3f}"
            )
        worst = max(worst, float(alone.max()), float(summed.max()))
    return passed(
        f"{len(asked)} cases of temperature, top_k and top_p, {DRAWS} draws each: the most surprising count has a "
        f"bound of exp(-{worst:.1f}), refused from exp(-{bound:.1f}); seeds repeat and differ"
    )


def drawn(subject: Subject, row: Array, bodies: list[Body], count: int) -> Array:
    reply = subject.call("draws", logits=row, bodies=bodies, count=count)
    return reply.array("tokens", (len(bodies), count))


def generators(subject: Subject, row: Array, seeds: Sequence[int]) -> str:
    """Samplers that take turns: those with one seed draw alike, others do not. 0 is a seed, too."""
    for seed, other in ((seeds[0], seeds[1]), (0, seeds[2])):
        bodies = [{"temperature": HOTTEST, "seed": s} for s in (seed, other, seed)]
        first, second, again = drawn(subject, row, bodies, PAIRED)
        if (first != again).any():
            return f"two samplers with seed {seed} and one with {other}, in turn: draws of the two differ"
        if (first == second).all():
            return f"samplers with seeds {seed} and {other} draw the same {PAIRED} tokens at temperature {HOTTEST}"
    return ""


def best(subject: Subject, row: Array, likely: Array, seeds: Sequence[int]) -> str:
    """Temperature 0 takes the most likely token, whatever else is asked for."""
    body = {"temperature": 0, "top_p": 0.9, "top_k": 8, "seed": seeds[0]}
    found = drawn(subject, row, [body], PAIRED)[0]
    return "" if (found == likely[0]).all() else f"{body} drew {sorted(set(found.tolist()))}, not {likely[0]} alone"


# --- through the stream -----------------------------------------------------------------------------------------------


def streams(subject: Subject) -> Finding:
    """Streamed tokens are draws, by the sampler that was given, from the engine's own logits."""
    subject.load_engine()
    rng = subject.draws("streams")
    prompt = prompt_of(subject, rng, TOKENS)
    seeds = [int(seed) for seed in rng.choice(1 << 30, STREAMS, replace=False)]
    bodies = [{"temperature": HOTTEST, "seed": seed} for seed in (*seeds, *seeds[:AGAIN])]
    every = sampled(subject, prompt, bodies, TOKENS, ignore_eos=True)
    if any(len(tokens) != TOKENS for tokens in every):
        return failed(f"asked for {TOKENS} tokens, given were {sorted({len(tokens) for tokens in every})}")
    found, again = every[:STREAMS], every[STREAMS:]
    for seed, first, second in zip(seeds, found, again, strict=False):
        if first != second:
            return failed(f"two streams with seed {seed} say {first} and {second}")
    ranks, unlikely, slack = ranked(subject, prompt, found, rng)
    if all(tokens == found[0] for tokens in found) and -(STREAMS - 1) * unlikely < log(ALARM):
        return failed(f"{STREAMS} streams with other seeds at temperature {HOTTEST} all say {found[0]}")
    bound, worst = allowed(2 * len(LEVELS)), 0.0
    for what, part in (("first tokens", ranks[:, :1]), ("tokens", ranks)):
        counts = (part.reshape(-1, 1) <= LEVELS).sum(axis=0)
        told = surprise(counts, LEVELS, part.size, slack)
        worst, at = max(worst, float(told.max())), int(told.argmax())
        if worst > bound:
            return failed(
                f"of {part.size} {what} streamed at temperature {HOTTEST} {counts[at]} lie among the most likely that "
                f"have {LEVELS[at]:.0%} of the probability by the engine's own logits: these are no draws from it"
            )
    return passed(
        f"{STREAMS} streams of {TOKENS} tokens at temperature {HOTTEST}: draws from the engine's own logits (the most "
        f"surprising count has a bound of exp(-{worst:.1f}), refused from exp(-{bound:.1f})); seeds repeat",
        tokens=every,
    )


def prompt_of(subject: Subject, rng: np.random.Generator, count: int) -> list[int]:
    """Of some drawn texts the one behind which the engine is least sure: where one token has nearly all of the
    probability, who takes it always looks like who draws."""
    length = min(PROMPT, subject.facts.workload.max_context - count)
    texts = prompts.cut(subject.checkpoint, [length] * TEXTS, int(rng.integers(1 << 30)))
    rows = np.concatenate([subject.logits(text, [length - 1]) for text in texts])
    return texts[int(softmax(rows / HOTTEST).max(axis=-1).argmin())]


def sampled(
    subject: Subject, prompt: list[int], bodies: list[Body], count: int, *, ignore_eos: bool
) -> list[list[int]]:
    arguments = {"prompt": prompt, "bodies": bodies, "max_new_tokens": count, "ignore_eos": ignore_eos}
    found = subject.call("sampled", **arguments).value("tokens", list[list[int]])
    return [subject.tokens(tokens) for tokens in found]


def ranked(
    subject: Subject, prompt: list[int], found: list[list[int]], rng: np.random.Generator
) -> tuple[Array, float, float]:
    """Where each token [STREAMS, TOKENS] lies in the distribution function by the engine's own logits, most likely
    first, and drawn evenly within its own step: uniform for draws, whatever the distribution is. Then -log of the
    first stream's probability, and by how much the rounding of logits may move a value of the function."""
    ranks, unlikely, slack = [], [], 0.0
    for tokens in found:
        rows = subject.logits(prompt + tokens, list(range(len(prompt) - 1, len(prompt) + TOKENS - 1)))
        chances = softmax(rows / HOTTEST)
        own = np.take_along_axis(chances, np.array(tokens)[:, None], axis=-1)
        above = np.where(chances > own, chances, 0.0).sum(axis=-1)
        ties = np.where(chances == own, chances, 0.0).sum(axis=-1)
        ranks.append(above + rng.random(TOKENS) * ties)
        unlikely.append(-float(np.log(own).sum()))
        # errors of b in logits move each odds by exp(2 b) at most, so a chance by b / 2
        slack = max(slack, BOUND[subject.facts.workload.dtype] * rms(rows) / HOTTEST / 2)
    return np.array(ranks), unlikely[0], slack


# --- through the server -----------------------------------------------------------------------------------------------


def server_sampling(subject: Subject) -> Finding:
    """What a request asks of the sampler reaches it: the answer's text is that of the stream with that sampler."""
    subject.load_engine()
    rng = subject.draws("server_sampling")
    prompt = prompt_of(subject, rng, TOKENS)
    seeds = [int(seed) for seed in rng.choice(1 << 30, 6, replace=False)]
    hot = [{"temperature": HOTTEST, "seed": seed} for seed in seeds]
    asked: list[Body] = [*hot, hot[0], hot[0] | {"temperature": 0}, hot[1] | {"top_k": 1}, hot[2] | {"top_p": 1e-3}]
    compared = [read(lambda s: answered(s, {"prompt": prompt}, prompt, asked), subject)]
    if chat_template(subject):
        ids = subject.call("chat", messages=MESSAGES).value("ids", list[int])
        if len(ids) + TOKENS <= subject.facts.workload.max_context:
            compared.append(read(lambda s: answered(s, {"messages": MESSAGES}, ids, asked), subject))
    for said in compared:
        for body, (wanted, found) in zip(asked, said, strict=True):
            if wanted != found:
                return failed(
                    f"a request with {body} is answered {found!r}; the stream with its sampler says {wanted!r}"
                )
    texts = {wanted for wanted, _ in compared[0]}
    return passed(
        f"{len(asked)} requests {'and as many chats ' * (len(compared) - 1)}with temperature, top_k, top_p and seed: "
        f"{len(texts)} different texts, each that of the stream with its sampler"
    )


def answered(subject: Subject, what: Body, ids: list[int], asked: list[Body]) -> list[tuple[str, str]]:
    """The text of the stream and that of the server for each body."""
    streamed = sampled(subject, ids, asked, TOKENS, ignore_eos=False)
    ends = set(subject.facts.model.eos_tokens)
    said = [tokens[:-1] if tokens and tokens[-1] in ends else tokens for tokens in streamed]
    wanted = [subject.call("decode", ids=tokens).value("text", str) for tokens in said]
    bodies = [{**what, "max_tokens": TOKENS, **body} for body in asked]
    found = subject.call("served", bodies=bodies, name="served").value("answers", list[dict[str, Any]])
    return list(zip(wanted, [text_of(answer) for answer in found], strict=True))


def text_of(answer: dict[str, Any]) -> str:
    """Of an answer of either form; a refusal is told as it is."""
    if answer["status"] != 200:
        return f"{answer['status']}: {answer['text'][:200]}"
    choice = json.loads(answer["text"])["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def samples(facts: Facts) -> bool:
    return facts.workload.decoding == "sample"


GATES = (
    Gate("draws", "sampler", "integration", draws, applies=samples),
    Gate("streams", "engine", "integration", streams, evidence=Said, applies=samples),
    Gate("server_sampling", "server", "integration", server_sampling, applies=samples),
)
