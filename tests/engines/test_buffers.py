"""BatchNorm statistics: what becomes of them after local training."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from nets import normed

import fedparity as fp
from fedparity.errors import InputError
from fedparity.method.messages import Down
from fedparity.run.experiment import Experiment
from fedparity.testing import Bench, unlike_clients

SOLVER = fp.Solver(lr=0.1, steps=2, batch=4)


def made(federation, algorithm="fedavg", engine="loop", **more) -> Bench:
    known = {"dtype": "float64", "lstar": "none", "engine": engine, "solver": SOLVER, **more}
    return Bench(Experiment(federation, normed, algorithm, **known))


def statistics(bench: Bench) -> dict[str, torch.Tensor]:
    return bench.setup.layout.buffer_tensors(bench.server.buffers)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_one_step_by_hand(engine):
    federation = unlike_clients((4, 12))
    solver = fp.Solver(lr=0.1, steps=1, batch=4)
    bench = made(federation, engine=engine, solver=solver)
    bench.advance()
    assert int(statistics(bench)["1.num_batches_tracked"]) == 1
    # running = 0.9 * 0 + 0.1 * batch mean, averaged 4 : 12 by size
    module = made(federation, solver=solver).setup.module
    means = []
    for k in range(2):
        x, _ = federation.train.client(k)
        plan = solver.batches(
            bench.setup.seeds(_train(bench), np.asarray([k]), "batches"), np.asarray([len(x)])
        )
        means.append(0.1 * module[0](x[plan.index[0, 0]]).mean(0))
    wanted = 0.25 * means[0] + 0.75 * means[1]
    torch.testing.assert_close(statistics(bench)["1.running_mean"], wanted.detach())


def _train(bench: Bench):
    from fedparity.method.messages import Down

    return Down("train", 1, 0.1, bench.server.x, bench.server.buffers)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_averaged_statistics_are_carried_on(alike, engine):
    bench = made(alike, engine=engine)
    for t in range(1, 4):
        bench.advance()
        assert int(statistics(bench)["1.num_batches_tracked"]) == 2 * t
    assert bench.store.fresh == {}


def test_statistics_follow_the_weights_of_the_algorithm(alike):
    bench = made(alike, "afl(eta=1000, order=weights_first)")
    replies = bench.advance()
    chosen = int(bench.server.parts["afl"]["mixture"].argmax())
    assert float(bench.server.parts["afl"]["mixture"][chosen]) == 1.0
    torch.testing.assert_close(bench.server.buffers, replies.buffers[chosen])


def test_statistics_go_by_size_where_weights_are_no_probabilities(unlike):
    federation = unlike_clients((4, 12))
    bench = made(federation, "qffl(q=2)")
    replies = bench.advance()
    by_size = torch.tensor([0.25, 0.75]).double() @ replies.buffers
    counter = bench.setup.layout.counters()
    torch.testing.assert_close(bench.server.buffers[~counter], by_size[~counter])


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_local_statistics_stay_on_the_client_and_are_its_own(alike, engine):
    bench = made(alike, engine=engine, buffers="local")
    before = bench.server.buffers.clone()
    bench.advance()
    bench.advance([0, 2])
    assert torch.equal(bench.server.buffers, before)
    kept = bench.tensors()["client/buffers/b"]
    counted = bench.setup.layout.counters().nonzero().item()
    assert kept[:, counted].tolist() == [4, 2, 4, 2]
    assert not torch.equal(kept[0], kept[1])


def test_local_statistics_are_those_a_client_is_evaluated_with(alike):
    result = Experiment(
        alike, normed, rounds=3, solver=SOLVER, buffers="local", lstar="none", dtype="float64"
    ).run()
    last = result.history.query("round == 3 and split == 'test' and metric == 'loss'")
    shared, own = (
        last.query(f"model == '{m}'")["value"].to_numpy() for m in ("global", "personal")
    )
    assert (shared != own).all()
    np.testing.assert_allclose(result.clients["test_loss"].dropna(), own)


def test_losses_reported_with_local_statistics_are_the_clients_own(alike):
    bench = made(alike, "qffl", buffers="local")
    bench.advance()
    x, kept = bench.server.x, bench.tensors()["client/buffers/b"]
    reported = bench.advance().reports["qffl"]["loss"]
    for k in range(4):
        module = copy.deepcopy(bench.setup.module)
        bench.setup.layout.write(module, x, kept[k]).eval()
        inputs, target = alike.train.client(k)
        loss = torch.nn.functional.cross_entropy(module(inputs), target).detach()
        assert float(reported[k]) == pytest.approx(float(loss), rel=1e-12)


def test_a_model_with_statistics_can_be_refused(alike):
    with pytest.raises(InputError, match="running_mean"):
        made(alike, buffers="refuse")


def test_statistics_never_enter_the_parameters(alike):
    bench = made(alike)
    replies = bench.advance()
    assert replies.deltas.shape[1] == sum(p.numel() for p in bench.setup.module.parameters())


def test_the_trained_module_has_the_averaged_statistics(alike, tmp_path):
    experiment = Experiment(
        alike, normed, rounds=2, solver=SOLVER, lstar="none", checkpoint_every=1
    )
    model = experiment.run(out=tmp_path / "run").model()
    assert not model.training
    assert int(model[1].num_batches_tracked) == 4
    assert float(model[1].running_mean.abs().sum()) > 0


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_statistics_survive_a_resume(alike, tmp_path, buffers):
    from safetensors.torch import load_file

    def run(rounds: int, name: str, resume: bool = False) -> None:
        experiment = Experiment(
            alike, normed, rounds=rounds, solver=SOLVER, lstar="none", buffers=buffers, cohort=2
        )
        folder = tmp_path / name
        if resume:
            experiment.resume(folder)
        else:
            experiment.run(out=folder)

    run(6, "whole")
    run(3, "parts")
    run(6, "parts", resume=True)
    one, other = (
        load_file(tmp_path / name / "checkpoint" / "state.safetensors")
        for name in ("whole", "parts")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_vmap_refuses_to_pad_and_auto_takes_the_loop(unlike):
    with pytest.raises(InputError, match="BatchNorm statistics do not allow padded batches"):
        made(unlike, engine="vmap")
    chosen = Experiment(unlike, normed, solver=SOLVER, lstar="none").choice
    assert chosen.name == "loop"
    assert "BatchNorm" in chosen.reason


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_loss_before_training_is_that_of_the_clients_own_normalisation(engine):
    # FedBN clients start from their own BatchNorm layers; what they report is measured there.
    bench = made(unlike_clients((8, 4, 12)), "bn+fedeba(signal=pre)", engine)
    bench.advance()
    everyone, setup = np.arange(3), bench.setup
    states = bench.store.gather(everyone)
    down = Down("evaluate", 1, 0.0, bench.server.x, bench.server.buffers)
    own = bench.engine.personal(down, everyone, states["buffers"]["b"], states)
    loss = bench.engine.evaluate_own("train", everyone, own)["loss"]
    replies = bench.advance()
    np.testing.assert_allclose(replies.reports["fedeba"]["loss"].numpy(), loss, rtol=1e-12)
    shared = setup.layout.write(copy.deepcopy(setup.module), down.x, down.buffers).eval()
    x, y = setup.federation.train.client(0)
    elsewhere = setup.task.losses(shared(x), y).mean().detach()
    assert abs(float(elsewhere) - loss[0]) > 1e-6


def test_a_second_view_of_a_batch_leaves_no_trace_in_the_statistics():
    federation = unlike_clients((8, 4, 12))
    found = [made(federation, "lsr", engine) for engine in ("loop", "vmap")]
    for bench in found:
        bench.advance()
    loop, vmap = (statistics(bench) for bench in found)
    assert int(loop["1.num_batches_tracked"]) == 2  # one a step
    for name, value in loop.items():
        torch.testing.assert_close(value, vmap[name])
