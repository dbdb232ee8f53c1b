"""What a run keeps beside its numbers: predictions, weights, what was told, curves, two models."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy, softmax

import fedparity as fp
from fedparity.errors import DamagedError
from fedparity.run import alone, keeping

CLIENTS = ("a", "b", "c")


def federation():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90, 3))
    y = (x[:, 0] + rng.normal(size=90) > 0).astype(int)
    return fp.Federation.from_arrays(
        x, y, np.repeat(CLIENTS, [20, 30, 40]), fractions=(0.6, 0.2, 0.2)
    )


def experiment(algorithm="fedavg", **changed):
    settings = {
        "rounds": 3,
        "solver": fp.Solver(lr=0.5),
        "lstar": "best_validation(rounds=4, patience=2)",
        "dtype": "float64",
        **changed,
    }
    return fp.Experiment(federation(), "linear", algorithm, **settings)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    made = experiment("qffl(q=1)", cohort=2, keep="mean_loss", evaluate_every=1, metrics=["auc"])
    return made.run(tmp_path_factory.mktemp("keeping") / "run")


def test_predictions_are_what_the_kept_model_says_of_every_example(done):
    rows = done.predictions[done.predictions["model"] == "global"]
    for split in ("validation", "test"):
        data = getattr(federation().to(torch.float64), split)
        mine = rows[rows["split"] == split]
        with torch.no_grad():
            said = done.model()(data.x)
        assert list(mine["client"]) == [CLIENTS[k] for k in data.owner]
        assert list(mine["target"]) == data.y.tolist()
        expected = softmax(said, -1).numpy()
        np.testing.assert_allclose(mine[["output_0", "output_1"]], expected, atol=1e-12)
        losses = cross_entropy(said, data.y, reduction="none")
        np.testing.assert_allclose(mine["loss"], losses, atol=1e-12)
    assert list(rows[(rows["client"] == "a") & (rows["split"] == "test")]["index"]) == [0, 1, 2, 3]


def test_predictions_of_the_models_alone_give_lstar(done):
    rows = done.predictions[done.predictions["model"] == "alone"]
    for split in ("validation", "test"):
        means = rows[rows["split"] == split].groupby("client", observed=True)["loss"].mean()
        np.testing.assert_allclose(means, done.clients[f"{split}_lstar"], atol=1e-12)


def test_the_models_alone_have_the_metrics_asked_for(done):
    from sklearn.metrics import roc_auc_score

    rows = done.predictions
    mine = rows[(rows["model"] == "alone") & (rows["split"] == "test") & (rows["client"] == "c")]
    assert done.clients["test_alone_auc"][2] == pytest.approx(
        roc_auc_score(mine["target"], mine["output_1"]), abs=1e-12
    )


def test_personal_models_have_predictions_of_their_own():
    found = experiment("local", lstar="none").run()
    rows = found.predictions[found.predictions["split"] == "test"]
    means = rows.groupby(["model", "client"], observed=True)["loss"].mean()
    np.testing.assert_allclose(means["personal"], found.clients["test_loss"], atol=1e-12)


def test_predictions_are_left_out_on_demand_and_cut_with_a_word(monkeypatch, tmp_path):
    without = experiment(predictions=False, lstar="none").run(tmp_path / "none")
    assert without.predictions.empty
    with pytest.raises(fp.InputError, match="no predictions"):
        _ = fp.Result.load(tmp_path / "none").predictions
    # 4 + 6 + 8 examples in each split; 8 numbers each
    monkeypatch.setattr(keeping, "MOST_NUMBERS", 8 * 30)
    cut = experiment(lstar="none").run()
    assert len(cut.predictions) == 2 * (4 + 4 + 4)
    assert "the first 4 validation and test examples" in cut.record["predictions"]


def test_all_is_read_back_from_the_directory_and_verified(done):
    read = fp.Result.load(done.path)
    for name in ("predictions", "lstar_curves", "aggregation_weights", "told", "history"):
        pd.testing.assert_frame_equal(
            getattr(read, name), getattr(done, name), check_dtype=False, check_categorical=False
        )
    file = done.path / "predictions.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(DamagedError, match=r"predictions.parquet is not as fedparity wrote it"):
        _ = fp.Result.load(done.path).predictions
    file.write_bytes(content)


def test_weights_and_training_losses_of_every_round_are_kept(done):
    weights = done.aggregation_weights
    assert list(weights.groupby("round").size()) == [2, 2, 2]  # two clients a round
    told = done.told
    losses = told[(told["part"] == "qffl") & (told["number"] == "loss")]
    assert set(losses["round"]) == {1, 2, 3}
    assert (losses["value"] > 0).all()
    assert set(done.history["split"]) == {"train", "validation", "test"}


def test_weights_of_fedavg_are_the_shares_of_training_examples():
    sizes = federation().train.sizes
    found = experiment(lstar="none").run().aggregation_weights
    first = found[found["round"] == 1].set_index("client")["weight"]
    np.testing.assert_allclose(first[list(CLIENTS)], sizes / sizes.sum())


def test_a_resumed_run_keeps_the_weights_of_all_rounds(tmp_path):
    whole = experiment(rounds=4, lstar="none").run()
    experiment(rounds=2, lstar="none", checkpoint_every=1).run(tmp_path / "run")
    again = experiment(rounds=4, lstar="none", checkpoint_every=1).resume(tmp_path / "run")
    pd.testing.assert_frame_equal(again.aggregation_weights, whole.aggregation_weights)


def test_the_course_of_a_client_alone_ends_after_its_rounds(done):
    curves = done.lstar_curves
    last = curves.groupby("client")["round"].max()
    assert list(last[list(CLIENTS)]) == list(done.clients["lstar_rounds"])
    best = curves.groupby("client")["loss"].min()
    np.testing.assert_allclose(best[list(CLIENTS)], done.clients["validation_lstar"], atol=1e-12)


def test_a_long_course_leaves_rounds_out(monkeypatch):
    monkeypatch.setattr(alone, "MOST_POINTS", 4)
    courses = alone.Courses(("a", "b"))
    for t in range(7):
        courses.add(t, np.array([0, 1]), np.array([1.0, 2.0]))
    assert list(courses.table()["round"]) == [0, 0, 4, 4]


def test_the_last_model_is_kept_beside_the_best(done):
    best = done.record["kept_round"]
    rows = done.history[
        (done.history["metric"] == "loss") & (done.history["split"] == "validation")
    ]
    means = rows.groupby("round")["value"].mean()
    assert best == means.idxmin()
    data = federation().to(torch.float64).validation
    for which, t in (("best", best), ("last", 3)):
        with torch.no_grad():
            said = done.model(which=which)(data.x)
        each = cross_entropy(said, data.y, reduction="none")
        by_client = np.bincount(data.owner, each) / data.sizes
        assert by_client.mean() == pytest.approx(means[t], abs=1e-12)
