import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sk
from sklearn.calibration import calibration_curve

from fedparity import ClientFrame, InputError, Metric
from fedparity.metrics import METRICS, read_metrics, value_of

RNG = np.random.default_rng(0)
TWO = RNG.integers(0, 2, 200)
THREE = RNG.integers(0, 3, 200)
VALUES = RNG.normal(size=200)
GUESSES = VALUES + RNG.normal(size=200)


def probabilities(classes):
    raw = RNG.random((200, classes)).round(2) + 0.01  # rounded: ties, which areas must share
    return raw / raw.sum(1, keepdims=True)


P2, P3 = probabilities(2), probabilities(3)


def calibration(target, output):
    """The expected calibration error from scikit-learn's curve and the sizes of its bins."""
    sure, right = output.max(1), output.argmax(1) == target
    truth, said = calibration_curve(right, sure, n_bins=10)
    sizes = np.bincount(np.searchsorted(np.linspace(0, 1, 11)[1:-1], sure))  # edges belong below
    return float(np.abs(truth - said) @ sizes[sizes > 0] / len(sure))


THEIRS = {
    "auc": lambda t, p: sk.roc_auc_score(t, p[:, 1] if p.shape[1] == 2 else p, multi_class="ovr"),
    "balanced_accuracy": lambda t, p: sk.balanced_accuracy_score(t, p.argmax(1)),
    "f1": lambda t, p: sk.f1_score(
        t, p.argmax(1), average="binary" if p.shape[1] == 2 else "macro"
    ),
    "log_loss": lambda t, p: sk.log_loss(t, p),
    "brier": lambda t, p: sk.brier_score_loss(t, p),
    "calibration_error": calibration,
    "rmse": sk.root_mean_squared_error,
    "mae": sk.mean_absolute_error,
    "r2": sk.r2_score,
}


@pytest.mark.filterwarnings("ignore:.*y_proba:FutureWarning")
@pytest.mark.parametrize("name", THEIRS)
def test_a_metric_equals_that_of_scikit_learn(name):
    cases = [(TWO, P2), (THREE, P3)]
    if METRICS[name].of == "values":
        cases = [(VALUES, GUESSES)]
    for target, output in cases:
        assert METRICS[name](target, output) == pytest.approx(
            THEIRS[name](target, output), abs=1e-12
        )


def test_every_metric_of_classes_and_values_is_held_against_scikit_learn():
    assert {m.name for m in METRICS.values() if m.of in ("classes", "values")} == set(THEIRS)


def test_the_area_of_a_client_that_lacks_a_class_is_over_those_it_has():
    target = THREE[THREE < 2]
    output = P3[THREE < 2]
    of_0, of_1 = (sk.roc_auc_score(target == c, output[:, c]) for c in (0, 1))
    assert METRICS["auc"](target, output) == pytest.approx((of_0 + of_1) / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "target", "output"),
    [
        ("auc", [1, 1], [[0.5, 0.5], [0.1, 0.9]]),
        ("f1", [0, 0], [[0.9, 0.1], [0.8, 0.2]]),
        ("r2", [3.0, 3.0], [1.0, 2.0]),
        ("r2", [3.0], [3.0]),
        ("log_loss", [0], [[np.nan, 0.5]]),
        ("mae", [], []),
    ],
)
def test_what_is_not_defined_is_nan_and_no_exception(name, target, output):
    assert np.isnan(METRICS[name](np.array(target), np.array(output)))


def bias(target, output):
    """Mean error of the values."""
    return float((output - target).mean())


def test_a_metric_of_ones_own_is_named_by_its_function_and_importable_by_its_path():
    metric = Metric(bias, better="lower")
    assert (metric.name, metric.definition) == ("bias", "Mean error of the values")
    assert metric.text == f"{__name__}:bias(better=lower)"
    assert read_metrics([metric.text, "auc"]) == (metric, METRICS["auc"])


def test_a_function_that_fails_leaves_the_client_without_the_number_and_warns():
    failing = Metric(lambda target, output: 1 / 0, better="lower", name="failing")
    with pytest.warns(UserWarning, match="metric 'failing' fails .* ZeroDivisionError"):
        assert np.isnan(value_of(failing, TWO, P2))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("aoc", "did you mean 'auc'"),
        (bias, "which direction is better"),
        (f"{__name__}:bias", "better=higher"),
        (f"{__name__}:bias(better=up)", "say 'higher' or 'lower'"),
    ],
)
def test_a_metric_that_cannot_be_told_is_refused_with_the_remedy(asked, told):
    with pytest.raises(InputError, match=told):
        read_metrics([asked])


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(InputError, match="two metrics are called 'auc'"):
        read_metrics(["auc", Metric(bias, better="lower", name="auc")])


@pytest.fixture
def frame():
    return ClientFrame(
        pd.DataFrame(
            {
                "client": ["a", "b", "c", "d"],
                "n_train": [9, 9, 9, 9],
                "n_validation": [0, 0, 0, 0],
                "n_test": [5, 5, 5, 0],
                "test_loss": [0.1, 0.2, 0.3, np.nan],
                "test_auc": [0.9, 0.7, np.nan, np.nan],
                "test_cost": [5.0, 7.0, 6.0, np.nan],
            }
        ),
        metrics={"cost": Metric(bias, better="lower", name="cost").meaning},
    )


def test_summaries_leave_out_clients_on_whose_examples_a_metric_is_not_defined(frame):
    found = frame.summary()
    assert found["mean_auc"] == pytest.approx(0.8)  # of a and b
    assert found["worst_auc"] == 0.7
    assert found["clients_without_auc"] == 1  # c; d has no example at all


def test_the_direction_of_a_metric_decides_who_is_worst(frame):
    assert frame.summary()["worst_cost"] == 7
    assert list(frame.worst(2, by="cost")["client"]) == ["b", "c"]
    assert frame.worst(1, by="auc")["client"].item() == "b"  # c has none


def test_a_model_that_diverged_has_no_mean_of_a_metric():
    rows = pd.DataFrame({"client": ["a", "b"], "n_train": 9, "n_validation": 0, "n_test": 5})
    rows = rows.assign(test_loss=[0.1, np.nan], test_auc=[0.9, np.nan])
    assert np.isnan(ClientFrame(rows).summary()["mean_auc"])
