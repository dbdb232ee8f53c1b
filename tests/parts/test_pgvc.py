"""FedPGVC: the gradients of the last layers, capped or weighed by losses."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scripted import after, bench, line, parabolas, small_net, vector
from torch import Tensor, nn

from fedparity.data import Federation
from fedparity.errors import InputError
from fedparity.learning.solver import Solver
from fedparity.method import Client, Part, Plan
from fedparity.method.messages import Down, Replies
from fedparity.parts import PGVC
from fedparity.testing import Bench, unlike_clients

pytestmark = pytest.mark.filterwarnings("ignore:pgvc")

MODES = ("scalar", "literal", "abs", "second_moment", "penalty")
"""Those that weigh by losses."""
STEP = Solver(lr=0.1)
"""One full-batch step."""
ADAM = Solver(lr=0.1, optimizer="adam")
SCALAR = "pgvc(layers=1, mode=scalar)"
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
    torch.testing.assert_close(moved(clients, SCALAR), moved(clients, "fedavg"))


@pytest.mark.parametrize(("loss", "factor"), [(0.25, 0.25), (4.0, 4.0), (9.0, 9.0), (100.0, 10.0)])
def test_scalar_with_equal_losses_scales_by_the_loss_up_to_s_max(loss, factor):
    clients = equal_losses(loss)
    plain = moved(clients, "fedavg")
    torch.testing.assert_close(moved(clients, SCALAR), factor * plain)


def test_scalar_takes_no_step_at_a_minimum():
    made = bench(parabolas([[1.0]], [[3.0]]), SCALAR, [3.0], solver=STEP)
    assert float(after(made)[0]) == 3.0


@pytest.mark.parametrize(("engine", "within"), [("loop", 0.0), ("vmap", 1e-12)])
@pytest.mark.parametrize(
    "algorithm",
    [
        "pgvc(layers=0)",
        "pgvc(layers=[])",
        "pgvc(level=1e9)",
        "pgvc(layers=0, mode=literal)",
        "pgvc(mode=penalty, kappa=0)",
        "pgvc(mode=penalty, kappa=0, rho=previous)",
    ],
)
def test_without_layers_cap_or_penalty_it_is_fedavg(algorithm, engine, within):
    several = Solver(lr=0.1, steps=3, batch=4)
    made, fedavg = (net(a, engine, several, rounds=2) for a in (algorithm, "fedavg"))
    assert float((made - fedavg).abs().max()) <= within


@pytest.mark.parametrize("mode", [*MODES, "norm"])
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


def test_layers_may_be_told_by_place():
    assert torch.equal(net("pgvc(layers=[1, 2])"), net("pgvc(layers=2)"))
    assert torch.equal(net("pgvc(layers=[-1])"), net("pgvc(layers=1)"))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("mode", [*MODES, "norm"])
def test_layers_need_not_be_the_last(mode, engine):
    changed, plain = (net(a, engine) for a in (f"pgvc(layers=[hidden1], mode={mode})", "fedavg"))
    first = 3 * 4 + 4
    torch.testing.assert_close(changed[first:], plain[first:], atol=1e-12, rtol=0)
    assert not torch.allclose(changed[:first], plain[:first])


@pytest.mark.parametrize("mode", MODES)
def test_a_layer_between_is_left_alone(mode):
    both, out, plain = (
        net(a) for a in (f"pgvc(layers=[0, 2], mode={mode})", f"pgvc(mode={mode})", "fedavg")
    )
    middle = slice(16, 16 + 20)
    assert torch.equal(both[middle], plain[middle])
    assert not torch.allclose(out[middle], plain[middle])


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ("[hiden2, out]", "hidden2"),
        ("[3]", "layer 3 of a model that has 3"),
        ("[-4]", "layer -4 of a model that has 3"),
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
    for layers, passes in ((0, 1), (2, 1), (3, 2)):
        algorithm = f"pgvc(layers={layers}, mode=scalar)"
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
    for mode, wanted in (("literal", -0.1), ("penalty", 0.1)):
        made = bench(clients, f"pgvc(layers=1, mode={mode})", [0.0], solver=ADAM)
        assert float(after(made)[0]) == pytest.approx(wanted)


@pytest.mark.parametrize("mode", ["norm", "scalar", "abs"])
def test_a_mode_that_only_rescales_is_refused_with_adam(mode):
    with pytest.raises(InputError, match=f"rescales gradients in mode {mode}.*use SGD"):
        bench(parabolas([[0.5]], [[1.0]]), f"pgvc(layers=1, mode={mode})", solver=ADAM)


def test_clipping_does_not_undo_it():
    # Whatever the clip, the last layer has a smaller share of the step than with clipping alone.
    clipped, start = Solver(lr=0.1, clip=0.05), net("fedavg", rounds=0)

    def share(algorithm: str) -> float:
        step = net(algorithm, solver=clipped) - start
        return float(step[-TAIL:].norm() / step.norm())

    assert share("pgvc(layers=1, level=0.1)") < 0.5 * share("fedavg")


def test_one_layer_models_have_only_one_last_layer():
    assert len(bench(parabolas([[1.0]], [[0.0]]), "fedavg", solver=STEP).setup.layout.layers) == 1
    with pytest.raises(InputError, match="has 1"):
        bench(parabolas([[1.0]], [[0.0]]), "pgvc", solver=STEP, model=line)


def test_default_caps_two_layers_at_half_a_sigma():
    part = PGVC()
    layout = bench(unlike_clients(), "fedavg", solver=STEP, model=small_net).setup.layout
    assert (part.layers, part.mode, part.level) == (2, "norm", 0.5)
    assert part.second_from(layout) == 3 * 4 + 4  # behind the first layer


def test_scalar_warns_once_for_an_experiment():
    with pytest.warns(UserWarning, match="mode=norm is the stable reading") as heard:
        after(bench(parabolas([[1.0]], [[3.0]]), SCALAR, solver=STEP))
    assert len(heard) == 1


# norm: f_k = c_k (x - m_k)^2 has the gradient 2 c_k (x - m_k)


def capped(**settings: Any) -> Bench:
    """Return two clients whose gradients at 0 are -2 and -8, so that sigma is 5."""
    clients = parabolas([[1.0], [2.0]], [[1.0], [2.0]])
    return bench(clients, [PGVC(layers=1, **settings)], [0.0], solver=Solver(lr=0.01))


def test_norm_brings_large_gradients_to_a_level_and_leaves_small_ones():
    made = capped()
    deltas = made.advance().deltas
    # level 0.5: at most 2.5, so -2 stays and -8 becomes -2.5
    torch.testing.assert_close(deltas[:, 0], vector(0.02, 0.025))
    assert float(made.server.parts["pgvc"]["sigma"]) == pytest.approx(5.0)


def test_sigma_is_a_moving_average_over_rounds():
    made = capped()
    made.advance()
    x = float(made.server.x[0])
    assert x == pytest.approx(0.0225)
    # norms at x: 2 (1 - x) and 4 (2 - x)
    made.advance()
    mean = (2 * (1 - x) + 4 * (2 - x)) / 2
    assert float(made.server.parts["pgvc"]["sigma"]) == pytest.approx((5 + mean) / 2)


def test_the_second_round_is_capped_by_what_the_first_knew():
    made = capped()
    made.advance()
    made.server = made.server._replace(x=vector(-100.0))
    deltas = made.advance().deltas
    torch.testing.assert_close(deltas[:, 0], vector(0.025, 0.025))


@pytest.mark.parametrize("level", [0.1, 0.5, 1.0, 3.0])
def test_no_gradient_is_made_larger(level):
    norms = capped(level=level).advance().deltas[:, 0] / 0.01
    plain = vector(2.0, 8.0)
    assert bool((norms <= plain + 1e-12).all())
    torch.testing.assert_close(norms, plain.clamp_max(5 * level))


def test_only_the_first_round_has_a_probe():
    made = capped()
    phases = []
    answer = made.door.ask

    def ask(down: Down, cohort: Tensor) -> Replies:
        phases.append(down.phase)
        return answer(down, cohort)

    made.door.ask = ask
    after(made, 3)
    assert phases == ["probe", "train", "train", "train"]


def test_a_first_round_without_replies_is_measured_again():
    made = capped()
    nobody = lambda down, cohort: made.door._nobody(down)  # noqa: E731
    ctx = made.context
    server, replies = made.setup.algorithm.round(made.server, torch.arange(2), nobody, ctx)
    assert replies is None
    assert PGVC().asks(server.parts["pgvc"])


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("model", [small_net, Watched], ids=["chain", "lifted"])
@pytest.mark.parametrize("layers", [2, (0,)])
def test_probe_and_training_measure_the_same_first_batch(engine, model, layers):
    solver = Solver(lr=0.1, epochs=1, batch=2)
    part = PGVC(layers=layers)
    made = bench(unlike_clients(), [part], solver=solver, model=model, engine=engine)
    seen = {}
    answer = made.door.ask

    def ask(down: Down, cohort: Tensor) -> Replies:
        replies = answer(down, cohort)
        seen[down.phase] = replies.reports["pgvc"]["norm"]
        return replies

    made.door.ask = ask
    module, layout = copy.deepcopy(made.setup.module), made.setup.layout
    made.advance()
    assert torch.equal(seen["probe"], seen["train"])
    down = Down("train", 1, 0.1, layout.read(module)[0], torch.zeros(0))
    for k in range(4):
        sizes = made.setup.federation.train.sizes[k : k + 1]
        plan = solver.batches(made.setup.seeds(down, np.asarray([k]), "batches"), sizes)
        inputs, target = made.setup.federation.train.client(k)
        rows = plan.index[0, 0][plan.mask[0, 0]]
        loss = nn.functional.cross_entropy(module(inputs[rows]), target[rows])
        g = torch.cat([p.reshape(-1) for p in torch.autograd.grad(loss, [*module.parameters()])])
        torch.testing.assert_close(seen["train"][k], g[layout.mask(layers)].norm())


# rho of the round before


def test_previous_rho_takes_plain_steps_until_there_is_one():
    plain, stale = (
        after(bench(equal_losses(4.0), a, [1.0, 1.0], solver=STEP))
        for a in ("fedavg", "pgvc(layers=1, mode=scalar, rho=previous)")
    )
    assert torch.equal(stale, plain)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_previous_rho_is_that_of_the_last_step_of_the_round_before(engine):
    # one client, f = (x - 1)^2, one example: rho = f f' = 2 (x - 1)^3
    part = PGVC(layers=1, mode="second_moment", rho="previous")
    made = bench(
        parabolas([[1.0]], [[1.0]]), [part], [0.0], solver=Solver(lr=0.1, steps=2), engine=engine
    )
    x = float(after(made)[0])
    last = 0.2  # before the second plain step: 0 + 0.1 * 2
    assert x == pytest.approx(last + 0.2 * (1 - last))
    kept = 2 * (last - 1) ** 3
    torch.testing.assert_close(made.tensors()["client/pgvc/rho"], vector(kept)[None])
    assert float(after(made)[0]) == pytest.approx(x - 2 * 0.1 * kept)


def test_mode_norm_has_no_rho():
    with pytest.raises(InputError, match="leave rho out"):
        net("pgvc(rho=previous)")


def test_losses_that_need_a_plan_cannot_be_measured_before_it():
    class Planned(Part):
        name = "planned"

        def plan(self, s: Any, probe: Any, ctx: Any) -> Plan:
            return Plan()

        def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
            return c.down["scale"] * losses

    with pytest.raises(InputError, match="before 'planned' has what its losses need"):
        net([PGVC(), Planned()])
