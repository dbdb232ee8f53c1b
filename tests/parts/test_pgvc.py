"""FedPGVC: the steps of the last layers, scaled by a loss-weighted gradient."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from scripted import after, bench, line, parabolas, small_net, vector
from torch import Tensor, nn

from fedparity.core.part import Client
from fedparity.core.solver import Solver
from fedparity.data import Federation
from fedparity.errors import InputError
from fedparity.parts import PGVC
from fedparity.testing import unlike_clients

MODES = ("scalar", "literal", "abs", "second_moment", "penalty")
STEP = Solver(lr=0.1)
"""One full-batch step."""
TAIL = 15  # of small_net: the last layer, 4 x 3 weights and 3 biases


def net(algorithm: Any, engine: str = "loop", solver: Solver = STEP, rounds: int = 1) -> Tensor:
    """Return the parameters after a few rounds on the small network."""
    made = bench(unlike_clients(), algorithm, solver=solver, model=small_net, engine=engine)
    return after(made, rounds)


def by_hand(k: int) -> tuple[Tensor, Tensor]:
    """Return client k's gradient, and that of the mean of half its squared losses, by autograd."""
    made = bench(unlike_clients(), "fedavg", solver=STEP, model=small_net)
    module = copy.deepcopy(made.setup.module)
    inputs, target = made.setup.federation.train.client(k)
    losses = nn.functional.cross_entropy(module(inputs), target, reduction="none")
    found = []
    for objective in (losses.mean(), (losses.square() / 2).mean()):
        grads = torch.autograd.grad(objective, list(module.parameters()), retain_graph=True)
        found.append(torch.cat([g.reshape(-1) for g in grads]))
    return found[0], found[1]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_rho_is_the_gradient_of_half_the_mean_squared_loss(layers, engine):
    part = PGVC(layers=layers, mode="second_moment")
    made = bench(unlike_clients(), [part], solver=STEP, model=small_net, engine=engine)
    start = part.second_from(made.setup.layout)
    deltas = made.advance().deltas
    for k in range(len(deltas)):
        g, rho = by_hand(k)
        wanted = torch.cat([g[:start], rho[start:]])
        torch.testing.assert_close(deltas[k], -STEP.lr * wanted)


@pytest.mark.parametrize("mode", MODES)
def test_step_of_the_last_layers(mode):
    g, rho = vector(3.0, 4.0), vector(0.6, -0.8)  # norms 5 and 1
    wanted = {
        "scalar": g / 5,
        "literal": vector(1.8, -3.2),
        "abs": vector(1.8, 3.2),
        "second_moment": rho,
        "penalty": vector(3.0 + 0.5 * 0.6, 4.0 - 0.5 * 0.8),
    }
    layout = bench(parabolas([[1.0, 1.0]], [[0.0, 0.0]]), "fedavg", solver=STEP).setup.layout
    c = Client(0.1, 1, layout, second=rho)
    found = PGVC(layers=1, mode=mode, kappa=0.5).grad(g, g, c)
    torch.testing.assert_close(found, wanted[mode])


# f = (x - a)^2 / 2 with a = 1: literally x <- x - lr f f'^2, which never grows x
def test_literal_step_runs_away_from_a_minimum_above():
    made = bench(
        parabolas([[0.5]], [[1.0]]), "pgvc(layers=1, mode=literal)", [0.0], solver=Solver(lr=0.5)
    )
    path = [float(after(made)[0]) for _ in range(5)]
    assert path[0] == pytest.approx(0.0 - 0.5 * 0.5 * 1.0)
    assert all(later < earlier for earlier, later in pairwise(path))
    assert path[-1] < -1


def test_literal_step_creeps_to_a_minimum_below():
    # e <- e - 0.05 e^4 from 1, so e_t ~ (1 + 0.15 t)^(-1/3): 0.314 after 200 rounds
    made = bench(
        parabolas([[0.5]], [[1.0]]), "pgvc(layers=1, mode=literal)", [2.0], solver=Solver(lr=0.1)
    )
    assert float(after(made, 200)[0]) - 1 == pytest.approx(0.314, abs=0.01)


@pytest.mark.parametrize("start", [0.0, 2.0])
@pytest.mark.parametrize("mode", ["scalar", "abs", "second_moment", "penalty"])
def test_other_modes_descend_from_both_sides(mode, start):
    made = bench(
        parabolas([[0.5]], [[1.0]]), f"pgvc(layers=1, mode={mode})", [start], solver=Solver(lr=0.5)
    )
    assert abs(float(after(made, 20)[0]) - 1) < 0.7


def equal_losses(loss: float) -> Federation:
    """Return clients all of whose examples have this loss at the parameters (1, 1)."""
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [3.0, -1.0]]).double()
    above = torch.tensor([1.0, 1.0, 1.0, -1.0]).double()
    y = x.sum(1) - above * loss**0.5
    return Federation.from_arrays(x, y, [0, 0, 1, 1], ["train"] * 4, kind="values")


def moved(federation: Federation, algorithm: str) -> Tensor:
    return after(bench(federation, algorithm, [1.0, 1.0], solver=STEP)) - vector(1.0, 1.0)


def test_scalar_with_losses_of_one_is_fedavg():
    clients = equal_losses(1.0)
    torch.testing.assert_close(moved(clients, "pgvc(layers=1)"), moved(clients, "fedavg"))


@pytest.mark.parametrize(("loss", "factor"), [(0.25, 0.25), (4.0, 4.0), (9.0, 9.0), (100.0, 10.0)])
def test_scalar_with_equal_losses_scales_by_the_loss_up_to_s_max(loss, factor):
    clients = equal_losses(loss)
    plain = moved(clients, "fedavg")
    torch.testing.assert_close(moved(clients, "pgvc(layers=1)"), factor * plain)


def test_scalar_takes_no_step_at_a_minimum():
    made = bench(parabolas([[1.0]], [[3.0]]), "pgvc(layers=1)", [3.0], solver=STEP)
    assert float(after(made)[0]) == 3.0


@pytest.mark.parametrize(("engine", "within"), [("loop", 0.0), ("vmap", 1e-12)])
@pytest.mark.parametrize("algorithm", ["pgvc(layers=0)", "pgvc(mode=penalty, kappa=0)"])
def test_without_layers_or_penalty_it_is_fedavg(algorithm, engine, within):
    several = Solver(lr=0.1, steps=3, batch=4)
    made, fedavg = (net(a, engine, several, rounds=2) for a in (algorithm, "fedavg"))
    assert float((made - fedavg).abs().max()) <= within


@pytest.mark.parametrize("mode", MODES)
def test_earlier_layers_take_plain_steps(mode):
    changed, plain = net(f"pgvc(layers=1, mode={mode})"), net("fedavg")
    assert torch.equal(changed[:-TAIL], plain[:-TAIL])
    assert not torch.allclose(changed[-TAIL:], plain[-TAIL:])


def test_layers_may_be_named():
    layers = list(
        bench(unlike_clients(), "fedavg", solver=STEP, model=small_net).setup.layout.layers
    )
    assert layers == ["hidden1", "hidden2", "out"]
    assert torch.equal(net("pgvc(layers=[hidden2, out])"), net("pgvc(layers=2)"))
    assert torch.equal(net("pgvc(layers=[out])"), net("pgvc(layers=1)"))


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ("[hiden2, out]", "hidden2"),
        ("[hidden1]", "not the last"),
        ("4", "has 3"),
        ("-1", "greater than or equal to 0"),
    ],
)
def test_layers_that_cannot_be_are_refused(layers, reason):
    with pytest.raises(InputError, match=reason):
        net(f"pgvc(layers={layers})")


class Counted(torch.autograd.Function):
    """The identity, which counts its backward passes."""

    generate_vmap_rule = True
    passes = 0

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        Counted.passes += 1
        return g


class Watched(nn.Module):
    """A network that counts the backward passes through its earlier layers."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.early = nn.Linear(shape[0], 4)
        self.late = nn.Linear(4, 4)
        self.last = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        hidden = Counted.apply(self.early(x))
        return self.last(torch.relu(self.late(hidden)))


@pytest.mark.parametrize(("engine", "lanes"), [("loop", 4), ("vmap", 1)])
def test_extra_backward_pass_does_not_reach_earlier_layers(engine, lanes):
    steps = Solver(lr=0.1, steps=3)
    for algorithm, passes in (("fedavg", 1), ("pgvc(layers=2)", 1), ("pgvc(layers=3)", 2)):
        made = bench(unlike_clients(), algorithm, solver=steps, model=Watched, engine=engine)
        Counted.passes = 0
        made.advance()
        assert Counted.passes == passes * 3 * lanes, algorithm


def test_literal_server_step_grows_the_model():
    # clients at their minimum return x: (1 - 0.1) x + x = 1.9 x
    clients = parabolas([[1.0], [1.0]], [[2.0], [2.0]])
    made = bench(clients, "pgvc(layers=1, literal_server=0.1)", [2.0], solver=STEP)
    assert float(after(made)[0]) == pytest.approx(2.0 * 1.9)
    made = bench(clients, "pgvc(layers=1, literal_server=1)", [2.0], solver=STEP)
    assert float(after(made, 3)[0]) == pytest.approx(2.0)


def test_recipe_averages_uniformly():
    clients = Federation.from_arrays(
        [[1.0], [1.0], [1.0], [1.0]],
        [0.0, 0.0, 0.0, 4.0],
        [0, 0, 0, 1],
        ["train"] * 4,
        kind="values",
    )
    sized, recipe, uniform = (
        after(bench(clients, text, [1.0], solver=STEP))
        for text in ("pgvc(layers=1)", "fedpgvc(layers=1)", "pgvc(layers=1)+uniform")
    )
    assert torch.equal(recipe, uniform)
    assert not torch.allclose(recipe, sized)


def test_local_adam_is_fed_the_modified_gradient():
    # Adam's first step is lr times the sign of what it is fed: -1 for literal, whatever the side
    clients = parabolas([[0.5]], [[1.0]])
    adam = Solver(lr=0.1, optimizer="adam")
    made = bench(clients, "pgvc(layers=1, mode=literal)", [0.0], solver=adam)
    assert float(after(made)[0]) == pytest.approx(-0.1)
    made = bench(clients, "pgvc(layers=1)", [0.0], solver=adam)
    assert float(after(made)[0]) == pytest.approx(0.1)


def test_one_layer_models_have_only_one_last_layer():
    assert len(bench(parabolas([[1.0]], [[0.0]]), "fedavg", solver=STEP).setup.layout.layers) == 1
    with pytest.raises(InputError, match="has 1"):
        bench(parabolas([[1.0]], [[0.0]]), "pgvc", solver=STEP, model=line)


def test_default_is_a_scalar_factor_on_two_layers():
    part = PGVC()
    layout = bench(unlike_clients(), "fedavg", solver=STEP, model=small_net).setup.layout
    assert (part.layers, part.mode, part.s_max) == (2, "scalar", 10.0)
    assert part.second_from(layout) == 3 * 4 + 4  # behind the first layer
