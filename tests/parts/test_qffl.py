"""q-FFL: q-FedAvg's fixture, limits and invariances."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, PRE, Script, after, bench, parabolas, vector
from torch import Tensor

import fedparity as fp
from fedparity.method.algorithm import ctx_for
from fedparity.parts import QFFL

LR = 0.1


def reports(losses=PRE, deltas: Tensor = FIXTURE) -> dict[str, Tensor]:
    """What clients would report: the loss, and the squared norm of (w - w_k) / lr."""
    return {"loss": vector(*losses), "norm2": (deltas / LR).square().sum(1)}


def played(part: QFFL, losses=PRE, **more) -> Tensor:
    return Script([part], lr=LR, **more).play(FIXTURE, **reports(losses))


def weights(part: QFFL, losses=PRE, norm2=(29.0, 5.0, 34.0)) -> Tensor:
    ctx = ctx_for(Script([], lr=LR).context, torch.arange(3))
    up = {"loss": vector(*losses), "norm2": vector(*norm2)}
    return part.weigh(ctx.prior, up, {}, ctx)[0]


@pytest.mark.parametrize(
    ("q", "wanted"),
    [
        # q = 0: the plain mean
        (0.0, (2.5 / 3, 1.9)),
        # g = (2, 5), (-2, 1), (5, -3); sum F g = (0.5, 5.5) and sum h = 39 + 25 + 39 = 103
        (1.0, (1 - 0.5 / 103, 2 - 5.5 / 103)),
        # sum F^2 g = (-4.75, 8.25) and sum h = 68 + 60 + 36.5 = 164.5
        (2.0, (1 + 4.75 / 164.5, 2 - 8.25 / 164.5)),
    ],
)
def test_fixture(q, wanted):
    torch.testing.assert_close(played(QFFL(q=q)), vector(*wanted), rtol=1e-8, atol=0)
    sheet = {0.0: (0.833333, 1.9), 1.0: (0.995146, 1.946602), 2.0: (1.028875, 1.949848)}[q]
    torch.testing.assert_close(played(QFFL(q=q)), vector(*sheet), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("q", "h"), [(1.0, (39, 25, 39)), (2.0, (68, 60, 36.5))])
def test_fixture_of_h_client_by_client(q, h):
    # A client alone has the weight L F^q / h.
    for k in range(3):
        script = Script([QFFL(q=q)], lr=LR)
        known = {name: value[[k]] for name, value in reports().items()}
        moved = script.play(FIXTURE[[k]], clients=[k], **known) - vector(1.0, 2.0)
        weight = float(moved.norm() / FIXTURE[k].norm())
        assert 10 * PRE[k] ** q / weight == pytest.approx(h[k], rel=1e-8)


@pytest.mark.parametrize(
    ("q", "wanted"), [(0.0, 0.8), (1.0, 0.29538), (2.0, 0.18038), (5.0, 0.08312)]
)
def test_minimisers_of_the_toy_problem(q, wanted):
    # f1 = 2 (x - 2)^2 and f2 = (x + 4)^2 / 2; at q = 0: 4 (x - 2) + (x + 4) = 0
    toy = parabolas([[2.0], [0.5]], [[2.0], [-4.0]])
    made = bench(toy, f"qffl(q={q})", [0.0], solver=fp.Solver(lr=0.1, steps=1))
    assert float(after(made, 400)) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_q_zero_is_uniform_fedavg(unlike, engine):
    solver = fp.Solver(lr=0.1, steps=3, batch=4)
    known = {"solver": solver, "model": "mlp(hidden=4)", "engine": engine}
    found = after(bench(unlike, "qffl(q=0)", **known), 4)
    uniform = after(bench(unlike, "fedavg", weighting="uniform", **known), 4)
    torch.testing.assert_close(found, uniform, rtol=1e-12, atol=1e-14)


def test_scaling_all_losses_leaves_q_zero_alone():
    one, other = (played(QFFL(q=0.0), [c * F for F in PRE]) for c in (1.0, 7.0))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


@pytest.mark.parametrize("q", [0.5, 1.0, 3.0])
def test_with_the_static_step_a_common_scale_of_losses_does_not_turn_the_direction(q):
    one, other = (
        played(QFFL(q=q, static_step=True), [c * F for F in PRE]) - vector(1.0, 2.0)
        for c in (1.0, 7.0)
    )
    torch.testing.assert_close(other, 7**q * one, rtol=1e-8, atol=0)


def test_the_static_step_divides_by_the_number_of_clients():
    # x + sum F_k D_k / 3 = (1, 2) + ((-0.2, -0.5) + 2 (0.2, -0.1) + 0.5 (-0.5, 0.3)) / 3
    found = played(QFFL(q=1.0, static_step=True))
    torch.testing.assert_close(found, vector(1 - 0.05 / 3, 2 - 0.55 / 3), rtol=1e-8, atol=0)


@pytest.mark.parametrize("q", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("static", [False, True])
def test_raising_a_clients_loss_does_not_lower_its_share(q, static):
    part = QFFL(q=q, static_step=static)
    shares = []
    for loss in (0.5, 1.0, 2.0, 8.0):
        found = weights(part, (loss, 2.0, 0.5), norm2=(1.0, 1.0, 1.0))
        shares.append(float(found[0] / found.sum()))
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


def test_clients_in_another_order_are_the_same_clients():
    order = [2, 0, 1]
    known = {name: value[order] for name, value in reports().items()}
    moved = Script([QFFL(q=2.0)], lr=LR).play(FIXTURE[order], **known)
    torch.testing.assert_close(moved, played(QFFL(q=2.0)), rtol=1e-12, atol=0)


def test_a_large_q_is_the_worst_client_and_finite():
    found = weights(QFFL(q=500.0), norm2=(1e-9, 1e-9, 1e-9))
    assert bool(found.isfinite().all())
    assert float(found[1] / found.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("q", [0.0, 0.1, 1.0, 5.0])
def test_a_loss_of_zero_is_no_division_by_zero(q):
    assert bool(played(QFFL(q=q), (0.0, 2.0, 0.5)).isfinite().all())
    assert bool(played(QFFL(q=q), (0.0, 0.0, 0.0)).isfinite().all())


def test_multiplied_by_sizes_the_larger_client_counts_more():
    # q = 0: (2 D_1 + D_2 + D_3) / 4, FedAvg by size
    found = played(QFFL(q=0.0, by_size=True))
    torch.testing.assert_close(found, vector(0.825, 1.8), rtol=1e-8, atol=0)


def test_the_decayed_learning_rate_is_the_one_that_counts(unlike):
    # With q = 0 the step is FedAvg's in every round only if L = 1 / lr_t.
    solver = fp.Solver(lr=0.2, steps=2, decay=0.5)
    known = {"solver": solver, "model": "mlp(hidden=4)"}
    found = bench(unlike, "qffl(q=1)", **known)
    found.advance()
    x = found.server.x
    replies = found.advance()
    loss, norm2 = replies.reports["qffl"]["loss"], replies.reports["qffl"]["norm2"]
    torch.testing.assert_close(norm2, (replies.deltas / 0.1).square().sum(1))
    h = norm2 + 10 * loss
    wanted = x + (10 * loss @ replies.deltas) / h.sum()
    torch.testing.assert_close(found.server.x, wanted, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("signal", ["pre", "post"])
def test_the_reported_loss_is_that_of_one_model_on_all_training_examples(unlike, signal):
    solver = fp.Solver(lr=0.5, steps=5, batch=2)
    made = bench(unlike, f"qffl(signal={signal})", solver=solver, model="mlp(hidden=4)")
    x = made.server.x
    replies = made.advance()
    reported = replies.reports["qffl"]["loss"]
    for k in range(len(unlike)):
        at = x if signal == "pre" else x + replies.deltas[k]
        module = made.setup.layout.write(made.setup.module, at).eval()
        inputs, target = unlike.train.client(k)
        loss = torch.nn.functional.cross_entropy(module(inputs), target)
        assert float(reported[k]) == pytest.approx(float(loss.detach()), rel=1e-12)
