"""A run as its journal would tell it: typed events with the numbers of a plausible small machine, seeded."""

import hashlib
import random
from collections.abc import Iterator

from ckb.facts import Facts, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.records import STAGES, Choice
from gpu_actors.benchmark_jobs import ArmResult, Benchmark, Row, Scenario
from gpu_actors.jobs import EvidenceFile, GateResult, GateStatus, Level, Verdict
from roles.author import Usage
from roles.briefs import AnalystAnswer, Finding, Hypothesis, RoleName, Span
from swarm import events as e
from swarm.feasibility import Feasibility
from swarm.plan import Plan

START = 1_780_000_000.0
SCENARIOS = ((64, 32), (256, 128))
LAYOUTS = ("head_major", "token_major", "paged", "ring")
STAGE_GATES: dict[str, tuple[tuple[str, str], ...]] = {
    "execution": (("linear", "kernels.linear"), ("attention", "kernels.attention"), ("cache", "cache.kv")),
    "model": (("weights", "weights.load"), ("decoder", "model.decoder"), ("head", "model.head")),
    "integration": (("sampler", "sampler.greedy"), ("scheduler", "scheduler.fifo"), ("server", "server.openai")),
    "acceptance": (("logits", "acceptance.logits"), ("greedy tokens", "acceptance.tokens")),
}
MARKUP = "<script>alert('x')</script>"
"""What an author may write into a summary."""


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def example_plan() -> Plan:
    """The plan of the run: SmolLM2-135M in float32 on two cores."""
    model = ModelFacts(
        model_type="llama",
        architecture="LlamaForCausalLM",
        layers=30,
        hidden=576,
        intermediate=1536,
        heads=9,
        kv_heads=3,
        head_dim=64,
        vocab=49152,
        max_positions=8192,
        norm_eps=1e-5,
        rope_theta=100_000.0,
        rope_type="default",
        qk_norm=False,
        attention_bias=False,
        mlp_bias=False,
        activation="silu",
        sliding_window=None,
        tied_head=True,
        weights="bf16",
        parameters=134_515_008,
        bos_token=1,
        eos_tokens=(2,),
    )
    platform = PlatformFacts(
        accelerator="cpu",
        name="Example CPU at 2.5 GHz",
        count=1,
        cores=2,
        isa=("avx2", "fma"),
        memory_bytes=24 << 30,
        compiler="g++",
    )
    workload = WorkloadFacts(
        kind="single_stream",
        batch=1,
        max_prompt=256,
        max_new=128,
        dtype="float32",
        step="graph",
        serve="offline",
        decoding="greedy",
    )
    return Plan(
        facts=Facts(model=model, platform=platform, workload=workload),
        ckb_version=1,
        contracts=(),
        tests=(),
        numbers={},
        space={},
        affects={},
        metric="tpot_ms",
        direction="min",
        unit="ms",
        bound=17.4,
        scenarios=tuple(Scenario(prompt_tokens=p, new_tokens=n) for p, n in SCENARIOS),
        feasibility=Feasibility(
            weight_bytes=269_030_016,
            kv_bytes=17 << 20,
            workspace_bytes=600 << 20,
            allowed_bytes=4 << 30,
            read_gb_s=16.0,
        ),
        checkpoint=digest("checkpoint"),
        user_files={},
        draw=987_654_321_123,
    )


class Example:
    """Yields the events of a run, each stamped with a clock that goes on."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.now = START
        self.tip = digest("empty")
        self.choices: dict[str, Choice] = {}
        self.tpot = 62.0
        self.merged = ""

    def events(self) -> Iterator[e.AnyEvent]:
        for event in self.story():
            self.now += self.random.uniform(1, 9)
            yield event.model_copy(update={"at": self.now, "epoch": 1})

    def story(self) -> Iterator[e.AnyEvent]:
        yield e.RunStarted(run=digest("run"), target="smollm2-135m-cpu", host="bench-01", version="0.1.0")
        yield e.PlanFrozen(plan=digest("plan"), ckb_version=1)
        yield e.DeviceUsed(what="profile", seconds=31.5)
        yield e.BenchmarkMade(purpose="baseline", benchmark=self.benchmark({"huggingface": 104.0}))
        for number in range(1, len(STAGES) + 1):
            yield from self.stage(f"s{number}", number)
        yield from self.round(1, [("fuse_qkv", True, 51.2), ("prefill_chunk", 128, 61.6), ("linear_unroll", 4, 44.0)])
        yield from self.round(
            2, [("fuse_gate_up", True, 41.3), ("kv_dtype", "bfloat16", None), ("accumulate", "bfloat16", 71.0)]
        )
        yield self.verdict(self.merged, "release", STAGES)
        arms = {"engine": self.tpot, "huggingface": 103.0}
        yield e.BenchmarkMade(purpose="release", benchmark=self.benchmark(arms))
        yield e.EngineReleased(
            path="engines/smollm2-135m-cpu/engine_1f2e3d4c", tree=digest("t"), commit=self.tip, candidate=self.merged
        )
        yield e.Consolidated(
            version=2,
            rows={"experience": 6, "traces": 48, "solutions": 1, "runs": 1},
            merged=("cpu-float32-1f2e3d4c5b6a",),
            lowered=("cpu-float32-aa11bb22cc33: 1 of 2 targets support the rule",),
            contradictions=("a.1f2e3d4c against a of experience: effect +0.200 there, -0.100 now",),
        )
        yield e.RunFinished(outcome="accepted")

    def stage(self, name: str, number: int) -> Iterator[e.AnyEvent]:
        stage = STAGES[number - 1]
        yield e.IssueOpened(
            issue=e.Issue(
                id=name, stage=stage, title=f"Stage {number}: the {stage} modules of the engine", base=self.tip
            )
        )
        names = [f"{name}-c{i}" for i in range(4)]
        offered: dict[str, dict[str, Choice]] = {
            names[i]: self.choices | {f"{stage}_layout": LAYOUTS[i], "accumulate": "float32"} for i in range(4)
        }
        for candidate in names:
            yield from self.submit(
                candidate, name, offered[candidate], f"The {stage} modules, composed, design {candidate[-1]}"
            )
        if stage == "model":
            finding = Finding(
                contract="model.decoder",
                file="model.py",
                line=41,
                expected="step(token, cache, position)",
                found="step()",
            )
            yield e.CandidateReviewed(candidate=names[3], attempt=1, findings=(finding,))
        yield self.verdict(names[0], "stage", STAGES[:number], fails="linear" if number == 1 else "")
        winner = names[1] if number == 1 else names[0]
        if winner == names[1]:
            yield self.decided(names[0], "discarded", "linear: largest error 3.1e-2 at [0, 117], allowed 1e-4")
            answer = AnalystAnswer(
                cause="implementation",
                contract="kernels.linear",
                explanation="The tail of K that is no multiple of 8 is read past its end.",
                next_step="Handle the tail in a scalar loop.",
            )
            yield e.FailureAnalysed(issue=name, candidate=names[0], answer=answer)
            yield self.verdict(winner, "stage", STAGES[:number])
        yield from self.merge(winner, offered[winner], f"passed the gates of stage {stage}", None)
        for candidate in names[2:] if winner == names[1] else names[1:]:
            yield self.decided(candidate, "discarded", f"{winner} passed first; this one was reviewed, not gated")
        yield e.IssueClosed(issue=name, outcome="merged")

    def round(self, number: int, ideas: list[tuple[str, Choice, float | None]]) -> Iterator[e.AnyEvent]:
        base, incumbent = self.tip, self.tpot
        for place, (name, value, tpot) in enumerate(ideas, 1):
            hypothesis = Hypothesis(
                title=f"{name} = {value}",
                change={name: value},
                expected_effect=0.08,
                acceptance="the paired benchmark shows a gain",
                falsification="the interval of the effect includes zero",
            )
            title = f"Set {name} to {value}: fewer reads of the activations in each step"
            issue = f"r{number}-{place}"
            yield e.IssueOpened(
                issue=e.Issue(
                    id=issue, stage="performance", title=title, hypothesis=hypothesis, base=base, round=number
                )
            )
            yield from self.submit(
                f"{issue}-c0", issue, self.choices | {name: value}, f"Composed with {name} = {value}"
            )
            yield self.verdict(f"{issue}-c0", "gates", STAGES, fails="" if tpot else "greedy tokens")
        yield e.DeviceUsed(what="verify", seconds=self.random.uniform(60, 90))
        yield e.DeviceUsed(what="benchmark", seconds=self.random.uniform(40, 60))
        arms = {"incumbent": incumbent} | {f"r{number}-{i}-c0": idea[2] for i, idea in enumerate(ideas, 1) if idea[2]}
        yield e.BenchmarkMade(purpose="round", round=number, benchmark=self.benchmark(arms))
        for place, (name, value, tpot) in sorted(enumerate(ideas, 1), key=lambda entry: entry[1][2] or 1e9):
            candidate = f"r{number}-{place}-c0"
            if tpot is None:
                yield self.decided(candidate, "discarded", "greedy tokens: 3 of 512 differ outside the tie band")
            elif tpot < self.tpot * 0.97:
                gain = self.tpot / tpot - 1
                yield from self.merge(candidate, self.choices | {name: value}, f"gain of {gain:+.1%}", tpot)
            else:
                yield self.decided(candidate, "discarded", "no effect beyond noise: +0.3% [-1.1%, +1.6%]", tpot)
            outcome = "merged" if candidate == self.merged else "nothing_kept"
            yield e.IssueClosed(issue=f"r{number}-{place}", outcome=outcome)
        yield e.RoundClosed(round=number, memory="Fusion pays.", stop=number == 2)

    def submit(self, name: str, issue: str, choices: dict[str, Choice], summary: str) -> Iterator[e.AnyEvent]:
        yield self.called("implementer", issue, name)
        spans = tuple(
            Span(file=f"{c.split('.')[0]}.py", first=10 * i + 1, last=10 * i + 8 + i, contract=c, fragment=f"{c}.cpu")
            for i, c in enumerate(c for gates in STAGE_GATES.values() for _, c in gates)
        )
        yield e.CandidateSubmitted(
            candidate=name,
            issue=issue,
            attempt=1,
            branch=f"candidate/{name}",
            commit=digest("commit", name),
            tree=digest("tree", name),
            author="composer",
            choices=choices,
            spans=spans,
            summary=summary,
            lines=self.random.randint(880, 1010),
        )
        yield self.called("reviewer", issue, name)
        yield e.CandidateReviewed(candidate=name, attempt=1, findings=())

    def merge(self, name: str, choices: dict[str, Choice], reason: str, tpot: float | None) -> Iterator[e.AnyEvent]:
        self.tip, self.choices, self.merged = digest("main", name), dict(choices), name
        yield e.Merged(candidate=name, commit=self.tip, tree=digest("tree", name), choices=self.choices)
        yield self.decided(name, "kept", reason, tpot)
        self.tpot = tpot or self.tpot

    def decided(self, name: str, decision: e.Decision, reason: str, tpot: float | None = None) -> e.CandidateDecided:
        effect = self.tpot / tpot - 1 if tpot else None
        return e.CandidateDecided(candidate=name, decision=decision, reason=reason, effect=effect, objective=tpot)

    def called(self, role: RoleName, issue: str, candidate: str) -> e.RoleCalled:
        usage = Usage(author="composer", seconds=self.random.uniform(0.2, 1.5))
        return e.RoleCalled(role=role, usage=usage, issue=issue, candidate=candidate)

    def verdict(self, name: str, purpose: e.Purpose, stages: tuple[str, ...], fails: str = "") -> e.VerdictMade:
        gates = [self.gate("imports", "engine.imports", "L0", "PASS"), self.gate("provenance", "ckb", "L0", "PASS")]
        for stage in stages:
            level: Level = "L3" if stage == "acceptance" else "L1" if stage == stages[-1] else "L2"
            gates += [self.gate(g, c, level, "FAIL" if g == fails else "PASS") for g, c in STAGE_GATES[stage]]
        levels: tuple[Level, ...] = tuple(dict.fromkeys(gate.level for gate in gates))
        verdict = Verdict(
            candidate=name,
            tree=digest("tree", name),
            levels=levels,
            acceptance="full" if purpose == "release" else "none",
            gates=tuple(gates),
            sandbox="own user, mount, pid and network namespaces; 4 GiB; killed at the deadline",
        )
        return e.VerdictMade(candidate=name, attempt=1, purpose=purpose, verdict=verdict)

    def gate(self, name: str, contract: str, level: Level, status: GateStatus) -> GateResult:
        found = "3.1e-2 at [0, 117]" if status == "FAIL" else "2.4e-6"
        return GateResult(
            gate=name,
            level=level,
            contract=contract,
            status=status,
            summary=f"largest error {found}, allowed 1e-4 over 24 shapes",
            seconds=self.random.uniform(0.1, 6),
            evidence=(EvidenceFile(sha256=digest(name), what="draws and errors"),),
        )

    def benchmark(self, arms: dict[str, float]) -> Benchmark:
        """Rows in turn; `arms` holds the TPOT in ms that each engine has on average."""
        rows = []
        for prompt, new in SCENARIOS:
            for repeat in range(3):
                for arm, tpot in arms.items():
                    drawn = tpot * self.random.uniform(0.98, 1.02) * (1 + prompt / 8000)
                    ttft = prompt * tpot / 30 * self.random.uniform(0.97, 1.03)
                    rows.append(
                        Row(
                            arm=arm,
                            prompt_tokens=prompt,
                            new_tokens=new,
                            repeat=repeat,
                            order=len(rows),
                            ttft_ms=ttft,
                            tpot_ms=drawn,
                            latency_ms=ttft + drawn * (new - 1),
                            decode_tok_s=1000 / drawn,
                            foreign_cpu=0.01,
                        )
                    )
        return Benchmark(
            rows=tuple(rows),
            arms=tuple(ArmResult(arm=a, status="OK", load_s=4.0, peak_rss_bytes=int(9.1e8)) for a in arms),
            read_gb_s=17.2,
            repeats=3,
            warmup=1,
            prompts="excerpts of public-domain books in five languages, cut by the tokenizer",
            device="Example CPU, 2 cores",
            seconds=41.0,
        )
