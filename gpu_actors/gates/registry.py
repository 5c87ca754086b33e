"""All gates, in the order in which a stage runs them."""

from gpu_actors.gates import acceptance, execution, integration, model, server
from gpu_actors.gates.base import Gate

STAGE_GATES: tuple[Gate, ...] = (
    *execution.GATES,
    *model.GATES,
    *integration.GATES,
    *server.GATES,
    *acceptance.GATES,
)
