"""FedMDFG: directions by a reference in numpy, the line search on parabolas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scripted import Script, after, bench, matrix, parabolas, vector

from fedparity.errors import InputError
from fedparity.learning.solver import Solver
from fedparity.method import Losses
from fedparity.parts import FedMDFG
from fedparity.recipes import algorithm
from fedparity.testing import unlike_clients

LR = 0.1


class Rounds(Script):
    """Rounds in which clients send gradients, and whose line search takes the plain step."""

    def __init__(self, clients: int, d: int, **settings: object) -> None:
        part = FedMDFG(s=0, **settings)
        super().__init__([part], torch.zeros(d, dtype=torch.float64), n=[1] * clients, lr=LR)
        self.part = part

    def direction(
        self, gradients: np.ndarray, losses: list[float], clients=None, lr: float = LR
    ) -> np.ndarray:
        """Return how far the next round goes before the line search, over the learning rate."""
        ids = torch.tensor(range(len(gradients)) if clients is None else clients)
        ctx = self.context.__class__(**{**vars(self.context), "clients": ids, "lr": lr})
        deltas, up = -lr * torch.from_numpy(gradients), {"loss": vector(*losses)}
        state = self.server.parts["fedmdfg"]
        found, state = self.part.combine(deltas, vector(), up, state, ctx)
        self.server.parts["fedmdfg"] = dict(state)
        return -found.numpy() / lr


def shortest(rows: np.ndarray) -> np.ndarray:
    """Return the shortest vector of the hull, by a general solver on a parametrised simplex."""
    m = len(rows)
    found = minimize(
        lambda p: float((p @ rows) @ (p @ rows)),
        np.full(m, 1 / m),
        method="SLSQP",
        bounds=[(0, 1)] * m,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x @ rows


def reference(gradients: np.ndarray, losses: np.ndarray, guided: bool, left=()) -> np.ndarray:
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    rows = gradients / lengths * lengths.mean()
    hull = list(rows)
    if guided:
        v, u = losses / np.linalg.norm(losses), np.full(len(losses), len(losses) ** -0.5)
        h = (u @ v) * v - u
        hull.append(h / np.linalg.norm(h) @ rows)
    d = shortest(np.array(hull + list(left)))
    return d * np.linalg.norm(rows.mean(0)) / np.linalg.norm(d)


def gradients(m: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return (draw.standard_normal((m, 12)) + 0.7) * draw.uniform(0.3, 3, (m, 1))


@pytest.mark.parametrize(("losses", "guided"), [((1.0, 1.1, 0.9), False), ((1.0, 3.0, 0.5), True)])
def test_the_direction_is_the_shortest_of_the_hull_at_the_length_of_the_mean(losses, guided):
    g = gradients(3, seed=1)
    found = Rounds(3, 12).direction(g, list(losses))
    wanted = reference(g, np.array(losses), guided)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    # a common descent direction for every client, and towards equal losses
    assert (g @ found > 0).all()


@pytest.mark.parametrize("lr", [LR, LR / 10])
def test_clients_that_left_are_remembered_for_a_round_at_any_learning_rate(lr):
    rounds, g = Rounds(4, 12), gradients(4, seed=2)
    rounds.direction(g[:3], [1.0, 1.0, 1.0], clients=[0, 1, 2])
    lengths = np.linalg.norm(g[:3], axis=1, keepdims=True)
    last = g[:3] / lengths * lengths.mean()
    fresh = gradients(2, seed=3)
    found = rounds.direction(fresh, [1.0, 1.0], clients=[2, 3], lr=lr)
    wanted = reference(fresh, np.ones(2), False, left=last[:2])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert bool(rounds.state("fedmdfg")["left"])


def test_losses_above_their_expectation_add_the_fair_row_unless_all_are():
    # theta 80 degrees is never exceeded by these losses
    for later, guided in (([1.0, 0.9, 1.2], 1), ([1.3, 1.4, 1.2], 0), ([0.9, 0.8, 0.9], 0)):
        rounds, g = Rounds(3, 12, theta=80.0), gradients(3, seed=4)
        rounds.direction(g, [1.1, 1.0, 1.0])
        rounds.direction(g, later)
        assert int(rounds.state("fedmdfg")["guided"]) == guided


def test_expectations_are_means_of_losses_that_did_not_rise():
    rounds, g = Rounds(2, 12), gradients(2, seed=5)
    for losses in ([4.0, 1.0], [2.0, 5.0], [5.0, 1.0]):
        rounds.direction(g, losses)
    # client 0: 4, then (4 + 2) / 2, then 5 is above; client 1: 1, 5 is above, then (2 * 1 + 1) / 3
    torch.testing.assert_close(rounds.state("fedmdfg")["expected"], vector(3.0, 1.0))


def test_without_common_descent_the_model_stays():
    rounds = Rounds(2, 2, theta=80.0)
    assert rounds.direction(np.array([[1.0, 0.0], [-2.0, 0.0]]), [1.0, 1.0]).tolist() == [0.0, 0.0]
    assert rounds.direction(np.zeros((2, 2)), [1.0, 1.0]).tolist() == [0.0, 0.0]


# The line search


def test_one_client_descends_with_a_line_search():
    # F = (x - 3)^2 from 1: g = -4, lr 0.1. Factors 4, 2, 1, .. move 1.6, 0.8, ..; 1.6 is accepted:
    # F falls from 4 to 0.16, more than 1e-4 * 1.6 * 4.
    made = bench(parabolas([[1.0]], [[3.0]]), [FedMDFG(s=2)], [1.0], solver=Solver(lr=LR))
    torch.testing.assert_close(after(made), vector(2.6))
    assert float(made.server.parts["fedmdfg"]["factor"]) == 4.0


def test_a_step_that_raises_a_loss_is_not_accepted():
    # F_0 = (x - 3)^2 and F_1 = (x - 2)^2 at 0: g = (-6, -4), both brought to 5. Factors 8, .., move
    # 4, 2, 1: at 4, F_1 = 4 has not fallen; 2 is accepted. Losses are 9 and 4: an angle of 21
    # degrees, tolerated here.
    made = bench(
        parabolas([[1.0], [1.0]], [[3.0], [2.0]]),
        [FedMDFG(s=3, theta=45.0)],
        [0.0],
        solver=Solver(lr=LR),
    )
    torch.testing.assert_close(after(made), vector(2.0))


def moved(values: torch.Tensor, *, guided: int = 0, clients: int = 2) -> list[float]:
    """Return the step along (-1, 0) where the losses at factors 2, 1, 1/2 are the columns."""
    part, ctx = FedMDFG(s=1), Script([FedMDFG(s=1)], n=[1, 1]).context
    state = {
        **part.init_server(vector(0.0, 0.0), ctx),
        "rows": matrix((-1.0, 0.0), (-1.0, 0.0)),
        "who": torch.tensor([0, 1]),
        "before": vector(3.0, 1.0),
        "guided": torch.tensor(guided),
        "lengthened": torch.tensor(1.0),
    }
    asked = Losses(torch.arange(clients), values[:clients])
    return part.move(vector(-1.0, 0.0), lambda _: asked, state, ctx)[0].tolist()


def test_with_the_fair_row_losses_must_come_nearer_to_equal():
    # all fall at every point: 2 / 0.1 and 2 / 0.9 is less and more even than 3 / 1
    values = matrix((2.0, 2.0, 2.0), (0.1, 0.9, 0.95))
    assert moved(values) == [-2.0, 0.0]
    assert moved(values, guided=1) == [-1.0, 0.0]


def test_of_steps_that_are_not_accepted_the_one_of_least_summed_loss_is_taken():
    assert moved(matrix((9.0, 0.5, 1.0), (9.0, 2.5, 1.9))) == [-0.5, 0.0]  # sums 18, 3, 2.9


def test_who_does_not_answer_has_no_say_and_without_anyone_the_step_is_the_plain_one():
    values = matrix((9.0, 0.5, 1.0), (9.0, 2.5, 1.9))
    assert moved(values, clients=1) == [-1.0, 0.0]
    assert moved(values, clients=0) == [-1.0, 0.0]


def test_factors_go_from_two_to_the_s_down_to_its_inverse_over_the_lengthening():
    assert FedMDFG(s=2).factors(True, 1.0) == [4.0, 2.0, 1.0, 0.5, 0.25]
    assert FedMDFG(s=2).factors(False, 4.0) == [1.0, 0.5, 0.25, 0.125, 0.0625]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_step_so_far_that_losses_overflow_is_one_that_is_not_taken(engine):
    made = bench(
        unlike_clients((4, 4)),
        [FedMDFG(s=20)],
        solver=Solver(lr=1e30),
        model="mlp(hidden=4)",
        dtype="float32",
        engine=engine,
    )
    before = made.server.x
    assert bool(after(made).isfinite().all())
    assert not torch.equal(before, made.server.x)


def test_every_clients_loss_falls_in_every_round():
    clients = unlike_clients((9, 4, 7, 6))
    made = bench(clients, [FedMDFG()], solver=Solver(lr=0.5), model="linear")
    last = None
    for _ in range(5):
        losses = made.advance().reports["fedmdfg"]["loss"]
        assert last is None or bool((losses <= last + 1e-12).all())
        last = losses


def test_parts_that_act_in_local_steps_are_refused():
    with pytest.raises(InputError, match="'fedmdfg' takes no local steps, in which 'prox'"):
        algorithm("fedmdfg+prox")
    with pytest.raises(InputError, match="write 'fedmdfg' first"):
        algorithm("afl+fedmdfg")
