"""Commands before a run: fetch, init, coverage, doctor, authors check."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from swarm.paths import home, resolve, store_dir

app = typer.Typer()
authors = typer.Typer(help="The authors that answer for the roles.", no_args_is_help=True)
app.add_typer(authors, name="authors")


def say(line: str) -> None:
    print(line, flush=True)


def say_aside(line: str) -> None:
    """What is being waited for, beside the output."""
    print(line, file=sys.stderr, flush=True)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="smollm2-135m, or a Hugging Face id such as Qwen/Qwen3-0.6B")],
) -> None:
    """Download a model into models/."""
    from swarm.fetch import fetch as fetch_model

    fetch_model(name, say)


@app.command()
def init(
    model_dir: Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="A Hugging Face directory")],
    words: Annotated[
        str, typer.Argument(metavar='["WHAT I NEED"]', help="Read by a language model if there is one")
    ] = "",
    accelerator: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    output: Annotated[Path | None, typer.Option(help="Default: targets/<model>-<accelerator>.yaml")] = None,
) -> None:
    """Write a commented Target for a model and this machine."""
    from ckb.build import ensure_store
    from ckb.checkpoint import read_checkpoint
    from ckb.errors import UserError
    from ckb.schemas import ModelFamily
    from swarm.init import write_target
    from swarm.platform import detect

    if accelerator not in ("cpu", "cuda"):
        raise UserError(f"--accelerator is cpu or cuda, not {accelerator!r}")
    folder = model_dir.absolute() if model_dir.exists() else resolve(str(model_dir))
    model = read_checkpoint(folder, ensure_store(store_dir()).rows(ModelFamily)).facts
    platform = detect("cuda" if accelerator == "cuda" else "cpu")
    place = output or home() / "targets" / f"{folder.name.lower()}-{accelerator}.yaml"
    write_target(folder, model, platform, words, place, say)


@app.command()
def coverage(
    target_file: Annotated[Path, typer.Argument(metavar="TARGET.yaml")],
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable: the percentage and each need.")] = False,
) -> None:
    """Show what the knowledge base lacks for a Target.

    Every need is listed with what serves it. Exit status 1 if something is missing."""
    from ckb.build import ensure_store
    from ckb.coverage import refused
    from ckb.gaps import GapError
    from swarm.operators import trial_of
    from swarm.plan import coverage_of
    from swarm.platform import detect
    from swarm.target import load_target

    target = load_target(target_file)
    platform = detect(target.hardware.accelerator, target.hardware.count)
    try:
        found = coverage_of(target, ensure_store(store_dir()), platform, trial_of(target, say_aside))
    except GapError as error:
        found = refused(error.gaps)
    if as_json:
        say(json.dumps(found.document(), indent=2))
    else:
        from swarm.tables import coverage_table, show

        show(coverage_table(found), f"{found.percent:.0f}% of {len(found.needs)} needs are covered")
    if found.gaps:
        raise typer.Exit(1)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable: a list of findings.")] = False,
    probe: Annotated[bool, typer.Option("--probe", help="Try every operator library again, also known ones.")] = False,
) -> None:
    """Show what this machine has and lacks for the job.

    Each lack is listed with what follows from it. An operator library is usable if a small kernel of it gave right
    results in the sandbox, once for a machine and its versions. Exit status 1 if the main job can't run."""
    from swarm.doctor import examine

    findings = examine(probe=probe, say=say_aside)
    if as_json:
        say(json.dumps([finding.model_dump() for finding in findings], indent=2))
    else:
        from swarm.tables import doctor_table, operators_table, show, speed_lines

        show(doctor_table(findings), "", operators_table(findings), "", *speed_lines(findings))
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


@authors.command()
def check(
    target_file: Annotated[Path | None, typer.Argument(metavar="[TARGET.yaml]")] = None,
) -> None:
    """One small priced call of each author: model, cost, latency. Without a Target: of ENGINESMITH_MODEL."""
    from roles.authors.by_hand import check_author
    from roles.settings import only_the_composer, singles
    from swarm.init import configured_model
    from swarm.shell import ConfinedShell
    from swarm.tables import plain_table, show
    from swarm.target import load_target

    model = configured_model()
    named = load_target(target_file).authors if target_file else {"default": model} if model else only_the_composer()
    table = plain_table("role", "author", "model", "USD", "tokens", "seconds", "answers")
    shell = ConfinedShell(load_target(target_file).sandbox if target_file else "auto")
    for role, author in named.items():
        for settings in singles([author]):
            found = check_author(settings, home=home(), shell=shell)
            tokens = "+".join(
                "unknown" if n is None else str(n) for n in (found.prompt_tokens, found.completion_tokens)
            )
            usd, seconds = "unknown" if found.usd is None else f"{found.usd:.6f}", f"{found.seconds:.2f}"
            table.add_row(role, found.author, found.model, usd, tokens, seconds, found.answer)
    show(table)
