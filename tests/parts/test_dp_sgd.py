"""dp_sgd against opacus, its epsilon against opacus' accountant, and paper_dp, which has none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scripted import Script, bench, small_net, vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedparity as fp
from fedparity.errors import InputError
from fedparity.learning.seeds import seeds_for
from fedparity.method import Client, Part
from fedparity.parts import DPSGD, PaperDP
from fedparity.testing import unlike_clients
from fedparity.toolbox.accounting import Mechanism, epsilon, worst

pytest.importorskip("dp_accounting")

POISSON = fp.Solver(lr=0.5, steps=1, batch=5, lots="poisson")
OPACUS = {"atol": 1e-6, "rtol": 0}
"""Opacus divides by a norm to which it adds 1e-6, so clipped gradients agree to about that."""
CLIENTS = unlike_clients((12, 8, 20))


def one_step(part: DPSGD | PaperDP, solver: fp.Solver = POISSON, engine: str = "loop", seed=0):
    """Return the gradients ``[m, d]`` by which clients moved in their one step, and the bench."""
    made = bench(CLIENTS, [part], solver=solver, model=small_net, engine=engine, seed=seed)
    return -made.advance().deltas / solver.lr, made


def lot(solver: fp.Solver, client: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    data = CLIENTS.train.client(client)
    sizes = np.asarray([len(data[1])])
    plan = solver.batches(seeds_for(seed, "batches", 1, [client]), sizes)
    rows = plan.index[0, 0][plan.mask[0, 0]]
    return data[0][rows], data[1][rows]


def opacus_gradient(made, client: int, part: DPSGD, noise: Tensor | None = None) -> Tensor:
    """Return the gradient that opacus makes of the client's lot, with this noise, ``[d]``."""
    opacus = pytest.importorskip("opacus")
    from opacus.optimizers import optimizer as inside

    module = made.setup.layout.write(made.setup.module, made.x, made.buffers).train()
    private = opacus.GradSampleModule(module)
    plain = torch.optim.SGD(private.parameters(), lr=1.0)
    step = inside.DPOptimizer(
        plain,
        noise_multiplier=0.0 if noise is None else part.noise,
        max_grad_norm=part.clip,
        expected_batch_size=POISSON.batch,
    )
    inputs, target = lot(POISSON, client)
    cross_entropy(private(inputs), target).backward()
    pieces = iter([] if noise is None else made.setup.layout.views(noise))

    def drawn(std: float, reference: Tensor, **_: object) -> Tensor:
        return std * next(pieces) if std else torch.zeros_like(reference)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inside, "_generate_noise", drawn)
        step.pre_step()
    found = torch.cat([p.grad.reshape(-1) for p in private.parameters()])
    private.remove_hooks()
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("client", [0, 2])
def test_the_clipped_gradient_is_that_of_opacus(client, engine):
    part = DPSGD(clip=0.3, noise=0.0)
    found, made = one_step(part, engine=engine)
    wanted = opacus_gradient(made, client, part)
    torch.testing.assert_close(found[client], wanted, **OPACUS)


@pytest.mark.filterwarnings("ignore")
def test_with_the_same_noise_the_gradient_is_that_of_opacus():
    part = DPSGD(clip=0.3, noise=2.0)
    still, made = one_step(DPSGD(clip=0.3, noise=0.0))
    found, _ = one_step(part)
    noise = (found - still)[0] * 5 / (2.0 * 0.3)
    assert 0.7 < float(noise.std()) < 1.3  # 57 standard normal numbers
    wanted = opacus_gradient(made, 0, part, noise)
    torch.testing.assert_close(found[0], wanted, **OPACUS)


def test_the_noise_has_the_size_it_says_and_is_drawn_anew_for_every_client_and_step():
    steps = fp.Solver(lr=1.0, steps=40, batch=5, lots="poisson")
    quiet, loud = (one_step(DPSGD(clip=1e-6, noise=z), steps)[0] for z in (1e-9, 3.0))
    noise = loud - quiet
    # 40 steps of standard deviation z C / L add up to sqrt(40) 3e-6 / 5; 171 numbers
    assert float(noise.std()) == pytest.approx(math.sqrt(40) * 3e-6 / 5, rel=0.2)
    assert float(torch.corrcoef(noise).triu(1).abs().max()) < 0.5


def test_a_lot_may_be_empty_and_is_divided_by_its_expected_size():
    one = fp.Solver(lr=0.5, steps=1, batch=1, lots="poisson")
    seeds = range(12)
    lots = [len(lot(one, 0, seed)[1]) for seed in seeds]
    assert 0 in lots
    assert max(lots) > 1
    for seed in (lots.index(0), lots.index(max(lots))):
        found, _ = one_step(DPSGD(clip=1e-3, noise=0.0), one, seed=seed)
        # every gradient is longer than the bound: the sum is at most its bound an example
        assert float(found[0].norm()) <= lots[seed] * 1e-3 * (1 + 1e-9)
        assert (float(found[0].norm()) > 0) == (lots[seed] > 0)


@pytest.mark.filterwarnings("ignore:.*gives no privacy")
@pytest.mark.parametrize(
    "text",
    ["dp_sgd(clip=0.3, seeded=True)", "prox+dp_sgd(clip=0.3, seeded=True)+scaffold", "paper_dp"],
)
def test_engines_agree_on_poisson_lots_of_unlike_clients(text):
    solver = fp.Solver(lr=0.2, epochs=1, batch=3, lots="poisson")
    loop, vmap = (
        bench(CLIENTS, text, solver=solver, model=small_net, engine=engine)
        for engine in ("loop", "vmap")
    )
    torch.testing.assert_close(vmap.advance().deltas, loop.advance().deltas, atol=1e-12, rtol=0)


def test_dropout_draws_for_every_example_by_itself():
    def dropping(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, outputs))

    made = bench(CLIENTS, "dp_sgd", solver=POISSON, model=dropping)
    assert bool(made.advance().deltas.isfinite().all())


# The guarantee


def told(
    text: str | list[Part], solver: fp.Solver = POISSON, rounds: int = 2, **conditions: object
):
    made = bench(CLIENTS, text, solver=solver, model=small_net, **conditions)
    (part,) = (p for p in made.setup.algorithm.parts if p.name in ("dp_sgd", "paper_dp"))
    for _ in range(rounds):
        made.advance()
    return part.guarantee(made.server.parts.get(part.name, {}), made.context)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("z", "rate", "steps"), [(1.0, 0.05, 200), (0.7, 0.2, 30)])
def test_epsilon_is_that_of_opacus_accountant(z, rate, steps):
    opacus = pytest.importorskip("opacus")
    accountant = opacus.accountants.RDPAccountant()
    accountant.history = [(z, rate, steps)]
    solver = fp.Solver(steps=steps, batch=round(100 * rate), lots="poisson")
    script = Script([DPSGD(noise=z, delta=1e-5)], n=(100, 100), solver=solver)
    script.play(torch.zeros(2, 2, dtype=torch.float64))
    found = DPSGD(noise=z, delta=1e-5).guarantee(script.state("dp_sgd"), script.context)
    assert found.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)
    assert (found.unit, found.delta) == ("example", 1e-5)


def test_full_batches_are_within_the_closed_form():
    solver = fp.Solver(lr=0.5, steps=4)
    found = told("dp_sgd(noise=3, delta=0.00001)", solver)
    # T / 2z^2 + sqrt(2 T ln(1/delta)) / z with T = 2 rounds of 4 steps
    closed = 8 / 18 + math.sqrt(2 * 8 * math.log(1e5)) / 3
    assert 0.8 * closed < found.epsilon <= closed


def test_epsilon_is_of_the_client_for_whom_it_is_largest():
    epochs = fp.Solver(lr=0.5, epochs=1, batch=4, lots="poisson")
    found = told("dp_sgd(noise=2, delta=0.001)", epochs)
    # lots of 4 of 12, 8 and 20 examples, in 3, 2 and 5 steps a round
    each = [(Mechanism(2.0, rate=4 / n), 2 * t) for n, t in ((12, 3), (8, 2), (20, 5))]
    assert found.epsilon == worst(tuple(sorted(each, key=lambda e: -e[0].rate)), 1e-3)
    assert found.epsilon >= max(epsilon((one,), 1e-3) for one in each)


def test_lots_of_fixed_size_are_counted_for_an_example_that_is_replaced():
    fixed = fp.Solver(lr=0.5, steps=3, batch=8, lots="fixed")
    found = told("dp_sgd(noise=4, delta=0.001)", fixed, rounds=1)
    sizes = ((8, 12), None, (8, 20))  # the client of 8 gives all of them
    each = tuple((Mechanism(2.0, cohort=cohort), 3) for cohort in sizes)
    assert found.epsilon == pytest.approx(worst(each, 1e-3))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dp_sgd(noise=0)", "no noise"),
        ("fedeba+dp_sgd", "'fedeba' reads the examples' 'end_loss' without noise"),
        ("dp_sgd+scaffold(option=1)", "'scaffold' reads the examples' 'grad'"),
        ("fedeba_plus(alpha=0.5)+dp_sgd", "'fedeba_plus' reads"),
        ("ditto+dp_sgd", "'ditto' trains on the examples without noise"),
        ("paper_dp", "'paper_dp' clips the gradient of a batch, not of each example: use dp_sgd"),
        ("fedeba_plus(alpha=0.9, theta=0)+paper_dp(noise=50)", "use dp_sgd"),
    ],
)
def test_what_allows_no_epsilon_is_told_in_its_place(text, reason):
    found = told(text, rounds=1)
    assert found.epsilon is None
    assert reason in found.line


def test_shuffled_batches_allow_no_epsilon():
    found = told("dp_sgd", fp.Solver(lr=0.5, steps=2, batch=4), rounds=1)
    assert "lots='poisson'" in found.because


@pytest.mark.parametrize("text", ["dp_sgd+prox", "scaffold+dp_sgd", "dp_sgd+momentum+dp_client"])
def test_what_goes_on_from_noisy_gradients_keeps_the_epsilon(text):
    assert told(text, rounds=1).epsilon > 0


# What is refused


@dataclass(frozen=True)
class Louder(Part):
    """Makes every gradient a hundred times as long."""

    name = "louder"

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return 100 * g


def test_what_changes_gradients_before_their_noise_leaves_no_epsilon():
    assert told([DPSGD(), Louder()]).epsilon is not None
    found = told([Louder(), DPSGD()])
    assert found.epsilon is None
    assert found.because == (
        "'louder' changes clipped gradients before they have noise: write it behind 'dp_sgd'"
    )


def normed(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False))


@pytest.mark.parametrize(
    ("text", "model", "reason"),
    [
        ("dp_sgd", normed, "'dp_sgd' takes the gradient of every example by itself.*GroupNorm"),
        ("fedsgd+dp_sgd", small_net, "'fedsgd' takes no local steps"),
        ("lsr+dp_sgd", small_net, "takes the gradient of every example by itself.*keep one"),
        ("dp_sgd(clip=inf)", small_net, "noise in bounds 'clip', which is infinite"),
        ("paper_dp(clip=inf)", small_net, "noise in bounds 'clip', which is infinite"),
        ("dp_sgd(budget=0.1)", small_net, "the first round costs epsilon"),
        ("fedeba+dp_sgd(budget=9)", small_net, "there is no epsilon: 'fedeba' reads"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_first_round(text, model, reason):
    with pytest.raises(InputError, match=reason):
        bench(CLIENTS, text, solver=POISSON, model=model)


# paper_dp


def test_paper_dp_clips_a_batch_and_not_its_examples():
    free = one_step(PaperDP(clip=1e9, noise=0.0))[0]
    found = one_step(PaperDP(clip=0.2, noise=0.0))[0]
    torch.testing.assert_close(found, free * (0.2 / free.norm(dim=1).clamp_min(0.2))[:, None])
    assert not torch.allclose(found, one_step(DPSGD(clip=0.2, noise=0.0))[0])


def test_the_noise_of_paper_dp_is_divided_by_the_batch():
    c = SimpleNamespace(down={"lot": torch.tensor(4.0)}, noise=lambda size: torch.ones(size))
    # (3, 4) clipped to 1, and 2 * 1 / 4
    found = PaperDP(clip=1.0, noise=2.0).grad(torch.tensor([3.0, 4.0]), vector(), c)
    torch.testing.assert_close(found, torch.tensor([1.1, 1.3]))
