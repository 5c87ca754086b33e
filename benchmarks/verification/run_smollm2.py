"""python -m benchmarks.verification.run_smollm2 WORK OUT [--dtype bfloat16] [--only screen] [--context 4352]

How long a verdict takes on SmolLM2-135M and two cores, in float32 and in bfloat16, for a Target of 4,352 positions. In
four steps for each dtype, each to be started again by itself; what was found is kept in WORK and copied to OUT. A step
that is there is not done again, and a verdict that is there is not made again.

    reference   a first `screen`: Hugging Face answers the acceptance prompts, and its outputs are stored
    screen      the same with stored outputs, on other draws
    full        the Target's whole context, fresh prompts included, which the reference has to answer too
    wrong       three wrong engines: one shows in the operators, one in the whole model, one in the acceptance alone
"""

from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from benchmarks.verification.run_steps import RIGHT, Steps, choose, leave, show, show_gates
from benchmarks.verification.wrong import SMOLLM2
from ckb.build import read_seed
from ckb.checkpoint import read_checkpoint
from ckb.errors import UserError
from ckb.facts import Dtype, Facts
from ckb.schemas import ModelFamily
from gpu_actors.checkpoint import content_sha256
from gpu_actors.jobs import DEADLINE_S, Acceptance
from swarm.feasibility import facts_of
from swarm.platform import detect
from swarm.target import Target, load_target

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "targets" / "smollm2-135m-cpu.yaml"
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
STEPS = ("reference", "screen", "full", "wrong")
CORES = 2
NEW_TOKENS = 256
LEAST_CONTEXT = 512
"""A prompt of more than 400 tokens must fit, or a wrong engine is right."""


class Bench:
    """One dtype: its engine and its verdicts."""

    def __init__(self, work: Path, out: Path, model: Path, dtype: Dtype, context: int, commit: str):
        platform = detect("cpu").model_copy(update={"cores": CORES})
        self.steps, self.model = Steps(work, out, platform, commit), model
        self.facts = facts(model, dtype, context, self.steps)

    def name(self, step: str) -> str:
        """Of what a step finds: verdicts on another Target are others."""
        workload = self.facts.workload
        return f"{workload.dtype}-{workload.max_context}-{step}"

    def do(self, step: str) -> None:
        """One step, or what of it is not there yet."""
        content_sha256(self.model)  # a device knows its checkpoints' names: it hashes each once
        names = tuple(SMOLLM2) if step == "wrong" else (RIGHT,)
        acceptance: Acceptance = "full" if step == "full" else "screen"
        stored = self.steps.stored(self.name(step))
        judged = list(stored.judged) if stored else []
        for number, name in enumerate(names):
            if name in {one.name for one in judged}:
                continue
            seed = 1 + STEPS.index(step) + number
            one, outside = self.steps.judge(
                name, self.model, self.facts, edit=SMOLLM2.get(name), seed=seed, deadline_s=DEADLINE_S["full"],
                acceptance=acceptance,
            )  # fmt: skip
            judged.append(one)
            self.steps.found(self.name(step), judged=tuple(judged), outside_the_band=outside)


def facts(model: Path, dtype: Dtype, context: int, steps: Steps) -> Facts:
    """Of a Target of so many positions. Raises UserError where it is too short, or longer than the model's."""
    if context < LEAST_CONTEXT:
        raise UserError(f"--context {context} is too short for the wrong engines to be wrong: at least {LEAST_CONTEXT}")
    families = [row for row in read_seed()["models"] if isinstance(row, ModelFamily)]
    target = load_target(TARGET).model_dump()
    new = min(NEW_TOKENS, context // 8)
    target["workload"] = {"prompt_tokens": [context - new], "new_tokens": [new]}
    target["constraints"]["dtype"] = dtype
    return facts_of(Target.model_validate(target), read_checkpoint(model, families).facts, steps.platform)


def main(
    work: Annotated[Path, typer.Argument(help="Stored outputs of the reference, and trees.")],
    out: Annotated[Path, typer.Argument(help="Folder for what was found.")],
    model: Annotated[Path, typer.Option(help="Its directory.")] = ROOT / "models" / "smollm2-135m-instruct",
    only: Annotated[str, typer.Option(help=f"One step: {', '.join(STEPS)}.")] = "",
    dtype: Annotated[str, typer.Option(help=f"One of {', '.join(DTYPES)}; both if left out.")] = "",
    context: Annotated[int, typer.Option(help="Positions of the Target.")] = 4096 + NEW_TOKENS,
    commit: Annotated[str, typer.Option(help="What is measured, for the record.")] = "",
) -> None:
    """Times of verdicts on two cores, in steps. Exit status 1: a verdict is not what it should be."""
    choose(only=(only, STEPS), dtype=(dtype, DTYPES))
    console, every = Console(width=160), []
    try:
        for kind in (cast(Dtype, dtype),) if dtype else DTYPES:
            bench = Bench(work.resolve(), out.resolve(), model.resolve(), kind, context, commit)
            for step in (only,) if only else STEPS:
                bench.do(step)
            every += bench.steps.of(tuple(map(bench.name, STEPS)))
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    for done in every:
        if not done.step.endswith("wrong"):
            show_gates(console, done.step, done.judged[0])
    show(console, f"SmolLM2-135M, {context} positions, {CORES} cores", every)
    leave(every)


if __name__ == "__main__":
    typer.run(main)
