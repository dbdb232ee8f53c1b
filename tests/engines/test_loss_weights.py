"""Losses of a whole batch in the written-out chain, against autograd through the ``loss`` hook."""

import pytest
import torch

import fedparity as fp
from fedparity.engines.kernels.chain import Chain
from fedparity.method import Client
from fedparity.method.hints import loss_weights_of
from fedparity.parts import TERM, PropFair, Prox
from fedparity.testing import unlike_clients

PARTS = [
    PropFair(M=3.0),
    PropFair(M=1.0, eps=0.2),
    PropFair(M=1.0, eps=0.2, beyond="loss_over_eps"),
    PropFair(M=1.0, eps=0.2, beyond="loss_over_M"),
    PropFair(M=5.0, eps=0.2, beyond="loss_over_M"),
    TERM(inner=2.0),
    TERM(inner=-1.0),
]
SHARES = [[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.2, 0.2, 0.2, 0.0], [0.0] * 4]


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_weights_are_the_derivative_of_the_mean(part):
    draw = torch.Generator().manual_seed(0)
    losses = 3 * torch.rand(len(SHARES), 4, dtype=torch.float64, generator=draw)
    shares = torch.tensor(SHARES, dtype=torch.float64)
    found = part.loss_weights(losses, shares)
    for row, share in enumerate(shares):
        at, c = losses[row].clone().requires_grad_(), Client(0.1, 1, None, share=share)
        (wanted,) = torch.autograd.grad(c.mean(part.loss(at, None, None, c)), at)
        torch.testing.assert_close(found[row], wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("part", PARTS[1::2], ids=repr)
@pytest.mark.parametrize("batch", [4, None])
def test_a_run_is_that_of_the_loop(part, batch):
    found = []
    for engine in ("loop", "vmap"):
        made = fp.Experiment(
            unlike_clients(),
            "mlp(hidden=4)",
            algorithm=[part, Prox(mu=0.1)],
            solver=fp.Solver(lr=0.1, steps=3, batch=batch),
            rounds=2,
            engine=engine,
            dtype="float64",
        )
        assert Chain.of(made.setup) is not None
        module = made.run().model()
        found.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)


def test_weights_are_not_inherited_by_another_loss():
    class Halved(PropFair):
        name = "halved"

        def loss(self, losses, output, target, c):
            return super().loss(losses, output, target, c) / 2

    assert loss_weights_of(Halved()) is None
    made = fp.Experiment(unlike_clients(), "linear", algorithm=[Halved()])
    assert Chain.of(made.setup) is None
