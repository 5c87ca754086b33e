"""Mutants of an engine that samples, whose greedy answers are right: in its sampler, its stream and its server."""

from tests.mutants.mutant import Edit, Family, Mutant

DRAW = "torch.multinomial(chances, 1, generator=self.generator)"
HEAT = "torch.softmax(logits / self.temperature, dim=-1)"
NUCLEUS = "above < self.top_p * chances.sum()"
MADE = "Sampler.from_request(body), bool"
FIRST = "token = sampler(self.model.head(hidden[-1:])[0])"


def drawn(name: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(name, "arithmetic", "llama sampled", "draws", tuple(Edit("sampler.py", *edit) for edit in edits))


def wrong(name: str, family: Family, gate: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, family, "llama sampled", gate, (Edit(file, old, new),))


MUTANTS = (
    drawn("top_p is ignored and the temperature squared", (HEAT, HEAT.replace("temperature", "temperature**2")),
          (NUCLEUS, "above < chances.sum()")),
    drawn("the temperature is squared", (HEAT, HEAT.replace("temperature", "temperature**2"))),
    drawn("the temperature multiplies", (HEAT, HEAT.replace("/", "*"))),
    drawn("no temperature is below three quarters", (HEAT,
          "torch.softmax(logits / max(self.temperature, 0.75), dim=-1)")),
    drawn("top_p is ignored", (NUCLEUS, "above < chances.sum()")),
    drawn("top_p leaves one token fewer", (NUCLEUS,
          f"(above == 0) | ({NUCLEUS}) & (chances.cumsum(0) <= self.top_p * chances.sum())")),
    drawn("top_p leaves one token more", (NUCLEUS, "(above < self.top_p * chances.sum()).roll(1) | (above == 0)")),
    drawn("top_p is taken before the temperature", ("chances.cumsum(0) - chances",
          "torch.softmax(logits, dim=-1)[tokens].cumsum(0) - torch.softmax(logits, dim=-1)[tokens]")),
    drawn("top_p is ignored beside top_k", (NUCLEUS, "(above < self.top_p * chances.sum()) | (self.top_k > 0)")),
    drawn("top_k is ignored beside top_p", ("if self.top_k:", "if self.top_k and self.top_p == 1:")),
    drawn("top_k leaves one token more", ("chances[: self.top_k], tokens[: self.top_k]",
          "chances[: self.top_k + 1], tokens[: self.top_k + 1]")),
    drawn("the fifty most likely tokens, whether asked for or not", ("if self.top_k:\n            chances, tokens = "
          "chances[: self.top_k], tokens[: self.top_k]",
          "most = self.top_k or 50\n        chances, tokens = chances[:most], tokens[:most]")),
    drawn("what is left is drawn evenly", (DRAW, DRAW.replace("chances", "(chances > 0).float()"))),
    drawn("the generator is everybody's", (DRAW, "torch.multinomial(chances, 1)"),
          ("self.generator.manual_seed(seed)", "torch.manual_seed(seed)")),
    drawn("seed 0 is no seed", ("if seed is None:", "if not seed:")),
    drawn("the seed is ignored", ("self.generator.manual_seed(seed)", "self.generator.seed()")),
    wrong("the stream drops its sampler", "state", "streams", "engine.py", "sampler or Sampler()", "Sampler()"),
    wrong("the first token is the most likely one", "scheduling", "streams", "engine.py", FIRST,
          "token = int(self.model.head(hidden[-1:])[0].argmax())"),
    wrong("all tokens but the first are the most likely", "scheduling", "streams", "engine.py",
          "token = sampler(self.model.step(token, cache, position))",
          "token = int(self.model.step(token, cache, position).argmax())"),
    wrong("each stream begins a seed of its own", "state", "streams", "engine.py",
          "        cache = KVCache(len(prompt) + count)",
          "        getattr(sampler, 'generator').seed()\n        cache = KVCache(len(prompt) + count)"),
    wrong("the server takes the most likely token for every request", "serving", "server_sampling", "server.py",
          ", sampler=r.sampler", ""),
    wrong("the server forgets the seed", "serving", "server_sampling", "server.py", MADE,
          MADE.replace("(body)", "({**body, 'seed': None})")),
    wrong("the server forgets top_p", "serving", "server_sampling", "server.py", MADE,
          MADE.replace("(body)", "({**body, 'top_p': None})")),
    wrong("the server forgets top_k", "serving", "server_sampling", "server.py", MADE,
          MADE.replace("(body)", "({**body, 'top_k': None})")),
    wrong("the server halves the temperature", "serving", "server_sampling", "server.py", MADE,
          MADE.replace("(body)", "({**body, 'temperature': body.get('temperature', 1) / 2})")),
    wrong("a chat is not sampled", "serving", "server_sampling", "server.py", MADE,
          MADE.replace("(body)", "({**body, 'temperature': 0} if chat else body)")),
)  # fmt: skip
