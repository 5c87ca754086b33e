"""Ray: a local cluster of our own, or the one that we were submitted to.

A cluster that we start has token authentication on (Ray 2.60's `ray start` leaves it off) and no dashboard. A cluster
that we join is used as it is; if it is open to anyone who reaches it, a warning says so. Nothing of value lives in Ray.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ckb.errors import UserError
from swarm.paths import home
from swarm.ray_environment import inside_a_job
from swarm.target import Target

OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Nothing large goes through the object store: trees and evidence are files."""


@contextmanager
def cluster(target: Target) -> Iterator[None]:
    """Connected to Ray with what the Target needs, and disconnected again. Raises UserError if it can't be met."""
    if inside_a_job():
        join()
    else:
        start_local()
    try:
        check_resources(target)
        check_home_on_every_node()
        yield
    finally:
        ray.shutdown()


def start_local() -> None:
    """A cluster of this machine alone. `address="local"` keeps it apart from any other cluster that runs here."""
    assert "RAY_AUTH_TOKEN" in os.environ, "swarm.ray_environment.prepare() comes before `import ray`"
    with interrupts_later():
        ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=os.cpu_count(),
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            configure_logging=False,
        )


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Holds a Ctrl-C back until the block has ended: one in the middle of Ray's start ended the process with a
    segmentation fault in Ray's own thread, in place of a word on how to go on."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def join() -> None:
    """The cluster of RAY_ADDRESS."""
    if not os.environ.get("ENGINESMITH_HOME"):
        raise UserError(
            "under a cluster job ENGINESMITH_HOME must name a folder that all nodes share (models/, store/, runs/ and "
            "engines/ are in it): the job's working folder is a copy that ends with the job"
        )
    if os.environ.get("RAY_AUTH_MODE", "disabled") != "token":
        print(
            "warning: this Ray cluster has no token authentication: whoever reaches its ports can run code on it. "
            "Start it with RAY_AUTH_MODE=token and a RAY_AUTH_TOKEN.",
            file=sys.stderr,
        )
    ray.init(log_to_driver=False, configure_logging=False)


def device_resources(target: Target) -> dict[str, float]:
    """What the actor that holds the Target's devices asks of its node. The CPU is one device: the actor takes all of
    the node's cores, so that Ray puts nothing else there that asks for any."""
    if target.hardware.accelerator == "cpu":
        return {"num_cpus": this_node()["Resources"].get("CPU", 0) or 1}
    return {"num_cpus": 1, "num_gpus": float(target.hardware.count)}


def device_options(target: Target) -> dict[str, Any]:
    """Ray options of that actor. It stays on the orchestrator's node: the plan's facts and bound were read there."""
    here = NodeAffinitySchedulingStrategy(this_node()["NodeID"], soft=False)
    return {**device_resources(target), "scheduling_strategy": here}


def this_node() -> dict[str, Any]:
    """Ray's record of the node that this process runs on."""
    own = ray.get_runtime_context().get_node_id()
    node: dict[str, Any] = next(node for node in ray.nodes() if node["NodeID"] == own)
    return node


def check_resources(target: Target) -> None:
    """Fails at once, with the numbers, where Ray would wait for ever."""
    have = this_node()["Resources"]
    for name, wanted in device_resources(target).items():
        resource = {"num_cpus": "CPU", "num_gpus": "GPU"}[name]
        if have.get(resource, 0) < wanted:
            raise UserError(
                f"hardware.count asks for {wanted:g} {resource} in pool {target.hardware.pool!r}, "
                f"this node has {have.get(resource, 0):g}: change hardware.accelerator or hardware.count"
            )


def check_home_on_every_node() -> None:
    """Every node must see the same ENGINESMITH_HOME: that is how trees and checkpoints reach the devices."""
    folder = str(home())
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    check = ray.remote(num_cpus=0)(_is_folder)
    answers = ray.get(
        [
            check.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(folder)
            for node in nodes
        ]
    )
    for node, there in zip(nodes, answers, strict=True):
        if not there:
            raise UserError(f"ENGINESMITH_HOME {folder} is missing on node {node['NodeManagerAddress']}")


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()
