"""The process of one engine tree, for whoever runs it: its sandbox, and how the tree is opened in it."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gpu_actors.child import Child
from gpu_actors.confinement import DISK_BYTES, Confinement
from gpu_actors.gpus import grant
from gpu_actors.jobs import EngineJob


def confinement(
    engine: EngineJob,
    cache_dir: Path,
    *,
    also_read: tuple[Path, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Confinement:
    """Its kernel cache is its own: no tree can leave something there for another. Raises UserError where it is not
    known which device files are those of the leased devices."""
    kernels = cache_dir / "kernels" / engine.tree
    kernels.mkdir(parents=True, exist_ok=True)
    given = grant(engine.facts.platform.accelerator)
    caches = {"XDG_CACHE_HOME": str(kernels), "TRITON_CACHE_DIR": str(kernels / "triton")}
    return Confinement(
        mode=engine.sandbox,
        read=(Path(engine.tree_dir), *also_read),
        data=(Path(engine.checkpoint),),
        write=(kernels,),
        operators=engine.operators,
        environment={**given.environment, **caches, **environment},
        memory_bytes=engine.max_memory_bytes,
        devices=given.devices,
        disk_bytes=engine.max_disk_bytes or DISK_BYTES,
    )


def open_tree(child: Child, engine: EngineJob, deadline_s: float, *, served: bool = False) -> None:
    """Makes the tree importable in its process; nothing of it runs yet. `served`: its server will be started there.
    Raises ChildFailure."""
    if served:
        child.call("prepare_server", deadline_s)
    platform = engine.facts.platform
    arguments = {"threads": platform.cores, "device": platform.accelerator}
    child.call("open", deadline_s, tree_dir=engine.tree_dir, **arguments)
