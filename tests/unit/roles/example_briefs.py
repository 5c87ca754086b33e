"""Realistic briefs for every role, over a small piece of knowledge."""

from ckb.facts import Facts, ModelFacts, PlatformFacts, WorkloadFacts
from ckb.records import Contract, ErrorCase, FailureMode, Fragment, Function, Tensor, Transition
from roles import briefs as b
from roles.author import AnyBrief

FACTS = Facts(
    model=ModelFacts(
        model_type="llama",
        architecture="LlamaForCausalLM",
        layers=2,
        hidden=64,
        intermediate=128,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=512,
        max_positions=256,
        norm_eps=1e-5,
        rope_theta=10_000.0,
        rope_type="default",
        qk_norm=False,
        attention_bias=False,
        mlp_bias=False,
        activation="silu",
        sliding_window=None,
        tied_head=True,
        weights="bf16",
        parameters=100_000,
        bos_token=1,
        eos_tokens=(2,),
    ),
    platform=PlatformFacts(
        accelerator="cpu",
        name="Example CPU",
        count=1,
        cores=2,
        isa=("avx2", "fma"),
        memory_bytes=8 * 2**30,
        compiler="g++",
    ),
    workload=WorkloadFacts(
        kind="single_stream",
        batch=1,
        max_prompt=64,
        max_new=32,
        dtype="float32",
        step="graph",
        serve="offline",
        decoding="greedy",
    ),
)
LINEAR = Contract(
    id="linear",
    layer="contract",
    title="Matrix times weight",
    stage="execution",
    module="kernels.py",
    order=1,
    interface=(
        Function(
            name="linear",
            takes=(
                Tensor(name="x", shape=("M", "K"), dtype="compute", placement="device"),
                Tensor(name="w", dtype="Packed"),
            ),
            returns=(Tensor(name="y", shape=("M", "N"), dtype="compute", placement="device"),),
            does="x times the transposed weight.",
        ),
    ),
    decisions={"linear.layout": ("rows", "tiles", "panels")},
    decision_requires={
        "linear.layout=tiles": "'avx2' in platform.isa",
        "linear.layout=panels": "'avx2' in platform.isa and platform.cores >= 8",
    },
    native=(Function(name="dots", takes=(Tensor(name="w", shape=("K",), dtype="const float*"),), does="One row."),),
    state=("a packed weight is never changed",),
    transitions=(Transition(subject="the pool", before="asleep", event="the first product", after="awake"),),
    error_cases=(
        ErrorCase(function="linear", condition="an x of another K", exception="ValueError", message=("both K", "N")),
    ),
    failures=(FailureMode(symptom="plausible but wrong text", cause="a transposed weight"),),
    test="linear",
    text="The sum runs over K in float32.\n",
)
FRAGMENT = Fragment(
    id="linear-torch",
    layer="contract",
    contract="linear",
    title="linear through torch",
    applies_to='platform.accelerator == "cpu"',
    parameters={"BLOCK": (8, 16)},
    constants=("HIDDEN",),
    imports=("import torch",),
    code='def linear(x, w):\n    """```not the end of the block```"""\n    return x @ w.T\n',
)
FILES = {"kernels.py": "import torch\n\n\ndef linear(x, w):\n    return x @ w.T\n"}
FAILED = b.Evidence(gate="L1 linear", contract="linear", summary="expected shape [3, 8], found [8, 3]")
COMMON = {"run": "run-1", "facts": FACTS, "choices": {"linear.layout": "rows", "BLOCK": 8}}
HYPOTHESIS = b.Hypothesis(
    title="tile the weights",
    change={"linear.layout": "tiles"},
    expected_effect=0.1,
    acceptance="the interval of the effect lies above zero",
    falsification="the effect is below 0.02",
)
MEASURED = b.Lesson(
    id="tiles",
    title="tiles are faster",
    kind="optimisation",
    applies_to='platform.accelerator == "cpu"',
    change={"linear.layout": "tiles"},
    effect=0.123,
    interval=(0.1, 0.15),
    signal="probable",
    text="Measured once.",
)
IMPLEMENTER = b.ImplementerBrief(
    **COMMON,
    issue="execution",
    stage="execution",
    objective="Write the primitives.",
    acceptance=("linear passes its test",),
    contracts=(LINEAR,),
    fragments=(FRAGMENT,),
    failures=(FAILED,),
    seed=1,
    instructions="Keep it short.",
    deliverable="One folder.",
)
REVIEWER = b.ReviewerBrief(**COMMON, issue="execution", contracts=(LINEAR,), files=FILES)
EVALUATOR = b.EvaluatorBrief(
    **COMMON,
    metric="tpot_ms",
    current=80.0,
    bound=30.0,
    shares={"linear": 0.8, "attention": 0.1, "head": 0.05, "rest": 0.05},
    space={"linear.layout": ("rows", "tiles"), "BLOCK": (8, 16)},
    affects={"linear.layout": ("linear",)},
    tried=({"linear.layout": "rows", "BLOCK": 16},),
    wanted=2,
)
BRIEFS: dict[str, AnyBrief] = {
    "implementer": IMPLEMENTER,
    "reviewer": REVIEWER,
    "judge": b.JudgeBrief(**COMMON, issue="execution", files=FILES, gates=("L0 imports: PASS",)),
    "evaluator": EVALUATOR,
    "orchestrator": b.OrchestratorBrief(
        **COMMON,
        hypotheses=(HYPOTHESIS,),
        parallel=2,
        memory="Tiles were never tried.",
        last_round=(b.Outcome(line="BLOCK = 16: lost 2 %", meaning="no gain"),),
    ),
    "analyst": b.AnalystBrief(**COMMON, issue="execution", failures=(FAILED,), contracts=(LINEAR,)),
    "consolidator": b.ConsolidatorBrief(**COMMON, measured=(MEASURED,)),
}
