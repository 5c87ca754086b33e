"""From configuration to author."""

from pathlib import Path

from roles.author import Author, AuthorError
from roles.authors.composer import Composer
from roles.authors.litellm_author import LitellmAuthor
from roles.authors.replay import ReplayAuthor
from roles.budget import Budget
from roles.completion import Gateway
from roles.library import Library
from roles.settings import AuthorConfig, ComposerSettings, LitellmSettings, ReplaySettings
from roles.transcript import Recorded, Transcript


def make_author(
    config: AuthorConfig,
    *,
    gateway: Gateway | None,
    budget: Budget,
    transcript: Transcript | None = None,
    home: Path = Path(),
    library: Library | None = None,
) -> Author:
    """The author of one configuration. `home` is where relative transcript paths start, `library` what a model may look
    up besides its brief.

    Raises AuthorError for a model without a gateway, TranscriptError for a transcript that can't be read.
    """
    author: Author
    match config:
        case ComposerSettings():
            author = Composer()
        case ReplaySettings():
            author = ReplayAuthor(home / config.transcript, config.match)
        case LitellmSettings() if gateway is None:
            raise AuthorError(f"the model {config.model!r} needs a gateway, and this run has none")
        case LitellmSettings():
            author = LitellmAuthor(config, gateway, budget, transcript, library=library)
    return Recorded(author, transcript) if transcript else author
