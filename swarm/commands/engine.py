"""Commands on a released engine: serve, chat, verify, bench, blame."""

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from ckb.errors import UserError
from swarm.paths import cache_dir

app = typer.Typer()
Engine = Annotated[str, typer.Argument(help="Folder of the engine, or of its Target: engines/demo")]
Checkpoint = Annotated[str | None, typer.Option(help="Hugging Face directory; default: the one of the manifest")]


@app.command()
def serve(
    engine: Engine,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    checkpoint: Checkpoint = None,
) -> None:
    """Start an engine's OpenAI-compatible server.

    It runs in a process of its own; Ctrl-C ends it."""
    from swarm import engines

    folder = engines.find_engine(engine)
    weights = engines.checkpoint_of(folder, checkpoint)
    engines.check_port(host, port)
    warn_if_changed(folder)
    engines.end_like_ctrl_c()
    print(f"{folder.name} on http://{host}:{port}/v1", flush=True)
    child = engines.start_server(folder, weights, host, port)
    try:
        status = child.wait()
    except KeyboardInterrupt:
        engines.stop(child)
        return
    if status:
        raise UserError(f"the engine's server ended with exit status {status}; its own output is above")


@app.command()
def chat(engine: Engine, checkpoint: Checkpoint = None) -> None:
    """Talk with an engine.

    Lines of a pipe are answered one by one."""
    from swarm import engines
    from swarm.chat import converse

    folder = engines.find_engine(engine)
    weights = engines.checkpoint_of(folder, checkpoint)
    warn_if_changed(folder)
    engines.end_like_ctrl_c()
    print(f"starting {folder.name} (the first start compiles its kernels)", file=sys.stderr, flush=True)
    with engines.running_server(folder, weights) as url:
        converse(url)


@app.command()
def verify(
    engine: Engine,
    full: Annotated[
        bool, typer.Option("--full", help="The whole context and fresh prompts, as before a release")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Repeat the draws of an earlier call; default: new ones")
    ] = None,
    evidence: Annotated[str | None, typer.Option(metavar="DIR", help="Default: cache/evidence")] = None,
    sandbox: Annotated[Literal["auto", "none"] | None, typer.Option(help="Default: the Target's")] = None,
    checkpoint: Checkpoint = None,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict whole, machine-readable")] = False,
) -> None:
    """Judge an engine by all gates.

    Also one whose source was edited by hand. Exit status 0: it passed; 1: it was rejected, or something could not be
    decided on this machine."""
    from swarm import engines
    from swarm import verify as by_hand
    from swarm.tables import show

    folder = engines.find_engine(engine)
    made = by_hand.read_made(folder)
    weights = engines.checkpoint_of(folder, checkpoint)
    basis = by_hand.basis_of(made)
    order = by_hand.Order(
        acceptance="full" if full else "screen",
        seed=secrets.randbits(32) if seed is None else seed,
        evidence=by_hand.evidence_folder(evidence),
        sandbox=sandbox,
    )
    say = saying_each_once()
    engines.end_like_ctrl_c()
    with by_hand.laid_out(folder) as tree:
        job = by_hand.job_of(folder.name, tree, made, weights, basis, order, say)
        if not as_json:
            show(*by_hand.about(job, made, basis))
        say(f"judging {folder.name}, which takes some minutes")
        verdict = by_hand.judge(job, say)
    told = by_hand.told(verdict, order.evidence)
    if as_json:
        from swarm.judged import Judged

        judged = Judged(verdict=verdict, told=tuple(told), evidence=str(order.evidence), seed=order.seed)
        print(judged.model_dump_json(indent=1))
    else:
        show(by_hand.gate_table(verdict), *told)
    if not verdict.passed:
        raise typer.Exit(1)


@app.command()
def bench(
    engine: Engine,
    full: Annotated[bool, typer.Option("--full", help="11 and 256 prompt tokens, 128 new ones, more repeats")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Every row, machine-readable")] = False,
    checkpoint: Checkpoint = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="What it is compared with, may be repeated: huggingface (the default), vllm, sglang, tensorrt_llm, "
            "mlx_lm (or the path of such a program), the URL of an OpenAI-compatible server, or a command that starts "
            "one on {port}"
        ),
    ] = None,
) -> None:
    """Time an engine and its baselines in turn.

    All get the same fresh prompts in one run; end tokens are ignored, so that lengths are exact."""
    from gpu_actors.bench import baselines, bench_engine, setting_table, summary_table
    from swarm import engines
    from swarm.bench import facts_of_engine, target_of
    from swarm.tables import show

    folder = engines.find_engine(engine)
    weights = engines.checkpoint_of(folder, checkpoint)
    arms = baselines(against or (), tensor_parallel=target_of(folder).constraints.tensor_parallel)
    facts = facts_of_engine(folder, weights)
    warn_if_changed(folder)
    print(
        f"timing the engine and {', '.join(arm.name for arm in arms)} in turn, once no run has the device "
        "(some minutes)",
        file=sys.stderr,
        flush=True,
    )
    benchmark = bench_engine(folder, weights, facts, cache_dir(), against=arms, full=full)
    if as_json:
        print(benchmark.model_dump_json(indent=1))
    else:
        show(summary_table(benchmark, facts), setting_table(benchmark))


@app.command()
def blame(
    engine: Engine,
    place: Annotated[str, typer.Argument(metavar="FILE:LINE", help="model.py:41")],
    run: Annotated[str | None, typer.Option(help="Folder of the engine's run; default: below runs/")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Show where a line of an engine came from.

    Fragment, contract and version of the knowledge base; issue, candidate and author."""
    from swarm import blame as origins
    from swarm.commands.run import find_run
    from swarm.engines import find_engine
    from swarm.tables import show

    origin = origins.blame(find_engine(engine), place, find_run(run) if run else None)
    if as_json:
        print(origin.model_dump_json(indent=1))
    else:
        show(*origins.told(origin))


def saying_each_once() -> Callable[[str], None]:
    """Says on stderr what is being waited for. Gates that run beside each other wait for the same thing."""
    said: set[str] = set()

    def say(words: str) -> None:
        if words not in said:
            said.add(words)
            print(words, file=sys.stderr, flush=True)

    return say


def warn_if_changed(folder: Path) -> None:
    from swarm.engines import changed_since_release

    if changed_since_release(folder):
        print(f"note: the files of {folder} are not those that passed the gates", file=sys.stderr)
