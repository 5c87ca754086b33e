"""`enginesmith init`: a commented Target for a checkpoint and this machine."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

from ckb.errors import UserError
from ckb.facts import ModelFacts, PlatformFacts
from roles.completion import Gateway
from roles.settings import LitellmSettings
from swarm.paths import home, writing
from swarm.target import Constraints, Hardware, Model, Target, User, Workload, target_from_text
from swarm.target_text import render_target

Note = Callable[[str], None]
PROMPT, NEW, CONTEXT = 256, 128, 1024
"""Lengths of a draft, tokens: what is measured, and how long a talk may be. The model's own limit cuts them."""


def draft_target(checkpoint: Path, model: ModelFacts, platform: PlatformFacts, words: str) -> Target:
    """The Target that fits without any further wish: one request at a time, the weights as they are stored."""
    prompt = max(1, min(PROMPT, model.max_positions // 2))
    new = max(1, min(NEW, model.max_positions - prompt))
    return Target(
        model=Model(path=path_text(checkpoint)),
        hardware=Hardware(accelerator=platform.accelerator, count=platform.count),
        workload=Workload(prompt_tokens=(prompt,), new_tokens=(new,), max_context=min(CONTEXT, model.max_positions)),
        constraints=Constraints(dtype="bfloat16" if platform.accelerator == "cuda" else "float32"),
        user=User(instructions=words or None),
    )


def path_text(path: Path) -> str:
    """A path as a Target names it: below home() where it is there, so that the file works on other machines."""
    path = path.absolute()
    return path.relative_to(home()).as_posix() if path.is_relative_to(home()) else str(path)


def header(model: ModelFacts, platform: PlatformFacts, words: str) -> str:
    """The comment at the top: what the values below were derived from, and what was asked for."""
    lines = [
        f"{model.architecture}, {model.layers} layers, {model.parameters / 1e6:,.0f} million parameters in "
        f"{model.weights}, context up to {model.max_positions} tokens",
        f"{platform.name}: {platform.cores} core(s), {platform.memory_bytes / 2**30:.1f} GiB, "
        + (f"C++ kernels through {platform.compiler}" if platform.compiler else "no C++ compiler: torch's operators"),
    ]
    if words:
        lines += textwrap.wrap(f"asked for: {words}", 110)
    return "".join(f"# {line}\n" for line in lines)


def write_target(
    checkpoint: Path, model: ModelFacts, platform: PlatformFacts, words: str, output: Path, note: Note
) -> Target:
    """Writes the Target to `output`, which must not exist yet. The words go to the language model that
    ENGINESMITH_MODEL names; without one they stay in the file as they are."""
    if output.exists():
        raise UserError(f"{output} is there already: name another file with --output")
    draft = draft_target(checkpoint, model, platform, words)
    target, text = draft, render_target(draft)
    settings = configured_model()
    if words and settings:
        note(f"asking {settings.model} to read your words")
        target, text = completed(words, text, settings)
    elif words:
        note("no language model is configured (ENGINESMITH_MODEL): your words stand in user.instructions as they are")
    with writing(output.parent):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(header(model, platform, words) + text, encoding="utf-8")
    note(f"wrote {output}; look it over, then: enginesmith generate {output}")
    return target


def configured_model() -> LitellmSettings | None:
    """The model that ENGINESMITH_MODEL names (ENGINESMITH_API_BASE: an OpenAI-compatible server of one's own)."""
    if name := os.environ.get("ENGINESMITH_MODEL"):
        return LitellmSettings(model=name, api_base=os.environ.get("ENGINESMITH_API_BASE"))
    return None


def completed(words: str, draft: str, settings: LitellmSettings, gateway: Gateway | None = None) -> tuple[Target, str]:
    """The draft as a language model changed it to fit the words. Raises TargetError when that is no Target."""
    from roles.authors.by_hand import complete_target  # litellm takes seconds to import

    text = complete_target(words, draft, settings, gateway)
    return target_from_text(text, f"the answer of {settings.model}"), text
