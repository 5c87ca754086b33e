"""Who answers for which role, as a user writes it under `authors:` of a Target."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ckb.facts import Frozen
from roles.briefs import RoleName

PresetName = Literal["claude", "codex", "opencode", "gemini"]
WEIGHT = Field(1.0, ge=0, allow_inf_nan=False)


class LitellmSettings(Frozen):
    """A model of any provider that litellm knows, or of any OpenAI-compatible server."""

    kind: Literal["litellm"] = "litellm"
    model: str = Field(min_length=1)
    """Model name as litellm takes it: provider/model."""
    api_base: str | None = None
    """Address of an OpenAI-compatible server; left out: the provider's own."""
    api_key_env: str | None = None
    """Environment variable that holds the key; left out: the provider's usual one, or no key for an `api_base` of
    your own, so that a provider's key never goes to another host."""
    temperature: float = Field(0.7, ge=0, le=2)
    max_tokens: int = Field(16_384, ge=1)
    """Most completion tokens of one call."""
    timeout_s: float = Field(600, gt=0)
    """Of one call, from the request to the last byte of the answer."""
    retries: int = Field(4, ge=0, le=20)
    """Further attempts at one call after a rate limit, a timeout, a lost connection or a fault of the server."""
    max_turns: int = Field(40, ge=1, le=1000)
    """Most calls for one answer: an implementer writes its files over several turns."""
    test_runs: int = Field(0, ge=0, le=100)
    """How often an implementer may run its stage's public tests in one answer, in the sandbox and on draws of their
    own; 0: never. The time is the device's."""
    weight: float = WEIGHT
    """Share among the members of an ensemble."""
    usd_per_million_prompt: float | None = Field(None, ge=0)
    """Price, for a model that litellm has none for; 0 for a server of your own."""
    usd_per_million_completion: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def prices_come_together(self) -> "LitellmSettings":
        if (self.usd_per_million_prompt is None) != (self.usd_per_million_completion is None):
            raise ValueError("give both usd_per_million_prompt and usd_per_million_completion, or neither")
        return self

    @property
    def label(self) -> str:
        return self.model


class CliSettings(Frozen):
    """A coding agent's command line that works in a folder and ends by itself."""

    kind: Literal["cli"] = "cli"
    preset: PresetName | None = None
    """A command line that is known: claude, codex, opencode or gemini. It is looked for on the PATH."""
    command: str | None = None
    """Any other: a template with {prompt_file}, the file that says what is to be done, and if need be {folder}, where
    it works, and {model}."""
    model: str = ""
    """Given to the command where it is not empty."""
    environment: tuple[str, ...] = ()
    """Names of the environment variables that the command gets, its key for one. It gets no others of this process."""
    read: tuple[str, ...] = ()
    """Files and folders that it may read beside the system and itself. Relative to ENGINESMITH_HOME."""
    write: tuple[str, ...] = ()
    """Folders that it may also write, the one of its login for example."""
    timeout_s: float = Field(1800, gt=0)
    """Of one run. After it the whole group of processes is killed."""
    attempts: int = Field(2, ge=1, le=20)
    """Most runs for one answer: a further one is told what was wrong with the last."""
    most_usd: float = Field(ge=0, allow_inf_nan=False)
    """Set aside for one run before it starts, and billed where the command doesn't say what it cost. 0 for one that
    costs nothing by use."""
    most_tokens: int = Field(0, ge=0)
    """The same, of tokens."""
    weight: float = WEIGHT
    """Share among the members of an ensemble."""

    @model_validator(mode="after")
    def one_command_line(self) -> "CliSettings":
        if (self.preset is None) == (self.command is None):
            raise ValueError("give either preset (claude, codex, opencode, gemini) or command")
        if self.command is not None:
            unknown = set(re.findall(r"{(\w*)}", self.command)) - {"prompt_file", "folder", "model"}
            if unknown or "{prompt_file}" not in self.command:
                wrong = f"knows no {{{sorted(unknown)[0]}}}" if unknown else "must name {prompt_file}"
                raise ValueError(f"command {wrong}; its places are {{prompt_file}}, {{folder}} and {{model}}")
        return self

    @property
    def label(self) -> str:
        name = self.preset or (self.command or "").partition(" ")[0]
        return f"{name} {self.model}".strip()


class ReplaySettings(Frozen):
    """The answers of an earlier run."""

    kind: Literal["replay"] = "replay"
    transcript: str
    """Transcript of an earlier run: a JSONL file, or a folder of them. Relative to ENGINESMITH_HOME."""
    match: Literal["brief", "subject"] = "brief"
    """brief: the recorded brief must be the same, its run id aside; subject: same role, issue and implementer, which
    also replays briefs that carry measured times."""


class ComposerSettings(Frozen):
    """The embedded author: deterministic, no key, no network."""

    kind: Literal["composer"] = "composer"
    weight: float = WEIGHT
    """Share among the members of an ensemble."""

    @property
    def label(self) -> str:
        return self.kind


Member = Annotated[LitellmSettings | CliSettings | ComposerSettings, Field(discriminator="kind")]


class EnsembleSettings(Frozen):
    """Several authors of one role, one of which answers each time."""

    kind: Literal["ensemble"] = "ensemble"
    members: tuple[Member, ...] = Field(min_length=2)
    learn: bool = True
    """Whether an implementer's shares follow what came of its members' candidates: those kept per dollar. Otherwise,
    and for the other roles, of whose answers nobody can say as much, the weights alone decide."""

    @model_validator(mode="after")
    def somebody_can_be_chosen(self) -> "EnsembleSettings":
        if all(member.weight == 0 for member in self.members):
            raise ValueError("every member's weight is 0, so that none could be chosen")
        return self

    @property
    def arms(self) -> dict[str, Member]:
        """The members by a name that tells them apart."""
        labels = [member.label for member in self.members]
        return {
            label if labels.count(label) == 1 else f"{label} ({number})": member
            for number, (label, member) in enumerate(zip(labels, self.members, strict=True), 1)
        }


SingleAuthor = LitellmSettings | CliSettings | ReplaySettings | ComposerSettings
AuthorConfig = Annotated[SingleAuthor | EnsembleSettings, Field(discriminator="kind")]
AuthorKey = Literal["default"] | RoleName


def singles(configs: Iterable[AuthorConfig]) -> Iterator[SingleAuthor]:
    """Every author that may be asked, the members of ensembles included."""
    for config in configs:
        if isinstance(config, EnsembleSettings):
            yield from config.members
        else:
            yield config


def only_the_composer() -> dict[AuthorKey, AuthorConfig]:
    return {"default": ComposerSettings()}


def settings_for(authors: Mapping[AuthorKey, AuthorConfig], role: RoleName) -> AuthorConfig:
    """The author of a role: the one that is named for it, else `default`, else the composer."""
    return authors.get(role) or authors.get("default") or ComposerSettings()
