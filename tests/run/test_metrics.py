"""Metrics in a run: clients, history, summaries, keep and stop, files, and the command line."""

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from torch.nn.functional import softmax

import fedparity as fp
from fedparity.reports.findings import headlines


def federation(seed=0, clients=4):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60 * clients, 3))
    y = (x[:, 0] + rng.normal(size=len(x)) > 0).astype(int)
    owner = np.repeat(np.arange(clients), 60)
    y[owner == clients - 1] = 1  # the last client has one class only
    return fp.Federation.from_arrays(x, y, owner, fractions=(0.6, 0.2, 0.2), seed=1)


def lift(target, output):
    """Mean probability of the second class."""
    return float(output[:, 1].mean())


SETTINGS = {"rounds": 4, "solver": fp.Solver(lr=0.5), "lstar": "none"}


def run(out=None, **changed):
    settings = {**SETTINGS, "metrics": ["auc", "f1"], **changed}
    return fp.Experiment(federation(), "linear", **settings).run(out)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    own = fp.Metric(lift, better="lower")
    return run(tmp_path_factory.mktemp("run") / "run", metrics=["auc", "accuracy", own])


def test_a_client_has_the_metric_of_the_model_on_all_its_examples(done):
    data, model = federation(), done.model()
    for client in range(3):
        x, y = data.test.client(client)
        with torch.no_grad():
            said = softmax(model(x.float()).double(), -1)[:, 1]
        assert done.clients["test_auc"][client] == pytest.approx(
            sk.roc_auc_score(y, said), abs=1e-12
        )
    assert np.isnan(done.clients["test_auc"][3])


def test_a_metric_is_in_clients_history_summary_and_report(done):
    assert {"validation_auc", "test_auc", "test_lift"} <= set(done.clients)
    assert {"auc", "lift"} <= set(done.history["metric"])
    assert done.summary()["clients_without_auc"] == 1
    assert any("1 client (3) has no auc" in sentence for sentence in headlines(done))
    assert "mean<br>auc" in (done.path / "report.html").read_text()


def test_a_run_that_is_read_back_knows_what_its_metrics_mean(done):
    read = fp.Result.load(done.path)
    assert read.frame.metrics["lift"].better == "lower"
    assert read.summary().equals(done.summary())


def test_an_experiment_file_names_the_metrics_and_gives_them_again(done, tmp_path):
    named = f"{__name__}:lift(better=lower)"
    assert done.settings["metrics"] == ["auc", named]
    file = tmp_path / "file.yaml"
    data = "{dataset: digits, partition: iid, clients: 3}"
    file.write_text(f"{{data: {data}, model: linear, metrics: [auc, '{named}']}}")
    with pytest.raises(fp.InputError, match="the metric is code"):
        fp.load(file)
    assert [m.name for m in fp.load(file, allow_import=__name__).more_metrics] == ["auc", "lift"]


def test_loss_and_accuracy_are_the_same_bits_with_and_without_further_metrics(done):
    plain = run(metrics=())
    for column in ("test_loss", "test_accuracy", "train_loss"):
        assert np.array_equal(plain.clients[column], done.clients[column])


def test_engines_agree_on_metrics():
    found = [run(engine=engine).clients["test_auc"] for engine in ("loop", "vmap")]
    np.testing.assert_allclose(*found, atol=1e-6)


def test_personal_models_have_metrics_of_their_own():
    found = run(algorithm="local")
    rows = found.history[(found.history["metric"] == "auc") & (found.history["round"] == 4)]
    rows = rows[rows["split"] != "train"]
    personal, shared = (rows[rows["model"] == m]["value"] for m in ("personal", "global"))
    assert len(personal) == len(shared) == 8
    assert not np.allclose(personal, shared, equal_nan=True)
    assert set(found.clients["test_auc"].dropna()) <= set(personal)


def test_the_model_with_the_best_metric_on_validation_is_kept():
    found = run(keep="mean_auc", evaluate_every=1)
    rows = found.history[(found.history["metric"] == "auc") & (found.history["model"] == "global")]
    means = rows[rows["split"] == "validation"].groupby("round")["value"].mean()
    assert found.record["kept_round"] == means.idxmax()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"metrics": ["rmse"]}, "'rmse' is of values, and the task is 'classification'"),
        ({"keep": "mean_r2"}, "unknown summary 'mean_r2'"),
        ({"metrics": "ac"}, "unknown metric 'ac'"),
    ],
)
def test_a_metric_that_a_run_cannot_have_is_refused_before_it(changed, told):
    with pytest.raises(fp.InputError, match=told):
        run(**changed)


def test_a_regression_has_metrics_of_values():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    data = fp.Federation.from_arrays(x, x @ [1.0, -1.0], np.arange(120) % 3)
    found = fp.Experiment(data, "linear", metrics=["rmse", "r2", "mae"], **SETTINGS).run().clients
    np.testing.assert_allclose(found["test_rmse"] ** 2, found["test_loss"], rtol=1e-6)
    np.testing.assert_allclose(found["test_mae"], found["test_error"], rtol=1e-6)


def test_the_base_rate_is_the_accuracy_of_the_most_frequent_training_class(done):
    data = federation()
    for client in range(4):
        guess = data.train.client(client)[1].mode().values
        right = (data.test.client(client)[1] == guess).double().mean()
        assert done.clients["test_base_accuracy"][client] == pytest.approx(float(right))
    assert done.clients["test_base_accuracy"][3] == 1.0  # it has one class


def test_the_base_of_a_regression_is_the_loss_of_the_mean_training_value():
    x, y = np.zeros((6, 1)), [1.0, 3.0, 4.0, 5.0, 0.0, 1.0]
    part = ["train", "train", "test", "train", "test", "test"]
    data = fp.Federation.from_arrays(x, y, [0, 0, 0, 1, 1, 1], part, kind="values")
    found = fp.Experiment(data, "linear", rounds=1, lstar="none").run().clients
    # means 2 and 5: (4 - 2)^2 and ((0 - 5)^2 + (1 - 5)^2) / 2
    assert list(found["test_base_loss"]) == [4.0, 20.5]


def test_accuracy_alone_is_that_of_the_model_behind_lstar():
    found = run(lstar="best_validation(rounds=3)", algorithm="fedavg").clients
    lonely = run(lstar="best_validation(rounds=3)", algorithm="local", rounds=3, seed=0)
    assert found["test_alone_accuracy"].between(0, 1).all()
    assert set(found["test_alone_accuracy"]) & set(lonely.clients["test_accuracy"])
