"""FedEBA, FedEBA+ and Prac-FedEBA+: entropy weights and alignment."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scripted import FIXTURE, PRE, Script, after, bench, matrix, parabolas, vector
from torch import Tensor

import fedparity as fp
from fedparity.learning.solver import Solver
from fedparity.parts import FedEBA, FedEBAPlus, PracFedEBAPlus
from fedparity.parts.weights.fedeba_plus import angle
from fedparity.recipes import algorithm

POST = (0.4, 1.5, 0.3)
LOSSES = torch.tensor(PRE, dtype=torch.float64)


def weights(part: FedEBA, losses: Tensor = LOSSES, round: int = 1, n=(50, 25, 25)) -> Tensor:
    context = replace(Script([], n=n).context, round=round)
    return part.softmax(losses, context)


def free(kind=FedEBA, **settings: object):
    """Return a part whose weights have no floor."""
    return kind(floor=None, **settings)


def close(found: Tensor, *wanted: float, atol: float = 1e-6) -> None:
    torch.testing.assert_close(found, vector(*wanted), atol=atol, rtol=0)


# exp(F / 0.5) = (7.389, 54.598, 2.718), sum 64.706
def test_weights_of_the_fixture():
    close(weights(free(tau=0.5)), 0.114195, 0.843795, 0.042010)


# times the shares (1/2, 1/4, 1/4): (3.695, 13.650, .680), sum 18.024
def test_weights_of_the_fixture_with_the_data_prior():
    close(weights(free(tau=0.5, prior="size")), 0.204982, 0.757313, 0.037704)


def test_weights_of_losses_before_training_are_terms():
    # TERM with t = 1: FedEBA with temperature 1, for the uniform and for the data prior
    close(weights(free(tau=1.0, signal="pre")), 0.231224, 0.628532, 0.140244)
    close(weights(free(tau=1.0, signal="pre", prior="size")), 0.375600, 0.510493, 0.113906)


def test_clamped_temperature_of_the_fixture():
    # (2 - 0.5) / ln(1 / (3 eps)): 1.5 / 12.7169 and 1.5 / 1.20397; a floor is 3 eps
    low = FedEBA(tau=1e-9, floor=3e-6).temperature(LOSSES, 1)
    high = FedEBA(tau=1e-9, floor=0.3).temperature(LOSSES, 1)
    assert (low, high) == pytest.approx((0.117953, 1.245875), abs=1e-6)
    close(weights(FedEBA(tau=1e-9, floor=0.3)), 0.256353, 0.572036, 0.171611)


@pytest.mark.parametrize("prior", ["uniform", "size"])
@pytest.mark.parametrize("floor", [0.01, 0.5, 0.9])
def test_no_weight_is_below_the_floor_as_a_share_of_its_prior(prior, floor):
    draw = torch.Generator().manual_seed(0)
    n = torch.arange(1, 9)
    share = n / n.sum() if prior == "size" else torch.full((8,), 1 / 8)
    for _ in range(20):
        losses = 50 * torch.rand(8, dtype=torch.float64, generator=draw)
        found = weights(FedEBA(tau=1e-3, floor=floor, prior=prior), losses, n=n.tolist())
        assert bool((found >= floor * share * (1 - 1e-6)).all())
        assert float(found.sum()) == pytest.approx(1)
        ratio = found / share
        assert float(ratio.max() / ratio.min()) == pytest.approx(1 / floor)


def test_the_floor_leaves_a_higher_temperature_and_equal_losses_alone():
    assert FedEBA(tau=5.0).temperature(LOSSES, 1) == 5.0
    assert FedEBA(tau=0.1).temperature(torch.ones(3), 1) == 0.1
    close(weights(FedEBA(tau=1e-3), torch.ones(3)), 1 / 3, 1 / 3, 1 / 3)


def test_a_floor_of_one_is_the_prior():
    close(weights(FedEBA(floor=1.0)), 1 / 3, 1 / 3, 1 / 3)
    close(weights(FedEBA(floor=1.0, prior="size")), 0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    ("anneal", "wanted"),
    # round 5, kappa 0.5: denominator 1 + 0.5 * 4 = 3, to the powers 0, 1, 1/2, 3
    [("none", 2.0), ("linear", 2 / 3), ("concave", 2 / math.sqrt(3)), ("convex", 2 / 27)],
)
def test_temperature_falls_with_the_round(anneal, wanted):
    part = FedEBA(tau=2.0, anneal=anneal, kappa=0.5, floor=None)
    assert part.temperature(LOSSES, 5) == pytest.approx(wanted)
    assert part.temperature(LOSSES, 1) == 2.0


def test_temperature_is_clamped_after_annealing():
    part = FedEBA(tau=2.0, anneal="convex", kappa=10.0, floor=0.3)
    assert part.temperature(LOSSES, 100) == pytest.approx(1.245875, abs=1e-6)


def test_common_shift_of_the_losses_changes_nothing():
    part = free(tau=0.1)
    torch.testing.assert_close(weights(part, LOSSES + 1e3), weights(part), atol=1e-9, rtol=0)


@pytest.mark.parametrize("prior", ["uniform", "size"])
def test_raising_a_loss_raises_its_weight(prior):
    part = free(tau=0.5, prior=prior)
    for k in range(3):
        raised = LOSSES.clone()
        raised[k] += 0.3
        assert float(weights(part, raised)[k]) > float(weights(part)[k])


def test_numbering_clients_otherwise_moves_the_weights_along():
    order = [2, 0, 1]
    part = free(tau=0.5, prior="size")
    moved = weights(part, LOSSES[order], n=(25, 50, 25))
    torch.testing.assert_close(moved, weights(part)[order])


def test_infinite_temperature_is_uniform_fedavg_or_the_prior():
    close(Script([FedEBA(tau=math.inf)]).play(FIXTURE, loss=PRE), 0.833333, 1.9)
    close(Script([FedEBA(tau=math.inf, prior="size")]).play(FIXTURE, loss=PRE), 0.825, 1.8)


def test_vanishing_temperature_without_floor_is_the_worst_client_alone():
    close(Script([free(tau=1e-4)]).play(FIXTURE, loss=PRE), 1.2, 1.9)


def test_an_absent_client_has_no_part_in_the_softmax():
    # clients 0 and 2: exp((1, 0.5) / 0.5) = (7.389, 2.718), shares (0.731059, 0.268941)
    found = Script([free(tau=0.5)]).play(FIXTURE[[0, 2]], clients=[0, 2], loss=[1.0, 0.5])
    close(found, 1 - 0.2 * 0.731059 - 0.5 * 0.268941, 2 - 0.5 * 0.731059 + 0.3 * 0.268941)


# f1 = 2 (x-2)^2 and f2 = (x+4)^2 / 2 are 8 both at 0. A fixed point has
# a_1 4 (x-2) + a_2 (x+4) = 0: x = 0.8 for equal weights, the others solved numerically.
@pytest.mark.parametrize(
    ("tau", "lr", "fixed"),
    [(math.inf, 0.1, 0.8), (10.0, 0.1, 0.3579), (1.0, 0.02, 0.0547), (0.1, 0.002, 0.0057)],
)
def test_fixed_points_of_two_parabolas(tau, lr, fixed):
    clients = parabolas([[2.0], [0.5]], [[2.0], [-4.0]])
    part = free(tau=tau, signal="pre")
    made = bench(clients, [part], [0.9], solver=Solver(lr=lr))
    assert float(after(made, 250)[0]) == pytest.approx(fixed, abs=1e-4)


def test_post_losses_are_of_the_trained_local_model():
    # one step of 0.1 from 0: f1' = -8 gives 0.8, f2' = 4 gives -0.4
    clients = parabolas([[2.0], [0.5]], [[2.0], [-4.0]])
    made = bench(clients, "fedeba", [0.0], solver=Solver(lr=0.1))
    close(made.advance().reports["fedeba"]["loss"], 2 * 1.2**2, 3.6**2 / 2)
    made = bench(clients, "fedeba(signal=pre)", [0.0], solver=Solver(lr=0.1))
    close(made.advance().reports["fedeba"]["loss"], 8.0, 8.0)


# FedEBA+ on three clients of two coordinates, three local steps of 0.05
CURVES = ((2.0, 1.0), (0.5, 1.0), (1.0, 3.0))
MINIMA = ((1.0, 0.0), (-2.0, 1.0), (0.0, -1.0))
START = (0.5, 0.5)
LR, STEPS = 0.05, 3


def plus(
    settings: str, engine: str = "loop", name: str = "fedeba_plus", free: bool = True
) -> Tensor:
    """Return where a round leads, without a floor and without ``clip`` unless they are given."""
    if free:
        settings += ", floor=None" + ", clip=None" * (name == "fedeba_plus")
    text = f"{name}({settings})"
    clients = parabolas(CURVES, MINIMA)
    solver = Solver(lr=LR, steps=STEPS)
    made = bench(clients, text, START, solver=solver, weighting="uniform", engine=engine)
    return after(made)


def at_start() -> tuple[Tensor, Tensor]:
    """Return the losses and the gradients of the clients at the start, by formula."""
    apart = torch.tensor([START]).double() - matrix(*MINIMA)
    return (matrix(*CURVES) * apart**2).sum(1), 2 * matrix(*CURVES) * apart


def aligned(alpha: float, fair: Tensor) -> Tensor:
    """Return where the local steps of each client lead, by formula."""
    y = vector(*START).repeat(3, 1)
    for _ in range(STEPS):
        own = 2 * matrix(*CURVES) * (y - matrix(*MINIMA))
        y = y - LR * ((1 - alpha) * own + alpha * fair)
    return y


def test_angle_of_the_fixture():
    # arccos(3.5 / (sqrt 3 * sqrt 5.25)) = arccos 0.881917
    assert angle(LOSSES) == pytest.approx(28.125506, abs=1e-6)
    assert angle(torch.ones(4)) == pytest.approx(0.0, abs=1e-5)
    assert angle(torch.zeros(4)) == 0.0
    assert angle(torch.tensor([0.0, 0.0, 0.0, 1.0])) == pytest.approx(60.0)  # arccos(1 / sqrt 4)


def test_angle_is_the_arctangent_of_the_coefficient_of_variation():
    variation = float(LOSSES.std(correction=0) / LOSSES.mean())
    assert angle(LOSSES) == pytest.approx(math.degrees(math.atan(variation)))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_full_alignment_takes_all_steps_along_the_fair_gradient(engine):
    losses, grads = at_start()
    fair = torch.softmax(losses / 2.0, 0) @ grads
    wanted = vector(*START) - LR * STEPS * fair
    torch.testing.assert_close(plus("alpha=1, tau=2", engine), wanted)


def test_theta_0_aligns_gradients_even_where_the_losses_are_equal():
    # both losses are 8 at 0, so the angle is 0; the fair gradient is (-8 + 4) / 2 = -2
    clients = parabolas([[2.0], [0.5]], [[2.0], [-4.0]])
    text = "fedeba_plus(alpha=1, clip=10)"
    made = bench(clients, text, [0.0], solver=Solver(lr=0.1, steps=3))
    close(after(made), 0.1 * 3 * 2)


@pytest.mark.parametrize(("scale", "factor"), [("steps", 3.0), ("literal", 1.0)])
@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_theta_90_adds_the_first_steps(scale, factor, engine):
    _, grads = at_start()
    wanted = vector(*START) - factor * LR * grads.mean(0)
    found = plus(f"alpha=1, theta=90, scale={scale}", engine)
    torch.testing.assert_close(found, wanted)


def test_model_branch_mixes_updates_and_first_steps():
    _, grads = at_start()
    first = vector(*START) - 3.0 * LR * grads.mean(0)
    eba = plus("tau=2", name="fedeba")
    found = plus("alpha=0.25, tau=2, theta=90")
    torch.testing.assert_close(found, 0.75 * eba + 0.25 * first)


def test_the_angle_decides_between_the_branches():
    phi = angle(at_start()[0])
    below, above = math.floor(phi), math.ceil(phi)
    assert torch.equal(plus(f"alpha=0.9, theta={below}"), plus("alpha=0.9, theta=0"))
    assert torch.equal(plus(f"alpha=0.9, theta={above}"), plus("alpha=0.9, theta=90"))
    assert not torch.allclose(plus("alpha=0.9, theta=0"), plus("alpha=0.9, theta=90"))


@pytest.mark.parametrize("theta", [0, 20, 45, 90])
def test_without_alignment_it_is_fedeba(theta):
    torch.testing.assert_close(plus(f"alpha=0, theta={theta}"), plus("tau=0.1", name="fedeba"))


def test_full_alignment_at_infinite_temperature_is_fedsgd_of_as_many_steps():
    _, grads = at_start()
    wanted = vector(*START) - LR * STEPS * grads.mean(0)
    torch.testing.assert_close(plus("alpha=1, tau=inf"), wanted)


def test_gradient_branch_descends_along_the_mixture():
    losses, grads = at_start()
    fair = torch.softmax(losses / 2.0, 0) @ grads
    y = aligned(0.3, fair)
    ends = (matrix(*CURVES) * (y - matrix(*MINIMA)) ** 2).sum(1)
    wanted = torch.softmax(ends / 2.0, 0) @ y
    torch.testing.assert_close(plus("alpha=0.3, tau=2"), wanted)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_the_fair_gradient_is_no_longer_than_clip(engine):
    losses, grads = at_start()
    fair = torch.softmax(losses / 2.0, 0) @ grads
    assert float(fair.norm()) > 0.3
    wanted = vector(*START) - LR * STEPS * 0.3 * fair / fair.norm()
    found = plus("alpha=1, tau=2, floor=None, clip=0.3", engine, free=False)
    torch.testing.assert_close(found, wanted)
    long = plus("alpha=1, tau=2, floor=None, clip=1e3", engine, free=False)
    torch.testing.assert_close(long, vector(*START) - LR * STEPS * fair)


def test_the_alignment_can_stand_alone():
    losses, grads = at_start()
    fair = torch.softmax(losses / 2.0, 0) @ grads
    y = aligned(0.3, fair)
    torch.testing.assert_close(plus("alpha=0.3, tau=2, aggregate=given"), y.mean(0))
    assert FedEBAPlus(alpha=0.3, aggregate="given").hooks == {"probe", "plan", "grad"}


def test_the_alignment_alone_leaves_the_weights_to_another_part():
    made = bench(
        parabolas(CURVES, MINIMA),
        "afl(eta=0.1)+fedeba_plus(alpha=0.3, aggregate=given, clip=1)",
        START,
        solver=Solver(lr=LR, steps=STEPS),
    )
    assert set(made.advance().reports) == {"afl"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fedeba_plus_paper", True),  # 0.9 x 10 x 0.1
        ("fedeba_plus(alpha=0.2, clip=None)", False),  # 0.2 x 10 x 0.1
        ("fedeba_plus(alpha=0.9, clip=1)", False),
        ("fedeba_plus(alpha=0.9, clip=None, theta=90)", False),
    ],
)
def test_a_strong_alignment_without_clip_is_warned_of(text, told):
    def make() -> None:
        bench(parabolas(CURVES, MINIMA), text, START, solver=Solver(lr=0.1, steps=10))

    if told:
        with pytest.warns(UserWarning, match=r"alpha x steps x lr is 0\.9"):
            make()
    else:
        make()


def test_the_printed_setting_has_a_name():
    (part,) = algorithm("fedeba_plus_paper").parts
    assert part == FedEBAPlus(alpha=0.9, tau=0.1, floor=None, clip=None)


# 0.1 softmax(POST / .5) + 0.9 softmax(PRE / .5), the first being
# exp(.8, 3, .6) = (2.2255, 20.0855, 1.8221), sum 24.1332: (0.092219, 0.832279, 0.075502)
def test_practical_version_of_the_fixture():
    part = free(PracFedEBAPlus, tau=0.5, alpha=0.9)
    script = Script([part])
    mixed, _ = part.weigh(
        script.context.prior, {"before": LOSSES, "after": vector(*POST)}, {}, in_round(script)
    )
    close(mixed.double(), 0.111998, 0.842643, 0.045359)
    close(script.play(FIXTURE, before=PRE, after=POST), 1.123449, 1.873345)


def in_round(script: Script):
    return replace(script.context, round=1, prior=vector(1 / 3, 1 / 3, 1 / 3))


@pytest.mark.parametrize("steps", [(4, 4, 4), (5, 10, 2)])
def test_practical_closed_form_is_the_literal_one(steps):
    tau, alpha, lr = 0.5, 0.7, 0.1
    draw = torch.Generator().manual_seed(1)
    deltas = torch.randn(3, 2, dtype=torch.float64, generator=draw)
    count = vector(*steps)
    pre, post = torch.softmax(LOSSES / tau, 0), torch.softmax(vector(*POST) / tau, 0)
    fair = pre @ (-deltas / (lr * count[:, None]))
    aligned = (1 - alpha) * deltas - alpha * lr * count.mean() * fair  # the paper's D^hat_k
    wanted = vector(1, 2) + post @ aligned
    script = Script([free(PracFedEBAPlus, tau=tau, alpha=alpha)], lr=lr)
    found = script.play(deltas, steps=steps, before=PRE, after=POST)
    torch.testing.assert_close(found, wanted)


def test_practical_version_lies_between_post_and_pre():
    for alpha, losses in ((0.0, POST), (1.0, PRE)):
        practical = Script([free(PracFedEBAPlus, tau=0.5, alpha=alpha)])
        found = practical.play(FIXTURE, before=PRE, after=POST)
        torch.testing.assert_close(found, Script([free(tau=0.5)]).play(FIXTURE, loss=losses))


def test_practical_version_reports_losses_before_and_after():
    clients = parabolas([[2.0], [0.5]], [[2.0], [-4.0]])
    made = bench(clients, "prac_fedeba_plus", [0.0], solver=Solver(lr=0.1))
    reports = made.advance().reports["prac_fedeba_plus"]
    close(reports["before"], 8.0, 8.0)
    close(reports["after"], 2 * 1.2**2, 3.6**2 / 2)


def test_exchanges_of_the_variants():
    assert "probe" in FedEBAPlus(alpha=0.5).hooks
    assert "probe" not in FedEBAPlus(alpha=0.5, theta=90).hooks
    assert "probe" not in FedEBAPlus(alpha=0).hooks
    assert "probe" not in PracFedEBAPlus().hooks


@pytest.mark.parametrize(("theta", "branch"), [(0.001, 1.0), (89.999, 0.0)])
def test_it_tells_in_each_round_whether_the_angle_took_the_gradient_branch(theta, branch):
    # of three clients, angles are above 0 where losses differ and at most arccos(1/sqrt 3) = 54.7
    found = fp.Experiment(
        fp.datasets.eagle_synthetic().split("natural"),
        "linear",
        f"fedeba_plus(alpha=0.5, theta={theta})",
        rounds=2,
        solver=Solver(lr=0.1, steps=1),
        lstar="none",
    ).run()
    told = found.told.query("number == 'gradient_branch'")
    assert list(told["round"]) == [1, 2]
    assert set(told["value"]) == {branch}
