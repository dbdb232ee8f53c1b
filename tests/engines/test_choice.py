"""The choice of an engine: a fixed rule, said with its reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nets import Branching, Recurrent, dropping, normed, rarely_dropping, smooth, wide

import fedparity as fp
from fedparity.errors import InputError
from fedparity.run.experiment import Experiment
from fedparity.testing import unlike_clients


def experiment(federation, model="linear", **more) -> Experiment:
    known = {"lstar": "none", "rounds": 2, "solver": fp.Solver(lr=1e-4), **more}
    return Experiment(federation, model, **known)


def test_small_models_are_stacked(unlike):
    choice = experiment(unlike).choice
    assert choice.name == "vmap"
    assert "4 clients of 12 parameters" in choice.reason


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"model": dropping}, "random numbers"),
        ({"model": rarely_dropping}, "random numbers"),
        ({"model": Branching}, "cannot stack the model"),
        ({"model": Recurrent}, "cannot stack the model"),
        ({"model": wide}, "fills a core"),
        ({"model": smooth, "cohort": 1}, "one client a round"),
    ],
)
def test_what_cannot_or_should_not_be_stacked_takes_the_loop(unlike, more, reason):
    made = experiment(unlike, **more)
    assert made.choice.name == "loop"
    assert reason in made.choice.reason
    made.run()


def test_statistics_of_padded_batches_take_the_loop():
    made = experiment(unlike_clients((6, 5)), normed)
    assert made.choice.name == "loop"
    assert "BatchNorm" in made.choice.reason
    made.run()


def test_full_batches_of_very_unlike_sizes_are_not_padded():
    far_apart = unlike_clients((600, 5, 5, 5))
    assert experiment(far_apart, smooth).choice.name == "loop"
    assert experiment(far_apart, smooth, solver=fp.Solver(batch=5)).choice.name == "vmap"
    assert "block by block" in experiment(far_apart).choice.reason


@pytest.mark.parametrize("model", [dropping, rarely_dropping, normed, Branching, Recurrent])
def test_vmap_asked_for_by_name_is_refused_before_anything_is_written(unlike, tmp_path, model):
    with pytest.raises(InputError, match="engine 'vmap' cannot run this"):
        experiment(unlike, model, engine="vmap").run(out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_choice_is_recorded(unlike, tmp_path):
    experiment(unlike).run(out=tmp_path / "run")
    settings = fp.Result.load(tmp_path / "run").settings
    assert settings["engine"] == "vmap"
    assert "4 clients" in settings["record"]["engine_reason"]


def test_looking_at_a_model_leaves_it_and_the_generator_alone(unlike):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    made = experiment(unlike, dropping)
    assert torch.equal(torch.get_rng_state(), before)
    fresh = made.task.build((3,), 3, fp.learning.seeds.seed_for(0, "model"), torch.float32)
    for mine, theirs in zip(made.setup.module.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    stats = experiment(unlike, normed).setup.module[1]
    assert float(stats.running_mean.abs().sum()) == 0
    assert int(stats.num_batches_tracked) == 0


def even(clients, examples, shape):
    x = np.zeros((clients * examples, *shape), dtype=np.float32)
    owner = np.repeat(np.arange(clients), examples)
    return fp.Federation.from_arrays(x, owner % 2, owner, np.full(len(x), "train"), outputs=2)


def chosen(federation, model, **solver):
    made = fp.Experiment(federation, model, solver=fp.Solver(**solver), lstar="none")
    return made.choice.name


def test_large_linear_layers_are_stacked_where_clients_keep_step():
    assert chosen(even(4, 60, (784,)), "mlp", steps=2, batch=50) == "vmap"


def test_large_linear_layers_loop_where_most_rows_would_idle(unlike):
    sizes = np.array([10, 10, 10, 400])
    owner = np.repeat(np.arange(4), sizes)
    uneven = fp.Federation.from_arrays(
        np.zeros((len(owner), 784), dtype=np.float32), owner % 2, owner, np.full(430, "train")
    )
    assert chosen(uneven, "mlp", epochs=1, batch=10) == "loop"
    assert chosen(uneven, "mlp", steps=2, batch=10) == "vmap"


def test_one_client_a_round_is_stacked_where_its_products_are_written_out(unlike):
    assert experiment(unlike, cohort=1).choice.name == "vmap"


def test_large_full_batches_of_linear_layers_are_read_in_place():
    assert chosen(even(4, 60, (784,)), "mlp", steps=1) == "vmap"


def test_convolutions_that_fill_a_core_loop():
    assert chosen(even(2, 60, (3, 32, 32)), "cnn", steps=2, batch=50) == "loop"


def test_a_run_meant_for_real_sites_is_not_simulated(unlike, tmp_path):
    experiment = fp.Experiment(unlike, "linear", rounds=1, engine="flower")
    with pytest.raises(InputError, match="start it with 'flwr run'"):
        experiment.run(out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
