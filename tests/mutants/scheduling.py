"""Mutants that do the right things in the wrong order, too often or not at all."""

from tests.mutants.mutant import Edit, Mutant

COUNT = "range(len(prompt), len(prompt) + count - 1)"
ALL = "for prompt in prompts]"
APPEND = "self.waiting.append(request)"
NEXT = "request = self.waiting.popleft()"


def wrong(name: str, gate: str, *edits: tuple[str, str, str]) -> Mutant:
    return Mutant(name, "scheduling", "llama", gate, tuple(Edit(*edit) for edit in edits))


MUTANTS = (
    wrong("each token is handed over twice", "scheduler", ("scheduler.py", "request.emit(token)\n",
          "request.emit(token)\n                    request.emit(token)\n")),
    wrong("the first token is lost", "scheduler", ("scheduler.py", "for token in self.run(request):",
          "for number, token in enumerate(self.run(request)):\n                    if not number:\n"
          "                        continue")),
    wrong("last come, first served", "scheduler", ("scheduler.py", NEXT,
          "request = self.waiting.pop() if self.waiting[-1] else self.waiting.popleft()")),
    wrong("from the eighth of those that wait the newest goes first", "scheduler", ("scheduler.py", APPEND,
          "(self.waiting.append if len(self.waiting) < 8 else self.waiting.appendleft)(request)")),
    wrong("what has ended is cancelled", "scheduler", ("scheduler.py", 'if request.state in ("waiting", "running"):',
          'if request.state:')),
    wrong("one new token is two", "agreement",
          ("engine.py", COUNT, "range(len(prompt), len(prompt) + max(count, 2) - 1)"),
          ("engine.py", "cache = KVCache(len(prompt) + count)", "cache = KVCache(len(prompt) + max(count, 2))")),
    wrong("prompts after the fourth are answered with its words", "batch", ("engine.py",
          "return [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts]",
          "said = [list(self.stream(prompt, max_new_tokens, ignore_eos)) for prompt in prompts[:4]]\n"
          "        return said + said[-1:] * (len(prompts) - 4)")),
    wrong("the second of those that wait goes last", "scheduler", ("scheduler.py", NEXT,
          "if len(self.waiting) > 2 and self.waiting[1]:\n"
          "                    last = self.waiting[1]\n"
          "                    del self.waiting[1]\n"
          "                    self.waiting.insert(len(self.waiting) - (self.waiting[-1] is None), last)\n"
          "                request = self.waiting.popleft()")),
    wrong("cancel is ignored", "scheduler", ("scheduler.py", 'request.state = "cancelled"', "pass")),
    wrong("who is cancelled while it waits is served to its end", "scheduler",
          ("scheduler.py", 'if request.state in ("waiting", "running"):', 'if request.state == "running":')),
    wrong("a cancelled request goes on in silence", "scheduler",
          ("scheduler.py", "                    if request.state != \"running\":\n                        break\n"
           "                    request.emit(token)",
           "                    if request.state == \"running\":\n                        request.emit(token)")),
    wrong("a failure ends the worker", "scheduler", ("scheduler.py", 'logging.exception("a request failed")',
          'self._move(request, "running", "failed")\n            request.emit(None)\n            raise')),
    wrong("a failure looks like an end", "scheduler",
          ("scheduler.py", '"running", "failed")', '"running", "finished")')),
    wrong("the queue has no end", "scheduler", ("scheduler.py", ">= self.max_waiting:",
          ">= 1000 * self.max_waiting:")),
    wrong("close leaves those that wait", "states_integration", ("scheduler.py",
          "self.waiting.append(None)", "self.waiting.clear()\n            self.waiting.append(None)")),
    wrong("one token too few", "agreement", ("engine.py", COUNT, COUNT.replace("- 1", "- 2"))),
    wrong("one token too many", "agreement", ("engine.py", COUNT, COUNT.replace(" - 1", ""))),
    wrong("every text ends after 24 tokens", "acceptance_greedy",
          ("engine.py", COUNT, "range(len(prompt), len(prompt) + min(count, 24) - 1)")),
    wrong("each 16th token is yielded twice", "acceptance_greedy", ("engine.py",
          "token = sampler(self.model.step(token, cache, position))",
          "if (position - len(prompt)) % 16 != 14:\n"
          "                token = sampler(self.model.step(token, cache, position))")),
    wrong("shortest prompts are answered first", "batch", ("engine.py", ALL,
          "for prompt in sorted(prompts, key=len)]")),
    wrong("more than three prompts are answered backwards", "ragged", ("engine.py", ALL,
          "for prompt in (prompts if len(prompts) < 4 else prompts[::-1])]")),
    wrong("a prompt that comes twice is answered once", "ragged", ("engine.py", ALL,
          "for prompt in map(list, dict.fromkeys(map(tuple, prompts)))]")),
    wrong("prompts of more than 64 tokens lose their start", "lasting",
          ("engine.py", "        cache = KVCache(", "        prompt = prompt[-64:]\n        cache = KVCache(")),
    wrong("an end token does not end the text", "end_of_text", ("engine.py", "() if ignore_eos else EOS_TOKENS", "()")),
    wrong("the end token is swallowed", "end_of_text", ("engine.py", "            yield token\n\n",
          "            if token in ends:\n                return\n            yield token\n\n")),
    wrong("ignore_eos is ignored", "end_of_text", ("engine.py", "() if ignore_eos else EOS_TOKENS", "EOS_TOKENS")),
    wrong("the first token is the prompt's last", "agreement", ("engine.py", "        yield token\n        for",
          "        yield prompt[-1]\n        for")),
    wrong("the first token follows the first position", "agreement", ("engine.py", "self.model.head(hidden[-1:])",
          "self.model.head(hidden[:1])")),
    wrong("an empty prompt is taken for one of token 0", "errors_integration",
          ("engine.py", "if not 1 <= len(prompt) <=", "prompt = prompt or [0]\n        if not 1 <= len(prompt) <=")),
    wrong("a long prompt is cut in silence", "refusals", ("engine.py", "if not 1 <= len(prompt) <=",
          "if not prompt or 1 <= MAX_CONTEXT <=")),
)  # fmt: skip
