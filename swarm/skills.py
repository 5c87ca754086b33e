"""What the export as Agent Skills needs from us: rows of one version, and the least manifest that `verify` reads."""

import json
from importlib.metadata import version as installed

from ckb.build import read_seed
from ckb.knowledge_files import SUFFIXES
from ckb.store import Store, Version
from roles.skills.shelf import Shelf
from swarm.release import MANIFEST_FORMAT
from swarm.target import Model, Target


def shelf_of_store(store: Store, version: Version = None) -> Shelf:
    """The knowledge of a version of a store. Raises UserError for one that it does not have."""
    number = store.state(version).version
    rows = {table: store.rows(table, number) for table in SUFFIXES}
    return Shelf(rows, f"version {number}", least_manifest(number))


def shelf_of_seed() -> Shelf:
    """The seed files of this installation."""
    return Shelf(read_seed(), f"the seed of release {installed('enginesmith')}", least_manifest(0))


def least_manifest(ckb_version: int) -> str:
    """JSON for an engine that no run released: what `verify` must know of it, and nothing that only a run knows."""
    target = Target(model=Model(path="models/MODEL"))
    asked = target.model_dump(mode="json", include={"model", "hardware", "workload", "constraints"})
    manifest = {
        "format": MANIFEST_FORMAT,
        "tree": "written by hand",
        "checkpoint": target.model.path,
        "target": asked,
        "ckb_version": ckb_version,
        "contracts": {},
        "choices": {},
    }
    return json.dumps(manifest, indent=1)
