"""No federation: every client trains alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import bench

import fedparity as fp
from fedparity.metrics import summary_value
from fedparity.testing import unlike_clients

NET = "mlp(hidden=4)"
STEPS = fp.Solver(lr=0.1, steps=3, batch=4)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_the_shared_model_never_moves(unlike, engine):
    made = bench(unlike, "local", solver=STEPS, model=NET, engine=engine)
    x = made.server.x
    for _ in range(3):
        made.advance()
    assert torch.equal(made.server.x, x)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_each_client_is_where_fedavg_of_it_alone_would_be(unlike, engine):
    made = bench(unlike, "local", solver=fp.Solver(lr=0.2, steps=2), model=NET, engine=engine)
    for _ in range(3):
        made.advance()
    own = made.tensors()["client/local/own"]
    for k in range(len(unlike)):
        first, last = unlike.train.offsets[k : k + 2]
        x, y = unlike.train.x[first:last].numpy(), unlike.train.y[first:last].numpy()
        alone = fp.Federation.from_arrays(x, y, np.zeros(len(y)), ["train"] * len(y), outputs=3)
        single = bench(alone, "fedavg", solver=fp.Solver(lr=0.2, steps=2), model=NET)
        for _ in range(3):
            single.advance()
        torch.testing.assert_close(own[k], single.server.x, rtol=1e-12, atol=1e-14)


def test_an_absent_client_stands_still(unlike):
    made = bench(unlike, "local", solver=STEPS, model=NET)
    made.advance()
    before = made.tensors()["client/local/own"]
    made.advance([0, 3])
    now = made.tensors()["client/local/own"]
    assert torch.equal(now[[1, 2]], before[[1, 2]])
    assert not torch.equal(now[0], before[0])


def test_its_gaps_at_the_best_round_are_zero():
    # L* is the best validation loss of this very path; full batches leave no chance.
    federation = unlike_clients((9, 7))
    result = fp.Experiment(
        federation,
        NET,
        "local",
        rounds=12,
        solver=fp.Solver(lr=0.3, steps=1),
        dtype="float64",
        evaluate_every=1,
        lstar="best_validation(rounds=12)",
    ).run()
    rows = result.history.query(
        "model == 'personal' and split == 'validation' and metric == 'loss'"
    )
    best = rows.groupby("client")["value"].min().to_numpy()
    np.testing.assert_allclose(best, result.clients["validation_lstar"], rtol=1e-10)
    assert (result.clients["validation_gap"] >= -1e-12).all()


def test_nobody_gains_by_joining_who_does_not_join():
    solver = fp.Solver(lr=0.3, steps=1)
    given = {"rounds": 2, "solver": solver, "lstar": "best_validation(rounds=2)"}
    result = fp.Experiment(unlike_clients((9, 7)), NET, "local", **given).run()
    assert result.alone
    assert result.summary()[["gain_share", "mean_benefit"]].isna().all()
    assert result.summary()[["gap_variance", "max_gap"]].notna().all()
    with pytest.raises(fp.InputError, match="each of these clients trained alone"):
        summary_value(result.frame, "gain_share")
