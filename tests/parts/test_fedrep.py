"""FedRep: a shared body, and a head of each client's own."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from logistic import evaluated, own
from scripted import after, bench, small_net
from torch import nn

import fedparity as fp
from fedparity.errors import InputError
from fedparity.testing import unlike_clients

FULL = fp.Solver(lr=0.2, steps=5)


def plain_torch(made, rounds, head_steps, head="out"):
    """Return every client's model after FedRep written with modules and torch's optimisers."""
    federation, start = made.setup.federation, made.setup.module
    models = [copy.deepcopy(start) for _ in range(len(federation))]
    for _ in range(rounds):
        for k, model in enumerate(models):
            x, y = federation.train.client(k)
            heads = [p for n, p in model.named_parameters() if n.startswith(head)]
            bodies = [p for n, p in model.named_parameters() if not n.startswith(head)]
            for step in range(FULL.steps):
                optimiser = torch.optim.SGD(heads if step < head_steps else bodies, lr=FULL.lr)
                model.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
        for name in (n for n, _ in start.named_parameters() if not n.startswith(head)):
            mean = torch.stack([m.get_parameter(name).detach() for m in models]).mean(0)
            for model in models:
                model.get_parameter(name).data.copy_(mean)
    return models


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("share", "head_steps"), [(0.5, 2), (0.9, 4), (0.1, 1)])
def test_it_agrees_with_plain_torch(engine, share, head_steps):
    clients = unlike_clients((8, 8, 8))
    made = bench(clients, f"fedrep(share={share})", solver=FULL, model=small_net, engine=engine)
    wanted = plain_torch(made, 3, head_steps)
    after(made, 3)
    losses = []
    for k, model in enumerate(wanted):
        x, y = clients.train.client(k)
        losses.append(nn.functional.cross_entropy(model(x), y).item())
        out = torch.cat([model.out.weight.detach().reshape(-1), model.out.bias.detach()])
        assert own(made, "fedrep", "head")[k] == pytest.approx(out.numpy())
    assert evaluated(made) == pytest.approx(losses)


def test_the_head_is_not_sent(unlike):
    made = bench(unlike, "fedrep(layers=2)", solver=FULL, model=small_net)
    head, before = made.setup.layout.mask(2), made.server.x
    replies = made.advance()
    assert not bool(replies.deltas[:, head].any())
    assert torch.equal(made.server.x[head], before[head])
    assert not torch.equal(made.server.x[~head], before[~head])


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_without_a_head_it_is_fedavg(unlike, engine):
    rep, fedavg = (
        after(bench(unlike, text, solver=FULL, model=small_net, engine=engine), 3)
        for text in ("fedrep(layers=0)", "fedavg")
    )
    torch.testing.assert_close(rep, fedavg, rtol=0, atol=0.0 if engine == "loop" else 1e-12)


def test_all_layers_are_training_alone(unlike):
    rep, alone = (
        bench(unlike, text, solver=FULL, model=small_net) for text in ("fedrep(layers=3)", "local")
    )
    for made in (rep, alone):
        after(made, 3)
    assert own(rep, "fedrep", "head") == pytest.approx(own(alone, "local", "own"), abs=1e-14)
    assert np.array_equal(rep.server.x, rep.x)


def test_one_local_step_is_refused_with_the_remedy(unlike):
    with pytest.raises(InputError, match="one local step: take more"):
        bench(unlike, "fedrep", solver=fp.Solver(lr=0.1, steps=1), model=small_net)


def test_a_client_of_one_step_trains_the_body(unlike):
    # 9, 4, 1 and 6 examples in batches of 4: the second and the third client take one step.
    solver = fp.Solver(lr=0.1, epochs=1, batch=4)
    made = bench(unlike, "fedrep", solver=solver, model=small_net)
    before = own(made, "fedrep", "head")
    replies = made.advance()
    moved = (own(made, "fedrep", "head") != before).any(1)
    assert moved.tolist() == [True, False, False, True]
    assert bool(replies.deltas.any(1).all())


def test_momentum_is_refused_since_it_would_move_what_is_fixed(unlike):
    with pytest.raises(InputError, match="'fedrep' needs plain SGD"):
        bench(unlike, "fedrep", solver=fp.Solver(momentum=0.5, steps=4), model=small_net)


def test_what_would_move_the_parts_held_still_is_refused_behind_it(unlike):
    with pytest.raises(InputError, match="write 'prox' first"):
        fp.algorithm("fedrep+prox")
    made = bench(unlike, "prox(mu=1)+fedrep(share=0.1)", solver=FULL, model=small_net)
    plain = bench(unlike, "fedrep(share=0.1)", solver=FULL, model=small_net)
    for each in (made, plain):
        each.advance()
    # The head takes the first step alone, in which the pull is 0.
    assert np.array_equal(own(made, "fedrep", "head"), own(plain, "fedrep", "head"))
