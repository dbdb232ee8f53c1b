"""AFL: the worst mixture of clients."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, PRE, Script, after, bench, parabolas, vector

import fedparity as fp
from fedparity.parts import AFL


def mixture(script: Script):
    return script.state("afl")["mixture"]


@pytest.mark.parametrize(
    ("eta", "wanted"),
    [
        # 1/3 + 0.1 (1, 2, 0.5) minus its mean excess 0.35/3
        (0.1, (0.316667, 0.416667, 0.266667)),
        # 1/3 + (1, 2, 0.5): 2.3333 - 1 stands above both others
        (1.0, (0.0, 1.0, 0.0)),
    ],
)
def test_fixture(eta, wanted):
    script = Script([AFL(eta=eta)])
    x = script.play(FIXTURE, loss=PRE)
    torch.testing.assert_close(mixture(script), vector(*wanted), atol=1e-6, rtol=0)
    # The model moves with the old, uniform weights.
    torch.testing.assert_close(x, vector(2.5 / 3, 1.9))


def test_the_second_round_uses_the_weights_of_the_first():
    script = Script([AFL(eta=1.0)])
    script.play(FIXTURE, loss=PRE)
    before = script.server.x
    torch.testing.assert_close(script.play(FIXTURE, loss=PRE), before + FIXTURE[1])


def test_weights_first_moves_the_model_with_the_new_weights():
    x = Script([AFL(eta=1.0, order="weights_first")]).play(FIXTURE, loss=PRE)
    torch.testing.assert_close(x, vector(1.2, 1.9))


def test_initial_weights_by_size():
    script = Script([AFL(eta=0.0, initial="size")])
    torch.testing.assert_close(script.play(FIXTURE, loss=PRE), vector(0.825, 1.8))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_without_a_step_of_the_weights_it_is_uniform_fedavg(unlike, engine):
    solver = fp.Solver(lr=0.1, steps=3, batch=4)
    known = {"solver": solver, "model": "mlp(hidden=4)", "engine": engine}
    found = after(bench(unlike, "afl(eta=0)", **known), 4)
    uniform = after(bench(unlike, "fedavg", weighting="uniform", **known), 4)
    torch.testing.assert_close(found, uniform, rtol=1e-12, atol=1e-14)


def test_equal_losses_keep_the_weights():
    script = Script([AFL(eta=0.3, initial="size")])
    script.play(FIXTURE, loss=(1.5, 1.5, 1.5))
    torch.testing.assert_close(mixture(script), vector(0.5, 0.25, 0.25))


@pytest.mark.parametrize("loss", [0.2, 0.7, 3.0])
def test_raising_a_clients_loss_does_not_lower_its_weight(loss):
    low, high = Script([AFL()]), Script([AFL()])
    low.play(FIXTURE, loss=(loss, 2.0, 0.5))
    high.play(FIXTURE, loss=(loss + 0.3, 2.0, 0.5))
    assert float(mixture(high)[0]) >= float(mixture(low)[0])


def test_only_those_who_answer_move_and_their_mass_stays():
    script = Script([AFL(eta=0.1, initial="size")])
    x = script.play(FIXTURE[[0, 2]], clients=[0, 2], loss=(1.0, 0.5))
    # (0.5, 0.25) + 0.1 (1, 0.5) onto mass 0.75: minus 0.075 each
    torch.testing.assert_close(mixture(script), vector(0.525, 0.25, 0.225))
    # Aggregated with the shares 2/3 and 1/3 of the old weights.
    torch.testing.assert_close(x, vector(0.7, 5.3 / 3))


def test_a_single_reply_is_taken_whole():
    script = Script([AFL(eta=0.1)])
    x = script.play(FIXTURE[[1]], clients=[1], loss=[2.0])
    torch.testing.assert_close(x, vector(1.2, 1.9))
    torch.testing.assert_close(mixture(script), vector(1 / 3, 1 / 3, 1 / 3))


def test_clients_without_weight_fall_back_to_the_given_weights():
    script = Script([AFL(eta=1.0)])
    script.play(FIXTURE, loss=PRE)
    before = script.server.x
    x = script.play(FIXTURE[[0, 2]], clients=[0, 2], loss=(0.0, 0.0))
    torch.testing.assert_close(x, before + vector(2 / 3, 1 / 3) @ FIXTURE[[0, 2]])
    torch.testing.assert_close(mixture(script), vector(0.0, 1.0, 0.0))


def test_the_average_of_the_models_after_each_round_may_be_served():
    script, plain = Script([AFL(average=True)]), Script([AFL()])
    assert torch.equal(script.algorithm.served(script.server)[0], vector(1.0, 2.0))
    models = []
    for round in range(4):
        if round == 2:
            script.play(FIXTURE[:0], clients=[], loss=[])  # nobody answers: no model
        models.append(script.play(FIXTURE, loss=PRE))
        torch.testing.assert_close(models[-1], plain.play(FIXTURE, loss=PRE))
        served = script.algorithm.served(script.server)[0]
        torch.testing.assert_close(served, torch.stack(models).mean(0))
    assert torch.equal(plain.algorithm.served(plain.server)[0], models[-1])


@pytest.mark.parametrize("keep", ["last", "mean_loss"])
def test_the_average_is_what_is_evaluated_and_kept(unlike, keep):
    solver = fp.Solver(lr=0.5, steps=2)
    made = bench(unlike, "afl(average=true)", solver=solver, model="mlp(hidden=4)")
    averages = [made.server.x]
    for _ in range(3):
        made.advance()
        averages.append(made.setup.algorithm.served(made.server)[0])
    result = fp.Experiment(
        unlike,
        "mlp(hidden=4)",
        "afl(average=true)",
        rounds=3,
        solver=solver,
        dtype="float64",
        engine="loop",
        lstar="none",
        keep=keep,
    ).run()
    kept = result.settings["record"].get("kept_round", 3)
    found = torch.cat([p.detach().ravel() for p in result.model().parameters()])
    torch.testing.assert_close(found, averages[kept], rtol=1e-12, atol=1e-14)
    last = made.setup.layout.write(made.setup.module, averages[3]).eval()
    rows = result.history.query("round == 3 and split == 'test' and metric == 'loss'")
    assert len(rows)
    for name, value in zip(rows["client"], rows["value"], strict=True):
        inputs, target = unlike.test.client(unlike.names.index(name))
        loss = torch.nn.functional.cross_entropy(last(inputs), target)
        assert value == pytest.approx(float(loss.detach()), rel=1e-12)


def test_huge_losses_leave_a_mixture():
    script = Script([AFL(eta=0.1)])
    script.play(FIXTURE, loss=(1e30, 1.0, 1.0))
    torch.testing.assert_close(mixture(script), vector(1.0, 0.0, 0.0))


def test_it_minimises_the_largest_loss():
    # (x - 2)^2 and (x + 4)^2 / 4 are equal at x: x - 2 = -(x + 4) / 2, x = 0
    toy = parabolas([[1.0], [0.25]], [[2.0], [-4.0]])
    made = bench(toy, "afl(eta=0.02)", [1.0], solver=fp.Solver(lr=0.1, steps=1))
    assert float(after(made, 400)) == pytest.approx(0, abs=0.02)
