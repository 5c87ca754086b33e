"""`enginesmith bench`: a released engine against baselines in one paired run."""

from pathlib import Path

from pydantic import BaseModel, ValidationError

from ckb.build import read_seed
from ckb.checkpoint import read_checkpoint
from ckb.errors import UserError
from ckb.facts import Facts
from ckb.schemas import ModelFamily
from swarm.feasibility import facts_of
from swarm.platform import detect
from swarm.target import Target


class MadeFor(BaseModel):
    """The part of manifest.json that says what an engine was made for."""

    target: Target


def target_of(folder: Path) -> Target:
    """What an engine was made for. Raises UserError for a manifest that doesn't say it."""
    try:
        return MadeFor.model_validate_json((folder / "manifest.json").read_bytes()).target
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise UserError(
            f"{folder / 'manifest.json'} does not say what the engine was made for: {where}: "
            f"{error.errors()[0]['msg']}; generate it again"
        ) from error


def facts_of_engine(folder: Path, checkpoint: Path) -> Facts:
    """The facts that an engine was made for, on this machine. Raises UserError where they contradict it."""
    target = target_of(folder)
    families = [row for row in read_seed()["models"] if isinstance(row, ModelFamily)]
    platform = detect(target.hardware.accelerator, target.hardware.count)
    return facts_of(target, read_checkpoint(checkpoint, families).facts, platform)
