"""What must stand in the environment before `import ray`: Ray reads its configuration once, when it is imported."""

import os
import secrets

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "REPORTER_UPDATE_INTERVAL_MS": "60000",  # node statistics that nobody reads: 2% of a core at Ray's own 5 s
    "RAY_raylet_start_wait_time_s": "180",  # of a loaded machine; Ray's own 60 s were too short on two busy cores
}


def inside_a_job() -> bool:
    """Whether this driver was started by `ray job submit` or told of a cluster: both set the cluster's address."""
    return "RAY_ADDRESS" in os.environ


def prepare() -> None:
    """Called before ray is imported. A cluster that we start asks for a token, made here and known to its processes
    alone; a cluster that we join has its own settings."""
    os.environ.update(QUIET)
    if not inside_a_job():
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
