"""A run that ends far worse than it began says so, and still leaves its results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedparity as fp
from fedparity.records.divergence import divergence


def at_the_end(train: list[float], validation: list[float]) -> pd.DataFrame:
    """Return two clients with these losses; one of NaN and no examples has none."""
    counts = np.where(np.isnan(validation), 0, 5)
    return pd.DataFrame(
        {
            "client": ["a", "b"],
            "n_train": [10, 10],
            "n_validation": counts,
            "n_test": [0, 0],
            "train_loss": train,
            "validation_loss": validation,
        }
    )


def before(*losses: float) -> pd.DataFrame:
    """Return a history that begins with these validation losses and goes on."""
    columns = ["round", "client", "split", "model", "metric", "value"]
    rows = [
        (0, name, "validation", "global", "loss", x) for name, x in zip("ab", losses, strict=True)
    ]
    rows += [(1, name, "validation", "global", "loss", 0.0) for name in "ab"]
    return pd.DataFrame(rows, columns=columns)


def untrained() -> np.ndarray:
    return np.array([1.0, 1.0])


def never() -> np.ndarray:
    raise AssertionError("a pass over the training examples that nobody needs")


def test_a_run_whose_losses_fell_has_not_diverged():
    assert divergence(at_the_end([0.9, 0.9], [0.5, 2.4]), before(1.0, 1.0), never) is None


def test_a_run_of_twice_the_loss_on_training_and_validation_has_diverged():
    found = divergence(at_the_end([3.5, 1.1], [4.2, 1.0]), before(1.0, 1.0), untrained)
    assert found == "the mean loss is 2.3, and was 1 before training"


def test_a_run_that_is_only_worse_than_it_began_has_not_diverged():
    assert divergence(at_the_end([1.9, 1.9], [1.9, 1.9]), before(1.0, 1.0), never) is None


def test_overfitting_is_not_divergence():
    assert divergence(at_the_end([0.1, 0.1], [3.0, 3.0]), before(1.0, 1.0), untrained) is None


def test_a_run_that_changed_nothing_has_not_diverged():
    assert divergence(at_the_end([1.0, 1.0], [1.0, 1.0]), before(1.0, 1.0), never) is None


@pytest.mark.parametrize("loss", [float("inf"), float("nan")])
def test_a_loss_that_is_not_finite_is_divergence(loss):
    clients = at_the_end([0.5, 0.5], [0.5, 0.5]).assign(validation_loss=[0.5, loss])
    assert divergence(clients, before(1.0, 1.0), never) == "the mean validation loss is not finite"


def test_a_client_without_examples_is_not_divergence():
    clients = at_the_end([0.5, 0.5], [0.5, float("nan")])
    assert divergence(clients, before(1.0, float("nan")), never) is None


def climbing(rounds: int = 3, lr: float = 2.0, decay: float = 1.0) -> fp.Experiment:
    """Return least squares with a learning rate at which every step overshoots."""
    x = np.linspace(1, 2, 40)[:, None]
    federation = fp.Federation.from_arrays(x, x[:, 0], np.arange(40) % 2, kind="values")
    made = fp.Solver(lr=lr, steps=1, decay=decay)
    return fp.Experiment(federation, "linear", rounds=rounds, solver=made, lstar="none")


def test_a_run_that_diverges_warns_once_and_keeps_its_results(tmp_path):
    with pytest.warns(UserWarning, match="'fedavg' diverged: the mean loss is ") as said:
        result = climbing().run(tmp_path / "run")
    assert len(said) == 1
    assert result.diverged
    loaded = fp.Result.load(tmp_path / "run")
    assert loaded.diverged == result.diverged
    assert "fedavg (diverged)" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.filterwarnings("ignore:the update of client")  # one client overflows before the others
def test_a_run_that_overflows_stops_there_and_goes_on_to_the_same_end(tmp_path):
    with pytest.warns(UserWarning, match="every update is infinite or NaN"):
        first = climbing(rounds=100).run(tmp_path / "run")
    assert 0 < first.rounds < 100
    with pytest.warns(UserWarning, match="every update is infinite or NaN"):
        again = climbing(rounds=100).resume(tmp_path / "run")
    assert again.rounds == first.rounds
    pd.testing.assert_frame_equal(first.clients, again.clients)


def test_a_run_that_recovers_is_no_longer_called_diverged(tmp_path):
    with pytest.warns(UserWarning, match="diverged"):
        climbing(rounds=1, lr=0.5, decay=0.7).run(tmp_path / "run")
    longer = climbing(rounds=20, lr=0.5, decay=0.7).resume(tmp_path / "run")
    assert longer.diverged is None
    assert fp.Result.load(tmp_path / "run").diverged is None


def test_levelling_down_is_not_judged_where_a_run_diverged():
    with pytest.warns(UserWarning, match="diverged"):
        worse = climbing().run()
    with pytest.warns(UserWarning, match="the reference diverged: levelling down cannot be judged"):
        worse.warn_of_levelling_down(worse)
