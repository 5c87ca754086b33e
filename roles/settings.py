"""Who answers for which role, as a user writes it under `authors:` of a Target."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ckb.facts import Frozen
from roles.briefs import RoleName


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
    weight: float = Field(1.0, ge=0)
    """Share among several models of one role; a role's only model answers whatever its weight."""
    usd_per_million_prompt: float | None = Field(None, ge=0)
    """Price, for a model that litellm has none for; 0 for a server of your own."""
    usd_per_million_completion: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def prices_come_together(self) -> "LitellmSettings":
        if (self.usd_per_million_prompt is None) != (self.usd_per_million_completion is None):
            raise ValueError("give both usd_per_million_prompt and usd_per_million_completion, or neither")
        return self


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


AuthorConfig = Annotated[LitellmSettings | ReplaySettings | ComposerSettings, Field(discriminator="kind")]
AuthorKey = Literal["default"] | RoleName


def only_the_composer() -> dict[AuthorKey, AuthorConfig]:
    return {"default": ComposerSettings()}


def settings_for(authors: Mapping[AuthorKey, AuthorConfig], role: RoleName) -> AuthorConfig:
    """The author of a role: the one that is named for it, else `default`, else the composer."""
    return authors.get(role) or authors.get("default") or ComposerSettings()
