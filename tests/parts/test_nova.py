"""FedNova: updates divided by how far a client could have gone."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, Script, bench, small_net, vector
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.solver import Solver
from fedparity.parts import Nova, Prox
from fedparity.parts.server.nova import coefficients
from fedparity.recipes import algorithm
from fedparity.testing import unlike_clients


# tau_eff = 0.5 * 5 + 0.25 * 10 + 0.25 * 2 = 5.5; the sum of p_k D_k / tau_k is
# 0.5 (-.2,-.5)/5 + 0.25 (.2,-.1)/10 + 0.25 (-.5,.3)/2 = (-0.0775, -0.015)
def test_fixture():
    found = Script([Nova()]).play(FIXTURE, steps=[5, 10, 2])
    torch.testing.assert_close(found, vector(0.573750, 1.917500))


def test_equal_steps_are_fedavg():
    found = Script([Nova()]).play(FIXTURE, steps=[7, 7, 7])
    torch.testing.assert_close(found, vector(0.825, 1.8))


def test_absent_clients_do_not_count():
    # p = (2/3, 1/3): tau_eff = 2/3 * 5 + 1/3 * 2 = 4, times 2/3 D_1 / 5 + 1/3 D_3 / 2
    found = Script([Nova()]).play(FIXTURE[[0, 2]], clients=[0, 2], steps=[5, 2])
    wanted = vector(1, 2) + 4 * (2 / 15 * FIXTURE[0] + 1 / 6 * FIXTURE[2])
    torch.testing.assert_close(found, wanted)


def simulated(steps: int, solver: Solver, mu: float = 0.0) -> float:
    """Return the sum of the coefficients of the gradients in an update, by unit gradients.

    The update is linear in the gradients: with all of them 1 it is ``-lr`` times the sum.
    """
    y = anchor = torch.zeros(1, dtype=torch.float64)
    slots = solver.slots(y)
    for step in range(steps):
        g = torch.ones_like(y) + mu * (y - anchor)
        y, slots = solver.update(y, g, slots, solver.lr, step)
    return float(-y[0] / solver.lr)


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_coefficients_are_those_of_the_solver(steps):
    count = vector(steps)
    plain = coefficients(count, 0.0, 0.0)
    assert float(plain[0]) == pytest.approx(simulated(steps, Solver(lr=0.1))) == steps
    momentum = coefficients(count, 0.9, 0.0)
    assert float(momentum[0]) == pytest.approx(simulated(steps, Solver(lr=0.1, momentum=0.9)))
    proximal = coefficients(count, 0.0, 0.1 * 0.5)
    assert float(proximal[0]) == pytest.approx(simulated(steps, Solver(lr=0.1), mu=0.5))
    strong = coefficients(count, 0.0, 0.1 * 15)  # lr mu > 1 still alternates
    assert float(strong[0]) == pytest.approx(simulated(steps, Solver(lr=0.1), mu=15.0))


def test_momentum_divides_by_its_own_reach():
    reach = coefficients(vector(5, 10, 2), 0.9, 0.0)
    p = vector(0.5, 0.25, 0.25)
    wanted = vector(1, 2) + (p @ reach) * (p / reach) @ FIXTURE
    script = Script([Nova()], solver=Solver(lr=0.1, momentum=0.9))
    torch.testing.assert_close(script.play(FIXTURE, steps=[5, 10, 2]), wanted)


def test_proximal_term_keeps_the_plain_number_of_effective_steps():
    reach = coefficients(vector(5, 10, 2), 0.0, 0.1 * 2.0)
    p = vector(0.5, 0.25, 0.25)
    wanted = vector(1, 2) + 5.5 * (p / reach) @ FIXTURE
    script = Script(algorithm("fednova(mu=2)").parts)
    torch.testing.assert_close(script.play(FIXTURE, steps=[5, 10, 2]), wanted)


def test_coefficients_follow_the_decayed_learning_rate():
    solver = Solver(lr=0.1, decay=0.5)  # 0.05 in the second round
    made = Script([Prox(mu=2.0), Nova()], lr=0.05, solver=solver)
    p, reach = vector(0.5, 0.25, 0.25), coefficients(vector(5, 10, 2), 0.0, 0.05 * 2.0)
    wanted = vector(1, 2) + 5.5 * (p / reach) @ FIXTURE
    torch.testing.assert_close(made.play(FIXTURE, steps=[5, 10, 2]), wanted)


def test_momentum_with_a_proximal_term_is_refused():
    solver = Solver(lr=0.1, momentum=0.9)
    for text in ("prox+nova", "nova+prox", "fednova(mu=0.1)"):
        with pytest.raises(InputError, match="not both"):
            bench(unlike_clients(), text, solver=solver, model=small_net)
    assert bench(unlike_clients(), "prox(mu=0)+nova", solver=solver, model=small_net)


def test_clipping_with_a_proximal_term_is_refused():
    solver = Solver(lr=0.1, clip=1.0)
    for text in ("prox+nova", "nova+prox", "fednova(mu=0.1)"):
        with pytest.raises(InputError, match="leave clip or 'prox' out"):
            bench(unlike_clients(), text, solver=solver, model=small_net)
    assert bench(unlike_clients(), "nova", solver=solver, model=small_net)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("qffl+nova", "'qffl' has fitted its step"),
        ("eagle+nova", "'eagle' are no distribution"),
        ("prox+eagle(apply=gradient)+nova", "write 'prox' behind it"),
    ],
)
def test_weights_that_are_no_distribution_are_refused(text, reason):
    with pytest.raises(InputError, match=reason):
        Script(algorithm(text).parts)


def test_eagle_on_gradients_keeps_its_meaning():
    # v_k times the mean gradient of each client, however many steps it takes
    Script(algorithm("eagle(apply=gradient)+prox+nova").parts)
    script = Script(algorithm("eagle(apply=gradient, lam=0)+nova").parts, n=[1, 1])
    v, gradients = vector(0.5, 1.5), torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    steps = vector(2, 6)
    deltas = -0.1 * steps[:, None] * v[:, None] * gradients
    found = script.play(deltas, steps=[2, 6], gap=[0.0, 0.0])
    wanted = vector(1, 2) - 0.1 * 4 * (v[:, None] * gradients).mean(0)
    torch.testing.assert_close(found, wanted)


def test_adam_is_refused():
    with pytest.raises(InputError, match="SGD"):
        bench(unlike_clients(), "nova", solver=Solver(optimizer="adam"), model=small_net)


def replies_with(steps: list[int], parts: list) -> Tensor:
    """Return the unit direction when two clients of parabolas take so many small steps."""
    curves, minima = vector(1.0, 2.0), torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    deltas = []
    for k, count in enumerate(steps):
        y = torch.zeros(2).double()
        for _ in range(count):
            y = y - 1e-6 * 2 * curves * (y - minima[k])
        deltas.append(y)
    moved = Script(parts, torch.zeros(2).double(), n=[1, 1]).play(torch.stack(deltas), steps=steps)
    return moved / moved.norm()


def test_steps_of_one_client_do_not_turn_the_direction():
    even, uneven = replies_with([4, 4], [Nova()]), replies_with([40, 4], [Nova()])
    torch.testing.assert_close(even, uneven, atol=1e-4, rtol=0)
    assert not torch.allclose(replies_with([4, 4], []), replies_with([40, 4], []), atol=0.1)


def test_steps_of_unlike_clients_are_those_of_their_epochs():
    made = bench(
        unlike_clients(), "nova", solver=Solver(lr=0.1, epochs=2, batch=4), model=small_net
    )
    assert made.advance().steps.tolist() == [6, 2, 2, 4]  # 2 ceil(n / 4) of 9, 4, 1, 6
