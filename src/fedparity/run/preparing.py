"""What engines work on: the model, its parameters and the clients' data, made of the settings."""

from __future__ import annotations

from fedparity.data import Federation
from fedparity.engines.engine import Setup
from fedparity.engines.evaluation import mixes_examples
from fedparity.engines.inputs import fitted
from fedparity.errors import InputError
from fedparity.learning.device import check_dtype, chosen
from fedparity.learning.frozen import freeze, load_weights
from fedparity.learning.layout import Layout
from fedparity.learning.seeds import seed_for
from fedparity.learning.solver import Solver
from fedparity.learning.task import DTYPES, Task
from fedparity.learning.unpacking import shapes, unpacking
from fedparity.method.algorithm import Algorithm
from fedparity.metrics import Metric
from fedparity.run.conditions import Conditions


def prepare(
    federation: Federation,
    task: Task,
    algorithm: Algorithm,
    solver: Solver,
    conditions: Conditions,
    metrics: tuple[Metric, ...] = (),
) -> Setup:
    """Return what engines work on, with a fresh module and its data in the right dtype."""
    dtype, seed = DTYPES[conditions.dtype], seed_for(conditions.seed, "model")
    device = chosen(conditions.device)
    check_dtype(device, dtype)
    shape = shapes(federation.fields, federation.shape)
    module = unpacking(task.build(shape, federation.outputs, seed, dtype), federation.fields)
    module = freeze(module, conditions.trainable)
    if conditions.pretrained is not None:
        module = load_weights(module, conditions.pretrained)
    federation = fitted(federation, module, dtype)
    layout = Layout(module)
    exact = algorithm.having("examples")
    if exact and mixes_examples(module):
        raise InputError(
            f"'{exact[0].name}' takes the gradient of every example by itself, which a model with "
            "BatchNorm does not have: use GroupNorm or LayerNorm"
        )
    if layout.buffers and conditions.buffers == "refuse":
        raise InputError(f"the model has buffers ('{layout.buffers[0].name}') and buffers='refuse'")
    local = conditions.buffers == "local" or algorithm.local_buffers
    return Setup(
        federation,
        task,
        module,
        layout,
        algorithm,
        solver,
        conditions.seed,
        conditions.rounds,
        local_buffers=local,
        metrics=metrics,
        device=device,
    )


def cohort_size(cohort: int | float | None, population: int) -> int:
    """Return how many clients are asked a round: all, a share of them, or a whole number."""
    if cohort is None:
        return population
    if isinstance(cohort, float) and cohort <= 1:
        return max(1, round(cohort * population))
    if cohort > population or cohort != int(cohort):
        raise InputError(f"cohort is {cohort:g}: a share, or a whole number up to {population}")
    return int(cohort)
