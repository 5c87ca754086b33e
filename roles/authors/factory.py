"""From configuration to author."""

from pathlib import Path

from roles.author import Author, AuthorError
from roles.authors.cli import CliAuthor
from roles.authors.cli.shell import Shell
from roles.authors.composer import Composer
from roles.authors.litellm_author import LitellmAuthor
from roles.authors.replay import ReplayAuthor
from roles.budget import Budget
from roles.completion import Gateway
from roles.desk import Means
from roles.settings import CliSettings, ComposerSettings, LitellmSettings, ReplaySettings, SingleAuthor
from roles.transcript import Recorded, Transcript


def make_author(
    config: SingleAuthor,
    *,
    gateway: Gateway | None,
    budget: Budget,
    transcript: Transcript | None = None,
    home: Path = Path(),
    means: Means | None = None,
    shell: Shell | None = None,
) -> Author:
    """The author of one configuration. `home` is where relative transcript paths start, `means` what a model can call
    upon besides its brief, `shell` where a command runs.

    Raises AuthorError for a model without a gateway or a command without a shell, TranscriptError for a transcript that
    can't be read.
    """
    author: Author
    match config:
        case ComposerSettings():
            author = Composer()
        case ReplaySettings():
            author = ReplayAuthor(home / config.transcript, config.match)
        case LitellmSettings():
            if gateway is None:
                raise AuthorError(f"the model {config.model!r} needs a gateway, and this run has none")
            author = LitellmAuthor(config, gateway, budget, transcript, means=means)
        case CliSettings():
            if shell is None:
                raise AuthorError(f"the command {config.label!r} needs a shell, and this run has none")
            author = CliAuthor(config, shell, budget, transcript)
    return Recorded(author, transcript) if transcript else author
