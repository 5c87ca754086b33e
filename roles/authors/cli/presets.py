"""The command lines of coding agents that can work without a person.

Their options are those of their documentation; none of them is part of the tests, which use small scripts.
"""

from pathlib import Path

from ckb.command_lines import words_of
from roles.settings import CliSettings, PresetName

PROMPT = "Read the file {prompt_file} and do what it says. It holds all that you need; nobody can answer a question."
PRESETS: dict[PresetName, tuple[str, ...]] = {
    "claude": ("claude", "-p", PROMPT, "--output-format", "json", "--permission-mode", "acceptEdits"),
    "codex": ("codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write", PROMPT),
    "opencode": ("opencode", "run", "--format", "json", PROMPT),
    "gemini": ("gemini", "-p", PROMPT, "--output-format", "json", "--approval-mode", "auto_edit"),
}
MODEL = "--model"
"""All four call it the same."""


def argv_of(settings: CliSettings, folder: Path, prompt_file: Path) -> tuple[str, ...]:
    """The words of the command line. Raises UserError for a template that is none."""
    if settings.preset:
        words = [*PRESETS[settings.preset], *((MODEL, "{model}") if settings.model else ())]
    else:
        words = words_of(settings.command or "", "command of a cli author")
    places = {"{prompt_file}": str(prompt_file), "{folder}": str(folder), "{model}": settings.model}
    return tuple(_filled(word, places) for word in words)


def _filled(word: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word
