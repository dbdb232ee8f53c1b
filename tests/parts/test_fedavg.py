"""FedAvg, the empty list of parts: its fixture and what it is a limit of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, Script, after, bench, vector
from torch.nn import functional as F

import fedparity as fp
from fedparity.learning.seeds import seeds_for
from fedparity.testing import unlike_clients

NET = "mlp(hidden=4)"


def test_fixture_with_weights_by_size_and_uniform():
    # (50 (0.8, 1.5) + 25 (1.2, 1.9) + 25 (0.5, 2.3)) / 100, and the plain mean
    by_size = Script([]).play(FIXTURE)
    uniform = Script([], by_size=False).play(FIXTURE)
    torch.testing.assert_close(by_size, vector(0.825, 1.8))
    torch.testing.assert_close(uniform, vector(2.5 / 3, 5.7 / 3))


def test_weights_are_renormalised_over_those_who_answer():
    # Clients 0 and 2 weigh 2/3 and 1/3: (0.8 * 2 + 0.5) / 3, (1.5 * 2 + 2.3) / 3
    found = Script([]).play(FIXTURE[[0, 2]], clients=[0, 2])
    torch.testing.assert_close(found, vector(0.7, 5.3 / 3))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_one_full_batch_step_by_size_is_gradient_descent_on_the_pooled_data(unlike, engine):
    made = bench(unlike, "fedavg", solver=fp.Solver(lr=0.3, steps=1), model=NET, engine=engine)
    x = made.server.x.clone().requires_grad_()
    for _ in range(4):
        pooled = torch.func.functional_call(
            made.setup.module, made.setup.layout.parameters(x), (unlike.train.x,)
        )
        (g,) = torch.autograd.grad(F.cross_entropy(pooled, unlike.train.y), x)
        x = (x.detach() - 0.3 * g).requires_grad_()
    torch.testing.assert_close(after(made, 4), x.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_client_is_centralised_sgd(engine, momentum):
    one = unlike_clients((11,))
    solver = fp.Solver(lr=0.2, epochs=2, batch=4, momentum=momentum, decay=0.5)
    made = bench(one, "fedavg", solver=solver, model=NET, engine=engine, seed=3)
    model = made.experiment.task.build((3,), 3, 0, torch.float64)
    made.setup.layout.write(model, made.server.x)
    for t in (1, 2):
        rule = torch.optim.SGD(model.parameters(), lr=0.2 * 0.5 ** (t - 1), momentum=momentum)
        plan = solver.batches(seeds_for(3, "batches", t, [0]), np.asarray([11]))
        for rows, real in zip(plan.index[0], plan.mask[0], strict=True):
            rule.zero_grad()
            inputs, target = one.train.x[rows[real]], one.train.y[rows[real]]
            F.cross_entropy(model(inputs), target).backward()
            rule.step()
    trained = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(after(made, 2), trained, rtol=1e-12, atol=1e-14)


def test_identical_clients_are_one_client_step_for_step():
    one = unlike_clients((7,))
    x, y = one.train.x.repeat(3, 1).numpy(), one.train.y.repeat(3).numpy()
    three = fp.Federation.from_arrays(x, y, np.repeat(np.arange(3), 7), ["train"] * 21, outputs=3)
    solver = fp.Solver(lr=0.2, steps=4)
    alone, together = (bench(f, "fedavg", solver=solver, model=NET) for f in (one, three))
    torch.testing.assert_close(after(together, 3), after(alone, 3), rtol=1e-12, atol=1e-14)


def test_a_larger_client_takes_more_steps_with_epochs_and_as_many_with_steps(unlike):
    epochs = bench(unlike, "fedavg", solver=fp.Solver(epochs=2, batch=4), model=NET)
    steps = bench(unlike, "fedavg", solver=fp.Solver(steps=5, batch=4), model=NET)
    # 2 ceil(n / 4) for 9, 4, 1 and 6 examples
    assert epochs.advance().steps.tolist() == [6, 2, 2, 4]
    assert steps.advance().steps.tolist() == [5, 5, 5, 5]


def test_the_servers_rate_scales_the_step(unlike):
    solver = fp.Solver(lr=0.1, steps=1)
    once = fp.Experiment(unlike, NET, rounds=1, solver=solver, lstar="none", dtype="float64")
    thrice = fp.Experiment(
        unlike, NET, rounds=1, solver=solver, lstar="none", dtype="float64", server_lr=3.0
    )
    x0, _ = once.setup.layout.read(once.setup.module)
    moved = [
        torch.nn.utils.parameters_to_vector(e.run().model().parameters()).detach() - x0
        for e in (once, thrice)
    ]
    torch.testing.assert_close(moved[1], 3 * moved[0], rtol=1e-12, atol=1e-14)
