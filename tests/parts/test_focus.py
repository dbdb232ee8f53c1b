"""FOCUS: soft assignments, several models, and predictions that are mixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from logistic import batches, evaluated, gradient, loss, own, probabilities, whole
from scripted import after, bench, vector

import fedparity as fp
from fedparity.errors import InputError
from fedparity.method.messages import Down

STEPS = fp.Solver(lr=0.1, steps=3, batch=4)


def focus(unlike, text, engine="loop", **conditions):
    return bench(unlike, text, solver=STEPS, model="linear", engine=engine, **conditions)


def mixed(models, pi, batch):
    x, y = batch
    each = sum(share * probabilities(w, x) for share, w in zip(pi, models, strict=True))
    return each[np.arange(len(y)), y]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_it_agrees_with_a_reference_of_its_formulas(unlike, engine, weighting):
    made = focus(unlike, "focus(models=3, spread=0.5)", engine, weighting=weighting)
    w = np.concatenate([made.server.x[None].numpy(), made.server.parts["focus"]["models"].numpy()])
    pi = np.full((4, 3), 1 / 3)
    for round, cohort in enumerate([(0, 1, 2, 3), (0, 1, 3), (0, 1, 2, 3)], 1):
        theta = np.zeros((4, *w.shape))
        for k in cohort:
            fit = pi[k] * np.exp([-loss(each, whole(made, k)) for each in w])
            pi[k] = fit / fit.sum()
            for m in range(3):
                theta[k, m] = w[m]
                for batch in batches(made, round, k):
                    theta[k, m] -= 0.1 * gradient(theta[k, m], batch)
        rows = list(cohort)
        n = unlike.train.sizes[rows] if weighting == "size" else np.ones(len(rows))
        share = n[:, None] * pi[rows]
        w = np.einsum("km,kmd->md", share / share.sum(0), theta[rows])
        made.advance(answering=cohort)
    assert made.server.x.numpy() == pytest.approx(w[0], abs=1e-12)
    assert made.server.parts["focus"]["models"].numpy() == pytest.approx(w[1:], abs=1e-12)
    assert np.exp(own(made, "focus", "log_pi")) == pytest.approx(pi, abs=1e-12)
    wanted = [-np.log(mixed(w, pi[k], whole(made, k))).mean() for k in range(4)]
    assert evaluated(made) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_accuracy_is_that_of_the_mixture_and_absent_where_there_is_no_example(unlike, engine):
    made = focus(unlike, "focus(spread=1)", engine)
    after(made, 2)
    x, shared = made.setup.algorithm.served(made.server)
    down = Down("evaluate", 2, 0.1, x, made.server.buffers, shared)
    found = made.door.evaluate(down, "test")["personal"]["accuracy"]
    models = [x.numpy(), *shared["focus"]["models"].numpy()]
    pi = np.exp(own(made, "focus", "log_pi"))
    for k in (0, 1, 3):
        inputs, labels = whole(made, k, "test")
        said = sum(p * probabilities(w, inputs) for p, w in zip(pi[k], models, strict=True))
        assert found[k] == pytest.approx((said.argmax(1) == labels).mean())
    assert np.isnan(found[2])


def test_one_model_is_fedavg(unlike):
    one, fedavg = (after(focus(unlike, text), 3) for text in ("focus(models=1)", "fedavg"))
    torch.testing.assert_close(one, fedavg, rtol=0, atol=1e-14)


def test_equal_models_would_stay_equal(unlike):
    made = focus(unlike, "focus")
    x = made.server.x
    made.server = made.server._replace(parts={"focus": {"models": x[None]}})
    after(made, 3)
    torch.testing.assert_close(made.server.parts["focus"]["models"][0], made.server.x)
    assert np.exp(own(made, "focus", "log_pi")) == pytest.approx(0.5)


def test_clients_of_two_kinds_find_a_model_each_and_the_gap_between_them_closes():
    # y = x for two clients and y = -x for the other two: one model serves nobody.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 1))
    k = np.arange(400) % 4
    y = (x[:, 0] * np.where(k < 2, 1, -1) > 0).astype(int)
    clients = fp.Federation.from_arrays(x, y, k, ["train"] * 400)
    solver = fp.Solver(lr=1.0, steps=5)
    made = bench(clients, "focus(spread=1)", solver=solver, model="linear")
    after(made, 10)
    kinds = own(made, "focus", "log_pi").argmax(1)
    assert kinds[0] == kinds[1] != kinds[2] == kinds[3]
    fedavg = bench(clients, "fedavg", solver=solver, model="linear")
    after(fedavg, 10)
    assert evaluated(made).max() < 0.2 < evaluated(fedavg, "global").max()


def test_shares_far_apart_can_still_change(unlike):
    made = focus(unlike, "focus(clamp=2, spread=5)")
    after(made, 5)
    apart = own(made, "focus", "log_pi")
    assert float(np.ptp(apart, axis=1).max()) == pytest.approx(2)


def test_the_servers_rate_moves_every_model(unlike):
    moved = []
    for rate in (1.0, 2.0):
        made = focus(unlike, "focus")
        before = made.server.parts["focus"]["models"]
        ctx = replace(made.context, round=1, lr=0.1)
        algorithm, cohort = made.setup.algorithm, torch.arange(4)
        server, _ = algorithm.round(made.server, cohort, made.door.ask, ctx, rate)
        moved.append(server.parts["focus"]["models"] - before)
    torch.testing.assert_close(2 * moved[0], moved[1])


@pytest.mark.parametrize("other", ["prox", "momentum", "varp", "trimmed_mean"])
def test_parts_that_would_treat_the_first_model_alone_are_refused(unlike, other):
    with pytest.raises(InputError, match=f"'{other}' would treat the first alone"):
        focus(unlike, f"focus+{other}")


@pytest.mark.parametrize("other", ["ditto", "finetune", "local"])
def test_a_second_say_in_what_a_client_predicts_is_refused(other):
    with pytest.raises(InputError, match="would each decide what a client predicts"):
        fp.algorithm(f"focus+{other}")


def test_weights_of_other_parts_are_those_of_every_model(unlike):
    with pytest.raises(InputError, match="write 'cap' first"):
        fp.algorithm("focus+cap")
    made = focus(unlike, "cap(share=0.3)+focus(spread=1)")
    before = made.server.parts["focus"]["models"][0]
    told = made.advance().reports["focus"]
    # 9, 4, 1 and 6 of 20 under the cap: .45 and .3 leave .15 to be shared by the second and third
    share = vector(0.3, 0.275, 0.125, 0.3)[:, None] * told["share"]
    moved = (share / share.sum(0))[:, 1] @ told["models"][:, 0]
    torch.testing.assert_close(made.server.parts["focus"]["models"][0], before + moved)
