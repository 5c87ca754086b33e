"""Builds the table of fingerprints (ckb.fingerprints) from releases of inference frameworks: hashes, and no source.

A release is a wheel, a source distribution, or the folder of an installed package with its metadata beside it.
"""

import sysconfig
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from ckb.errors import UserError
from ckb.fingerprints import SCHEMA, normalised, shingles, winnowed
from ckb.whole_files import replacing

GLOBS: Mapping[str, tuple[str, ...]] = {
    "transformers": (
        "models/*/modeling_*.py", "modeling_*.py", "cache_utils.py", "masking_utils.py", "activations.py",
        "pytorch_utils.py", "core_model_loading.py", "conversion_mapping.py", "generation/*.py", "cli/serving/*.py",
        "integrations/*attention*.py", "integrations/*paged*.py", "integrations/moe.py", "integrations/*fp8.py",
        "integrations/*fp4.py", "integrations/tensor_parallel.py",
    ),
    "vllm": (
        "model_executor/*.py", "attention/*.py", "core/*.py", "engine/*.py", "executor/*.py", "worker/*.py",
        "spec_decode/*.py", "distributed/*.py", "device_allocator/*.py", "compilation/*.py", "v1/*.py", "models/*.py",
        "kernels/*.py", "ir/*.py", "transformers_utils/detokenizer*.py",
    ),
    "sglang": tuple(
        f"srt/{part}/*.py"
        for part in (
            "layers", "models", "managers", "mem_cache", "model_executor", "model_loader", "sampling", "speculative",
            "constrained", "distributed", "disaggregation", "batch_overlap", "compilation", "batch_invariant_ops",
            "hardware_backend",
        )
    ),
    "lmdeploy": ("pytorch/*.py", "turbomind/*.py"),
}  # fmt: skip
"""Project -> which of its files are model, layer, scheduler, loader and cache code, by the path inside its package.
A star also stands for folders in between. modular_*.py of transformers say again what its modeling_*.py hold."""
NO_CODE = frozenset({"test", "tests", "testing"})
INDEPENDENT = (
    "torch/nn", "torch/optim", "torch/utils", "ray/serve", "huggingface_hub", "pydantic", "aiohttp", "rich",
    "starlette", "httpx", "jinja2", "typer",
)  # fmt: skip
"""Installed packages, or parts of one, that with Python's own library tell which spans are common: written by others,
for other ends. The frameworks took code over from each other, as their files' heads say, and so count as one."""
COMMON_IN = 3
"""Independent projects that make a span common: a framework and two of INDEPENDENT."""


@dataclass(frozen=True)
class Release:
    """The files of one release that are fingerprinted: path inside the distribution -> source text."""

    project: str
    version: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Merged:
    """What one release gave to the table."""

    release: Release
    kept: int
    common: int
    """Fingerprints left out since other projects have them too."""
    unparsed: tuple[str, ...]
    """Files that this Python can't parse."""


def read_release(path: Path) -> Release:
    """Raises UserError for what is no release, or of a project without globs, or holds none of their files."""
    held = members(path)
    name, version = name_and_version(path, held)
    if name not in GLOBS:
        raise UserError(f"{path} is {name} {version}; GLOBS of ckb/fingerprint_table.py has {', '.join(GLOBS)}")
    files = {}
    for member, data in held.items():
        inner = _inside(PurePosixPath(member), name)
        if inner and any(fnmatchcase(inner, glob) for glob in GLOBS[name]):
            files[f"{name}/{inner}"] = data.decode("utf-8", errors="replace")
    if not files:
        raise UserError(f"none of the {len(held)} files of {path} is one of {name}'s {', '.join(GLOBS[name])}")
    return Release(name, version, dict(sorted(files.items())))


def members(path: Path) -> dict[str, bytes]:
    """Python files and metadata of an archive or an installed package, by their path in it."""
    if path.is_dir():
        infos = path.parent.glob(f"{path.name}-*.dist-info/METADATA")
        return {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in (*path.rglob("*.py"), *infos)}
    try:
        if path.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(path) as wheel:
                return {name: wheel.read(name) for name in wheel.namelist() if _wanted(name)}
        with tarfile.open(path) as archive:
            found = {m.name: archive.extractfile(m) for m in archive if m.isfile() and _wanted(m.name)}
            return {name: file.read() for name, file in found.items() if file}
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no wheel, source distribution or installed package: {error}") from error


def _wanted(name: str) -> bool:
    return name.endswith((".py", ".dist-info/METADATA", "/PKG-INFO"))


def name_and_version(path: Path, members: Mapping[str, bytes]) -> tuple[str, str]:
    heads = [name for name in members if not name.endswith(".py")]
    if not heads:
        raise UserError(f"{path} has neither METADATA nor PKG-INFO among its {len(members)} files")
    head = BytesHeaderParser().parsebytes(members[min(heads, key=lambda name: (name.count("/"), name))])
    return str(head["Name"]).lower().replace("-", "_"), str(head["Version"])


def _inside(member: PurePosixPath, package: str) -> str | None:
    """The path below the package's folder, wherever that folder lies in the archive. None: not of the package."""
    folders = member.parts[:-1]
    if package not in folders or NO_CODE & set(folders) or member.suffix != ".py":
        return None
    return "/".join(member.parts[folders.index(package) + 1 :])


def common_hashes() -> frozenset[int]:
    """Hashes of the spans that two of INDEPENDENT and Python's own library have: a minute's work, since all hashes
    count and not the winnowed ones only. Raises UserError if one isn't installed."""
    paths = sysconfig.get_paths()
    library, site = Path(paths["stdlib"]), Path(paths["purelib"])
    projects = {"python": [path for path in library.iterdir() if not path.name.endswith("-packages")]}
    for name in INDEPENDENT:
        if not (site / name).is_dir():
            raise UserError(f"{name} isn't installed in {site}, and without it other spans would be common")
        projects.setdefault(name.split("/")[0], []).append(site / name)
    counts: Counter[int] = Counter()
    for roots in projects.values():
        counts.update(_all_hashes(roots))
    return frozenset(value for value, count in counts.items() if count >= COMMON_IN - 1)


def _all_hashes(roots: Iterable[Path]) -> set[int]:
    """Every hash of the modules among and below `roots`."""
    found: set[int] = set()
    for root in roots:
        for file in root.rglob("*.py") if root.is_dir() else [root] * (root.suffix == ".py"):
            if not NO_CODE & set(file.relative_to(root.parent).parts):
                source = file.read_text(encoding="utf-8", errors="replace")
                found.update(value for value in _hashes(source) or () if value is not None)
    return found


def _hashes(source: str) -> list[int | None] | None:
    """None for a module that this Python can't parse."""
    try:
        with warnings.catch_warnings():  # of other people's escape sequences
            warnings.simplefilter("ignore")
            return shingles(normalised(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two for brackets nested too deep
        return None


def merged(table: pa.Table, releases: Iterable[Release], common: Collection[int]) -> tuple[pa.Table, list[Merged]]:
    """The table with each release in the place of whatever it held of the same project, and what each gave."""
    rows = table.to_pylist()
    done = []
    for release in releases:
        first: dict[int, str] = {}
        unparsed = []
        for file, source in release.files.items():
            hashes = _hashes(source)
            if hashes is None:
                unparsed.append(file)
            for value in winnowed(hashes or ()):
                first.setdefault(value, file)
        kept = {value: file for value, file in first.items() if value not in common}
        names = {"project": release.project, "release": release.version}
        rows = [row for row in rows if row["project"] != release.project]
        rows += [{"hash": value, "file": file, **names} for value, file in kept.items()]
        done.append(Merged(release, len(kept), len(first) - len(kept), tuple(unparsed)))
    rows.sort(key=lambda row: (row["hash"], row["project"]))
    return pa.Table.from_pylist(rows, schema=SCHEMA), done


def stored(path: Path) -> pa.Table:
    """The table at `path`, or an empty one if there is none yet. Raises UserError for another kind of file."""
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} for the table")
    if not path.exists():
        return SCHEMA.empty_table()
    try:
        found = pq.ParquetFile(path).read()
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is no table of fingerprints: {error}") from error
    if found.schema.names != SCHEMA.names:
        raise UserError(f"{path} has the columns {found.schema.names}, a table of fingerprints has {SCHEMA.names}")
    return found.cast(SCHEMA)


def write_table(table: pa.Table, path: Path) -> None:
    """Sorted hashes are written as differences, names as numbers of a list: about 5 bytes a row."""
    with replacing(path) as draft:
        pq.write_table(
            table,
            draft,
            compression="zstd",
            compression_level=19,
            use_dictionary=["project", "release", "file"],
            column_encoding={"hash": "DELTA_BINARY_PACKED"},
            write_statistics=False,
        )
