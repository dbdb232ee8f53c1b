"""SCAFFOLD and FedPVR: control variates against client drift."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import after, bench, matrix, parabolas, small_net, vector
from torch import Tensor

from fedparity.data import Federation
from fedparity.errors import InputError
from fedparity.learning.solver import Solver
from fedparity.testing import Bench, unlike_clients

SEVERAL = Solver(lr=0.1, steps=3, batch=4)
ONE_STEP = Solver(lr=0.1)


def net(algorithm: str, solver: Solver, rounds: int, **conditions: object) -> Tensor:
    made = bench(unlike_clients(), algorithm, solver=solver, model=small_net, **conditions)
    return after(made, rounds)


def variates(made: Bench, part: str = "scaffold") -> tuple[Tensor, Tensor]:
    """Return the server's control variate and those of all clients."""
    kept = made.store.gather(np.arange(len(made.setup.federation)))
    return made.server.parts[part]["c"], kept[part]["c"]


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_first_round_is_fedavg(option, engine):
    found = net(f"scaffold(option={option})", SEVERAL, 1, engine=engine)
    torch.testing.assert_close(found, net("fedavg", SEVERAL, 1, engine=engine))


@pytest.mark.parametrize("weighting", ["size", "uniform"])
@pytest.mark.parametrize("option", [1, 2])
def test_one_step_and_everyone_is_fedsgd_in_every_round(option, weighting):
    scaffold = bench(
        unlike_clients(),
        f"scaffold(option={option})",
        solver=ONE_STEP,
        model=small_net,
        weighting=weighting,
    )
    fedsgd = bench(
        unlike_clients(), "fedsgd", solver=ONE_STEP, model=small_net, weighting=weighting
    )
    for _ in range(4):
        torch.testing.assert_close(after(scaffold), after(fedsgd))


@pytest.mark.parametrize("weighting", ["size", "uniform"])
@pytest.mark.parametrize("algorithm", ["scaffold", "scaffold(option=1)", "pvr(layers=1)"])
def test_the_servers_variate_is_the_mean_of_all_whoever_took_part(algorithm, weighting):
    made = bench(unlike_clients(), algorithm, solver=SEVERAL, model=small_net, weighting=weighting)
    n = vector(*made.setup.federation.train.sizes)
    shares = n / n.sum() if weighting == "size" else torch.full((4,), 0.25).double()
    for answering in ([0, 1, 2, 3], [1], [0, 3], [1, 2], [0, 1, 3], [2]):
        made.advance(answering)
        c, c_k = variates(made, algorithm.partition("(")[0])
        torch.testing.assert_close(c, shares @ c_k, atol=1e-12, rtol=0)
        assert bool(c.any())


@pytest.mark.parametrize("option", [1, 2])
def test_identical_clients_have_nothing_to_correct(option):
    x, y = [[1.0, 2.0], [0.0, 1.0]] * 3, [1.0, -1.0] * 3
    clients = Federation.from_arrays(x, y, [0, 0, 1, 1, 2, 2], ["train"] * 6, kind="values")
    made = bench(clients, f"scaffold(option={option})", solver=Solver(lr=0.1, steps=4))
    for _ in range(3):
        after(made)
        c, c_k = variates(made)
        torch.testing.assert_close(c_k, c.repeat(3, 1), atol=1e-12, rtol=0)


CURVES = ((2.0, 1.0), (0.5, 3.0))
MINIMA = ((1.0, 0.0), (-2.0, 1.0))


def gradient(k: int, y: Tensor) -> Tensor:
    return 2 * matrix(*CURVES)[k] * (y - matrix(*MINIMA)[k])


def test_option_2_keeps_the_mean_gradient_along_the_path():
    made = bench(parabolas(CURVES, MINIMA), "scaffold", [0.5, 0.5], solver=Solver(lr=0.05, steps=3))
    c, c_k, x = torch.zeros(2).double(), torch.zeros(2, 2).double(), vector(0.5, 0.5)
    for _ in range(3):
        met, ends = [], []
        for k in range(2):
            y, path = x, []
            for _ in range(3):
                path.append(gradient(k, y))
                y = y - 0.05 * (path[-1] - c_k[k] + c)
            met.append(torch.stack(path).mean(0))
            ends.append(y)
        x, c_k = torch.stack(ends).mean(0), torch.stack(met)
        c = c_k.mean(0)
        torch.testing.assert_close(after(made), x)
        torch.testing.assert_close(variates(made)[1], c_k)


def test_option_1_keeps_the_full_gradient_at_the_received_model():
    made = bench(
        parabolas(CURVES, MINIMA),
        "scaffold(option=1)",
        [0.5, 0.5],
        solver=Solver(lr=0.05, steps=3, batch=1),
    )
    for _ in range(3):
        x = made.server.x
        made.advance()
        torch.testing.assert_close(
            variates(made)[1], torch.stack([gradient(k, x) for k in range(2)])
        )


def test_it_removes_the_drift_that_fedavg_keeps():
    # the minimum of the mean: (2 * 1 - 0.5 * 2) / 2.5 = 0.4 and 3 / 4
    solver = Solver(lr=0.05, steps=10)
    scaffold, fedavg = (
        after(bench(parabolas(CURVES, MINIMA), text, [0.0, 0.0], solver=solver), 100)
        for text in ("scaffold", "fedavg")
    )
    torch.testing.assert_close(scaffold, vector(0.4, 0.75), atol=1e-6, rtol=0)
    assert not torch.allclose(fedavg, vector(0.4, 0.75), atol=1e-2)


def test_steps_and_rate_are_those_of_client_and_round():
    # Option II divides by tau_k eta_t: with unequal epochs and decay it is still a mean gradient,
    # which for one client far from its minimum stays close to the gradient at its model
    made = bench(
        unlike_clients(),
        "scaffold",
        solver=Solver(lr=1e-6, epochs=2, batch=4, decay=0.5),
        model=small_net,
    )
    full = bench(
        unlike_clients(),
        "scaffold(option=1)",
        solver=Solver(lr=1e-6, epochs=2, batch=4, decay=0.5),
        model=small_net,
    )
    after(made, 2)
    after(full, 2)
    # clients of 4 and 1 examples take full batches, so both options agree up to the tiny steps
    torch.testing.assert_close(variates(made)[1][1:3], variates(full)[1][1:3], atol=1e-4, rtol=0)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_pvr_on_all_layers_is_scaffold_to_the_bit(engine):
    found = net("pvr(layers=3)", SEVERAL, 3, engine=engine)
    assert torch.equal(found, net("scaffold", SEVERAL, 3, engine=engine))


@pytest.mark.parametrize(("engine", "within"), [("loop", 0.0), ("vmap", 1e-12)])
def test_pvr_on_no_layer_is_fedavg(engine, within):
    found = net("pvr(layers=0)", SEVERAL, 3, engine=engine)
    fedavg = net("fedavg", SEVERAL, 3, engine=engine)
    assert float((found - fedavg).abs().max()) <= within


def test_pvr_keeps_variates_of_the_last_layers_only():
    made = bench(unlike_clients(), "pvr(layers=1)", solver=SEVERAL, model=small_net)
    after(made, 2)
    c, c_k = variates(made, "pvr")
    assert c.shape == (15,)  # 4 x 3 weights and 3 biases
    assert c_k.shape == (4, 15)
    named = net("pvr(layers=[out])", SEVERAL, 2)
    assert torch.equal(made.server.x, named)


def test_option_2_refuses_what_is_not_plain_sgd():
    for setting in ({"momentum": 0.9}, {"weight_decay": 0.1}, {"clip": 1.0}):
        solver = Solver(lr=0.1, **setting)
        with pytest.raises(InputError, match="option=1"):
            bench(unlike_clients(), "scaffold", solver=solver, model=small_net)
        assert bench(unlike_clients(), "scaffold(option=1)", solver=solver, model=small_net)


def test_two_corrections_of_one_step_are_refused():
    with pytest.raises(InputError, match="keep one"):
        bench(unlike_clients(), "scaffold+pvr", solver=SEVERAL, model=small_net)


@pytest.mark.parametrize("other", ["bn", "local"])
def test_clients_that_start_elsewhere_are_refused(other):
    with pytest.raises(InputError, match="keeps on the clients"):
        bench(unlike_clients(), f"scaffold+{other}", solver=SEVERAL, model=small_net)
