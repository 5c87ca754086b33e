"""All gates, in the order in which a stage runs them."""

from ckb.records import Stage
from gpu_actors.gates import (
    acceptance,
    calls,
    claims,
    decode,
    distribution,
    errors,
    execution,
    followed,
    honesty,
    integration,
    interface,
    lasting,
    model,
    repeated,
    sampling,
    server,
    single,
    states,
)
from gpu_actors.gates.base import Gate

OWN: dict[Stage, tuple[Gate, ...]] = {
    "execution": (*execution.GATES, single.GATES["execution"]),
    "model": (*model.GATES, *repeated.MODEL, single.GATES["model"]),
    "integration": (
        *integration.GATES,
        *sampling.GATES,
        *repeated.INTEGRATION,
        *honesty.GATES,
        *claims.GATES,
        *server.GATES,
    ),
}
"""The tests of each stage. Around them the contracts are executed: their calls are recorded while these run."""


def executed(stage: Stage) -> tuple[Gate, ...]:
    """What executes the contracts of a stage once its own tests have shown that it works; the last one ends the
    recording."""
    return states.GATES[stage], errors.GATES[stage], calls.GATES[stage]


STAGE_GATES: tuple[Gate, ...] = (
    *(gate for stage, own in OWN.items() for gate in (interface.GATES[stage], *own, *executed(stage))),
    *acceptance.GATES,
    *lasting.GATES,
    *distribution.GATES,
    *decode.GATES,
    *followed.GATES,
)
