"""FedSGD: one full gradient a round; with q-FFL, q-FedSGD."""

from __future__ import annotations

import copy

import pytest
import torch
from scripted import after, bench, matrix, parabolas, small_net, vector
from torch import nn

from fedparity.errors import InputError
from fedparity.learning.solver import Solver
from fedparity.testing import unlike_clients

SOLVER = Solver(lr=0.2, steps=5, batch=2, decay=0.5)
"""Steps and batch must not matter."""


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_it_is_gradient_descent_on_the_pooled_data(engine):
    made = bench(unlike_clients(), "fedsgd", solver=SOLVER, model=small_net, engine=engine)
    module = copy.deepcopy(made.setup.module)
    pooled = made.setup.federation.train
    for round in range(3):
        module.zero_grad()
        nn.functional.cross_entropy(module(pooled.x), pooled.y).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.2 * 0.5**round * parameter.grad
        torch.testing.assert_close(after(made), made.setup.layout.read(module)[0])


def test_it_is_fedavg_of_one_full_batch_step():
    made = bench(unlike_clients(), "fedsgd", solver=SOLVER, model=small_net)
    step = bench(unlike_clients(), "fedavg", solver=Solver(lr=0.2, decay=0.5), model=small_net)
    torch.testing.assert_close(after(made, 3), after(step, 3))


def test_q_fedsgd_by_hand():
    # F = (x - 3)^2 and (x + 1)^2 at 1: F = (4, 4), g = (-4, 4), L = 1/0.1 = 10; at 0: F = (9, 1),
    # g = (-6, 2). q = 1: x <- x - sum F g / sum (|g|^2 + 10 F) = (54 - 2) / (36 + 4 + 100)
    clients = parabolas([[1.0], [1.0]], [[3.0], [-1.0]])
    for start, wanted in ((1.0, 1.0), (0.0, 52 / 140)):
        made = bench(clients, "qfedsgd(q=1)", [start], solver=Solver(lr=0.1, steps=4))
        torch.testing.assert_close(after(made), vector(wanted), atol=1e-8, rtol=0)


def test_q_fedsgd_with_q_0_is_uniform_fedsgd():
    clients = parabolas([[1.0, 2.0], [3.0, 1.0]], [[3.0, 0.0], [-1.0, 1.0]])
    made = bench(clients, "qfedsgd(q=0)", [0.0, 0.0], solver=Solver(lr=0.1, steps=4))
    gradients = matrix((-6.0, 0.0), (6.0, -2.0))
    torch.testing.assert_close(after(made), -0.1 * gradients.mean(0))


def test_an_update_counts_as_one_step():
    made = bench(unlike_clients(), "fedsgd+nova", solver=SOLVER, model=small_net)
    assert made.advance().steps.tolist() == [1, 1, 1, 1]
    plain = bench(unlike_clients(), "fedsgd", solver=SOLVER, model=small_net)
    torch.testing.assert_close(made.server.x, after(plain))


@pytest.mark.parametrize(
    "other",
    ["prox", "lsr", "pgvc", "scaffold", "eagle(apply=gradient)", "fedeba_plus(alpha=1)", "local"],
)
def test_parts_that_act_on_local_steps_are_refused(other):
    name = other.partition("(")[0]
    with pytest.raises(InputError, match=f"no local steps, in which '{name}'"):
        bench(
            unlike_clients(),
            f"fedsgd+{other}",
            solver=Solver(),
            model=small_net,
            lstar="best_validation",
        )


def test_parts_that_look_at_the_update_come_after_it():
    with pytest.raises(InputError, match="write 'fedsgd' first"):
        bench(unlike_clients(), "qffl+fedsgd", solver=SOLVER, model=small_net)
