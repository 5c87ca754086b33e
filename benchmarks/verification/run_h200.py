"""python -m benchmarks.verification.run_h200 WORK OUT [--only checkpoint|reference|gates|mutants] [--shape tiny]

The whole gate set on a model of Qwen3-8B's shape with random weights, on one device: how long an engine takes once the
reference's outputs are stored, and whether six wrong ones are rejected. In four steps, each to be started again by
itself, since a machine that is lent may end a call: what a step made and found is kept in WORK, for the next one, and
everything that was found so far is copied to OUT. Needs no Ray, no network and no store.

    checkpoint  random weights in WORK/model, and how much they show: attention's entropy, the share of positions
                outside the tie band, the effects of ten standard faults
    reference   the first verdict: Hugging Face answers the acceptance prompts, and its outputs are stored
    gates       the same with stored outputs, on other draws: the time that an engine takes
    mutants     the six wrong engines, one verdict each; those that have theirs already are passed over

`python -m benchmarks.verification.page` then writes what was found into docs/verification.md.
"""

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks.verification.found import Judged, Made
from benchmarks.verification.run_steps import RIGHT, Steps, choose, leave, show, show_gates
from benchmarks.verification.wrong import H200
from ckb.build import read_seed
from ckb.checkpoint import read_checkpoint
from ckb.errors import UserError
from ckb.facts import Facts
from ckb.schemas import ModelFamily
from gpu_actors import seeded
from gpu_actors.checkpoint import content_sha256
from swarm.feasibility import facts_of
from swarm.platform import detect
from swarm.target import Target, load_target

STEPS = ("checkpoint", "reference", "gates", "mutants")
SHAPES = {"qwen3-8b": "8b", "tiny": "4-layer"}
"""Name here -> size of gpu_actors.seeded."""
TARGET = Path(__file__).parents[2] / "targets" / "qwen3-8b-h200.yaml"
SEED = 0
"""Of the weights."""
STEP_S = 570.0
"""When a step must have ended: a call on a machine that is lent lasts ten minutes."""
LAST_START_S = 420.0
"""When a step starts its last verdict."""


class Bench:
    """One shape on one accelerator: its checkpoint, its engine and its verdicts."""

    def __init__(self, work: Path, out: Path, shape: str, accelerator: Literal["cpu", "cuda"], commit: str):
        platform = detect(accelerator)
        if accelerator == "cpu":  # an engine of torch alone, as the one for a device is
            platform = platform.model_copy(update={"compiler": None})
        self.steps, self.shape, self.accelerator = Steps(work, out, platform, commit), shape, accelerator
        self.model = work / "model"

    # --- steps --------------------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        if self.model.exists():
            return
        facts = seeded.facts_of("qwen3", SHAPES[self.shape], "bf16")
        record = seeded.write(self.model, facts, seed=SEED, device=self.accelerator)
        made = Made(
            shape=self.shape, bytes=sum(path.stat().st_size for path in self.model.iterdir()),
            seconds=record.writing_s, sharpness=record.sharpness, measures=record.measures,
            measuring_s=record.measuring_s, sha256=content_sha256(self.model),
        )  # fmt: skip
        self.steps.found("checkpoint", checkpoint=made)

    def reference(self) -> None:
        first, outside = self.judge(RIGHT, seed=1)
        self.steps.found("reference", judged=(first,), outside_the_band=outside)

    def gates(self) -> None:
        content_sha256(self.model)  # a device knows its checkpoints' names: it hashes each once
        judged, outside = self.judge(RIGHT, seed=2)
        self.steps.found("gates", judged=(judged,), outside_the_band=outside)

    def mutants(self) -> None:
        content_sha256(self.model)
        stored = self.steps.stored("mutants")
        judged = list(stored.judged) if stored else []
        for number, name in enumerate(H200):
            if name not in {one.name for one in judged} and time.monotonic() - self.steps.started < LAST_START_S:
                judged.append(self.judge(name, seed=3 + number)[0])
                self.steps.found("mutants", judged=tuple(judged))

    # --- one verdict --------------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        families = [row for row in read_seed()["models"] if isinstance(row, ModelFamily)]
        model = read_checkpoint(self.model, families).facts
        target = load_target(TARGET)
        if self.shape == "tiny":
            target = Target.model_validate(
                target.model_dump() | {"workload": {"prompt_tokens": [160], "new_tokens": [96]}}
            )
        return facts_of(target, model, self.steps.platform)

    def judge(self, name: str, seed: int) -> tuple[Judged, float | None]:
        """Every level on the engine, or on one of its edits."""
        left = STEP_S - (time.monotonic() - self.steps.started)
        return self.steps.judge(name, self.model, self.facts(), edit=H200.get(name), seed=seed, deadline_s=left)


def main(
    work: Annotated[Path, typer.Argument(help="Checkpoint and stored outputs: 20 GB for the full shape.")],
    out: Annotated[Path, typer.Argument(help="Folder for what was found.")],
    only: Annotated[str, typer.Option(help=f"One step: {', '.join(STEPS)}.")] = "",
    shape: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}.")] = "qwen3-8b",
    accelerator: Annotated[str, typer.Option(help="cuda, or cpu to try the script.")] = "cuda",
    commit: Annotated[str, typer.Option(help="What is measured, for the record.")] = "",
) -> None:
    """The gates on one device, in steps. Exit status 1: a verdict is not what it should be."""
    choose(only=(only, STEPS), shape=(shape, tuple(SHAPES)), accelerator=(accelerator, ("cpu", "cuda")))
    try:
        bench = Bench(work.resolve(), out.resolve(), shape, "cuda" if accelerator == "cuda" else "cpu", commit)
        steps = (bench.checkpoint, bench.reference, bench.gates, bench.mutants)
        for name, step in zip(STEPS, steps, strict=True):
            if only in ("", name):
                bench.steps.started = time.monotonic()
                step()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    console, every = Console(width=160), bench.steps.of(STEPS)
    for done in every:
        if done.step == "gates":
            show_gates(console, done.step, done.judged[0])
    show(console, f"{bench.shape} on {bench.steps.platform.name}", every)
    leave(every)


if __name__ == "__main__":
    typer.run(main)
