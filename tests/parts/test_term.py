"""TERM: tilted weights of clients, tilted examples inside a client, and both signs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, PRE, SIZES, Script, after, bench, vector
from torch import Tensor

import fedparity as fp
from fedparity.parts import TERM, FedEBA

N = torch.tensor(SIZES)


def weights(part: TERM, losses=PRE, n: Tensor = N) -> Tensor:
    return part.tilted(vector(*losses), n if part.prior == "size" else torch.ones_like(n))


@pytest.mark.parametrize(
    ("prior", "wanted"),
    [
        # e^1, e^2, e^0.5 over their sum 11.7561
        ("uniform", (0.231224, 0.628532, 0.140244)),
        # the first counts twice: 2 e^1, e^2, e^0.5 over 14.4743
        ("size", (0.375600, 0.510493, 0.113906)),
    ],
)
def test_fixture(prior, wanted):
    torch.testing.assert_close(weights(TERM(t=1, prior=prior)), vector(*wanted), atol=1e-6, rtol=0)
    x = Script([TERM(t=1, prior=prior)]).play(FIXTURE, loss=PRE)
    torch.testing.assert_close(x, vector(1, 2) + vector(*wanted) @ FIXTURE, atol=1e-6, rtol=0)


@pytest.mark.parametrize("prior", ["uniform", "size"])
@pytest.mark.parametrize("t", [0.5, 2.0])
def test_it_is_fedeba_of_the_losses_before_training(t, prior):
    x = Script([TERM(t=t, prior=prior)]).play(FIXTURE, loss=PRE)
    eba = FedEBA(tau=1 / t, signal="pre", prior=prior, floor=None)
    torch.testing.assert_close(x, Script([eba]).play(FIXTURE, loss=PRE), rtol=1e-12, atol=0)


def test_limits_are_the_worst_and_the_best_client():
    torch.testing.assert_close(weights(TERM(t=200.0)), vector(0, 1, 0), rtol=0, atol=1e-30)
    torch.testing.assert_close(weights(TERM(t=-200.0)), vector(0, 0, 1), rtol=0, atol=1e-30)


def test_without_tilt_by_size_it_is_fedavg():
    x = Script([TERM(t=0, prior="size")]).play(FIXTURE, loss=PRE)
    torch.testing.assert_close(x, vector(0.825, 1.8))


@pytest.mark.parametrize("t", [1.0, -1.0])
def test_a_common_shift_of_losses_changes_nothing(t):
    shifted = weights(TERM(t=t), [loss + 300 for loss in PRE])
    torch.testing.assert_close(shifted, weights(TERM(t=t)), rtol=1e-11, atol=0)


@pytest.mark.parametrize("t", [1.0, -1.0])
def test_raising_a_clients_loss_moves_its_weight_the_way_of_the_sign(t):
    found = [float(weights(TERM(t=t), (loss, 2.0, 0.5))[0]) for loss in (0.5, 1.0, 2.0, 8.0)]
    assert found == sorted(found, reverse=t < 0)


def softmax_regression(W: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray):
    """Return each example's loss, and its gradients by W and b, by hand."""
    z = x @ W.T + b
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    error = p - np.eye(len(b))[y]
    return -np.log(p[np.arange(len(y)), y]), error[:, :, None] * x[:, None, :], error


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("t", "s"), [(0.7, 1.5), (2.0, -1.0), (-0.5, 0.8)])
def test_one_step_descends_the_tilt_of_tilts(unlike, engine, t, s):
    text = f"term(t={t}, inner={s}, prior=size)"
    made = bench(unlike, text, solver=fp.Solver(lr=0.1, steps=1), model="linear", engine=engine)
    x = made.server.x
    rng = np.random.default_rng(0)
    made.server = made.server._replace(x=torch.from_numpy(rng.standard_normal(len(x))))
    flat = made.server.x.numpy()
    W, b = flat[:9].reshape(3, 3), flat[9:]
    tilted, gradients, sizes = [], [], []
    for k in range(len(unlike)):
        inputs, target = unlike.train.client(k)
        losses, gW, gb = softmax_regression(W, b, inputs.numpy(), target.numpy())
        share = np.exp(s * losses) / np.exp(s * losses).sum()
        tilted.append(np.log(np.exp(s * losses).mean()) / s)
        gradients.append(np.append(np.einsum("i,ijk", share, gW).ravel(), share @ gb))
        sizes.append(len(losses))
    outer = np.array(sizes) * np.exp(t * np.array(tilted))
    wanted = flat - 0.1 * (outer / outer.sum()) @ np.array(gradients)
    torch.testing.assert_close(after(made), torch.from_numpy(wanted), rtol=1e-10, atol=1e-12)


def test_tiny_tilts_are_fedavg(unlike):
    known = {"solver": fp.Solver(lr=0.1, steps=3, batch=4), "model": "mlp(hidden=4)"}
    found = after(bench(unlike, "term(t=1e-7, inner=1e-7)", **known), 3)
    wanted = after(bench(unlike, "fedavg", weighting="uniform", **known), 3)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_large_losses_inside_stay_finite(unlike):
    known = {"solver": fp.Solver(lr=0.1, steps=2), "model": "mlp(hidden=4)", "dtype": "float32"}
    made = bench(unlike, "term(inner=50)", **known)
    made.server = made.server._replace(x=made.server.x * 30)
    assert bool(after(made, 2).isfinite().all())
