"""ClientFrame: one row a client, and its summaries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedparity.errors import InputError
from fedparity.metrics import SUMMARIES, ClientFrame, summary_value

NAMES = ["ant", "bee", "cat", "dog"]


def rows(**columns: Any) -> pd.DataFrame:
    table: dict[str, Any] = {
        "client": NAMES,
        "n_train": [100, 100, 50, 50],
        "n_validation": [10, 10, 5, 5],
        "n_test": [40, 20, 20, 20],
        "train_loss": [0.1, 0.2, 0.3, 0.4],
        "validation_loss": [0.2, 0.3, 0.4, 0.5],
        "validation_accuracy": [0.8, 0.7, 0.6, 0.5],
        "test_loss": [0.3, 0.4, 0.5, 0.6],
        "test_accuracy": [0.9, 0.8, 0.7, 0.6],
        "test_lstar": [0.4, 0.4, 0.4, 0.4],
    }
    return pd.DataFrame({**table, **columns})


def test_the_summary_of_the_fixture():
    summary = ClientFrame(rows()).summary()
    expected = {
        "mean_accuracy": 75,
        "pooled_accuracy": 78,  # (40*90 + 20*80 + 20*70 + 20*60) / 100
        "worst_accuracy": 60,
        "worst5_accuracy": 60,
        "worst10_accuracy": 60,
        "best5_accuracy": 90,
        "best10_accuracy": 90,
        "accuracy_variance": 125,
        "accuracy_weighted_variance": 136,  # .4*144 + .2*4 + .2*64 + .2*324
        "accuracy_std": math.sqrt(125),
        "accuracy_cv": 0.149071,
        "accuracy_angle": 8.478713,
        "accuracy_kl": 0.011180,
        "accuracy_jain": 0.978261,
        "accuracy_gini": 0.083333,
        "accuracy_parity_gap": 30,
        "mean_loss": 0.45,
        "pooled_loss": 0.42,  # .4*.3 + .2*(.4 + .5 + .6)
        "worst_loss": 0.6,
        # losses 0.3, 0.4, 0.5, 0.6: squares of deviations add up to 0.05
        "loss_variance": 0.0125,
        "loss_variance_sample": 0.05 / 3,
        # gaps -0.1, 0, 0.1, 0.2: mean 0.05, squares of deviations add up to 0.05
        "mean_gap": 0.05,
        "gap_variance": 0.05 / 3,
        "gap_variance_pop": 0.0125,
        "max_gap": 0.2,
        "min_gap": -0.1,
        "faa": 0.3,
        "gain_share": 0.25,
        "mean_benefit": 0.025,
        "clients": 4,
        "clients_without_validation": 0,
        "clients_without_test": 0,
        "clients_without_lstar": 0,
    }
    assert summary.to_dict() == pytest.approx(expected, abs=5e-7)
    assert summary.name == "test"


def test_the_order_of_the_clients_does_not_matter():
    frame = rows()
    turned = ClientFrame(frame.iloc[::-1]).summary()
    assert turned.to_dict() == pytest.approx(ClientFrame(frame).summary().to_dict())


def test_every_summary_has_a_definition_and_a_direction():
    for name, summary in SUMMARIES.items():
        assert "\n" not in summary.definition
        assert len(summary.definition) > 10
        assert (summary.better is None) == name.startswith("clients")


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        # lift the worst client: what is better when higher rises, what is better when lower falls
        (name, summary.column, {"accuracy": 0.69, "loss": 0.51, "gap": -0.01}[summary.column])
        for name, summary in SUMMARIES.items()
        if summary.better is not None and "best" not in name and name != "min_gap"
    ],
)
def test_directions_agree_with_helping_the_worst_client(name, column, value):
    before = summary_value(ClientFrame(rows(test_gap=[-0.1, 0, 0.1, 0.2])), name)
    columns = {"test_gap": [-0.1, 0, 0.1, 0.2]}
    columns[f"test_{column}"] = [*rows(**columns)[f"test_{column}"][:3], value]
    after = summary_value(ClientFrame(rows(**columns)), name)
    assert after > before if SUMMARIES[name].better == "higher" else after < before


def test_other_splits_have_their_own_summaries():
    frame = ClientFrame(rows())
    validation = frame.summary("validation")
    assert validation["mean_accuracy"] == pytest.approx(65)
    assert validation["clients_without_validation"] == 0
    assert "clients_without_test" not in validation
    train = frame.summary("train")
    assert train["mean_loss"] == pytest.approx(0.25)
    assert train["pooled_loss"] == pytest.approx((10 + 20 + 15 + 20) / 300)
    assert "mean_accuracy" not in train


def test_summaries_of_columns_that_are_not_there_are_left_out():
    regression = ClientFrame(rows().drop(columns=["test_accuracy", "test_lstar"]))
    names = set(regression.summary().index)
    assert names == {
        "mean_loss",
        "pooled_loss",
        "worst_loss",
        "loss_variance",
        "loss_variance_sample",
        "clients",
        "clients_without_validation",
        "clients_without_test",
    }


def test_asking_for_a_summary_of_a_column_that_is_not_there_is_an_error():
    regression = ClientFrame(rows().drop(columns=["test_accuracy"]))
    with pytest.raises(InputError, match="worst_accuracy needs the column test_accuracy"):
        summary_value(regression, "worst_accuracy")
    with pytest.raises(InputError, match="not of validation"):
        summary_value(regression, "clients_without_test", split="validation")


def test_clients_without_validation_are_counted_whatever_is_summarised():
    frame = ClientFrame(rows(n_validation=[0, 5, 0, 5]))
    for split in ("train", "validation", "test"):
        assert frame.summary(split)["clients_without_validation"] == 2
        assert summary_value(frame, "clients_without_validation", split=split) == 2


def test_a_wrong_name_of_a_summary_gives_the_nearest():
    frame = ClientFrame(rows())
    with pytest.raises(InputError, match="did you mean 'worst_accuracy'"):
        summary_value(frame, "worst_acuracy")
    with pytest.raises(InputError, match="did you mean 'validation'"):
        summary_value(frame, "mean_loss", split="valdation")  # type: ignore[arg-type]


def test_summary_value_is_the_entry_of_the_summary():
    frame = ClientFrame(rows())
    for name, value in frame.summary().items():
        assert summary_value(frame, str(name)) == value


def test_a_client_without_test_examples_is_left_out_and_counted():
    nan = math.nan
    frame = ClientFrame(
        rows(
            n_test=[40, 20, 20, 0],
            test_accuracy=[0.9, 0.8, 0.7, nan],
            test_loss=[0.3, 0.4, 0.5, nan],
            test_lstar=[0.4, 0.4, 0.4, nan],
        )
    )
    summary = frame.summary()
    assert summary["clients"] == 4
    assert summary["clients_without_test"] == 1
    assert summary["clients_without_lstar"] == 0
    assert summary["mean_accuracy"] == pytest.approx(80)
    assert summary["gap_variance"] == pytest.approx(0.01)  # gaps -0.1, 0, 0.1
    assert summary.notna().all()


def test_a_client_without_known_optimum_is_left_out_of_the_gaps_only():
    summary = ClientFrame(rows(test_lstar=[0.4, 0.4, 0.4, math.nan])).summary()
    assert summary["clients_without_lstar"] == 1
    assert summary["max_gap"] == pytest.approx(0.1)
    assert summary["worst_loss"] == pytest.approx(0.6)


def test_a_loss_that_diverged_is_not_left_out():
    frame = ClientFrame(rows(test_loss=[0.3, 0.4, 0.5, math.nan]))
    summary = frame.summary()
    for name in ("mean_loss", "worst_loss", "gap_variance", "max_gap", "gain_share"):
        assert math.isnan(summary[name])
    assert summary["mean_accuracy"] == pytest.approx(75)
    assert frame.worst(by="loss")["client"].tolist() == ["dog"]


def test_an_infinite_loss_is_summarised_without_a_warning():
    summary = ClientFrame(rows(test_loss=[0.3, 0.4, 0.5, math.inf])).summary()
    assert summary["worst_loss"] == summary["mean_loss"] == summary["max_gap"] == math.inf
    assert math.isnan(summary["loss_variance"])


def test_a_single_client_has_no_sample_variance():
    summary = ClientFrame(rows().head(1)).summary()
    assert math.isnan(summary["gap_variance"])
    assert math.isnan(summary["loss_variance_sample"])
    assert summary["gap_variance_pop"] == summary["accuracy_variance"] == 0
    assert summary["accuracy_jain"] == 1
    assert summary.drop(["gap_variance", "loss_variance_sample"]).notna().all()


def test_no_client_with_test_examples_gives_nan_without_a_warning():
    summary = ClientFrame(rows(n_test=[0] * 4)).summary()
    assert summary["clients_without_test"] == 4
    assert summary[[name for name in summary.index if "clients" not in name]].isna().all()


def test_all_accuracies_zero_is_even():
    summary = ClientFrame(rows(test_accuracy=[0.0] * 4)).summary()
    assert summary["accuracy_gini"] == summary["accuracy_cv"] == summary["accuracy_kl"] == 0
    assert summary["accuracy_jain"] == 1


def test_gaps_are_computed_where_loss_and_optimum_are_given():
    frame = ClientFrame(rows())
    assert frame.by_client["test_gap"].tolist() == pytest.approx([-0.1, 0, 0.1, 0.2])
    assert "validation_gap" not in frame.by_client


def test_gaps_that_are_given_are_kept():
    frame = ClientFrame(rows(test_gap=[1.0, 2.0, 3.0, 4.0]))
    assert frame.by_client["test_gap"].tolist() == [1, 2, 3, 4]


def test_neither_the_given_table_nor_the_kept_one_can_be_changed_from_outside():
    given = rows()
    frame = ClientFrame(given)
    assert "test_gap" not in given
    seen = frame.by_client
    seen["test_loss"] = 0.0
    given["test_loss"] = 0.0
    assert summary_value(frame, "mean_loss") == pytest.approx(0.45)


def test_names_of_clients_are_text_and_other_columns_are_kept():
    frame = ClientFrame(rows(client=[3, 1, 2, 0], country=["a", "b", "c", "d"]))
    assert frame.by_client["client"].tolist() == ["3", "1", "2", "0"]
    assert frame.by_client["country"].tolist() == ["a", "b", "c", "d"]
    assert frame.by_client.index.tolist() == [0, 1, 2, 3]
    assert len(frame) == 4
    assert "ClientFrame of 4 clients" in repr(frame)


def test_the_worst_clients_come_worst_first():
    frame = ClientFrame(rows(test_loss=[0.9, 0.4, 0.5, 0.6]))
    assert frame.worst(2)["client"].tolist() == ["dog", "cat"]
    assert frame.worst(2, by="loss")["client"].tolist() == ["ant", "dog"]
    assert frame.worst(9).shape[0] == 4
    assert frame.worst(split="train")["client"].tolist() == ["dog"]
    with pytest.raises(InputError, match="unknown order of clients"):
        frame.worst(by="lstar")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="validation_gap"):
        frame.worst(by="gap", split="validation")


def test_equally_bad_clients_keep_their_order():
    frame = ClientFrame(rows(test_accuracy=[0.5, 0.9, 0.5, 0.5]))
    assert frame.worst(2)["client"].tolist() == ["ant", "cat"]


def test_clients_with_few_test_examples_are_flagged():
    frame = ClientFrame(rows(n_test=[40, 3, 20, 0]))
    assert frame.few(20)["client"].tolist() == ["bee", "dog"]
    assert frame.few(10, split="validation")["client"].tolist() == ["cat", "dog"]


def test_comparison_finds_levelling_down():
    baseline = ClientFrame(rows())  # gaps -0.1, 0, 0.1, 0.2
    levelled = ClientFrame(rows(test_loss=[0.6, 0.6, 0.6, 0.6])).compare(baseline)
    assert levelled.levelling is not None
    assert levelled.levelling.verdict == "levelling_down"
    assert levelled.levelling.dB == pytest.approx(0.3)
    assert (levelled.pareto.worse, levelled.pareto.equal) == (0.75, 0.25)
    assert levelled.clients == 4


def test_comparison_finds_a_genuine_gain():
    found = ClientFrame(rows(test_loss=[0.3, 0.4, 0.5, 0.5])).compare(ClientFrame(rows()))
    assert found.levelling is not None
    assert found.levelling.verdict == "genuine"
    assert found.pareto.better == 0.25


def test_comparison_matches_clients_by_name():
    frame = ClientFrame(rows())
    found = frame.compare(ClientFrame(rows().sample(frac=1, random_state=0)), by="accuracy")
    assert found.pareto.equal == 1
    assert found.levelling is not None
    assert found.levelling.dV == pytest.approx(0)


def test_comparison_by_accuracy_takes_a_tolerance_in_percent():
    better = ClientFrame(rows(test_accuracy=[0.9, 0.8, 0.72, 0.65]))
    assert better.compare(ClientFrame(rows()), by="accuracy").pareto.better == 0.5
    assert better.compare(ClientFrame(rows()), by="accuracy", tol=3).pareto.better == 0.25


def test_comparison_without_gaps_is_by_loss_only():
    frame = ClientFrame(rows().drop(columns="test_lstar"))
    found = frame.compare(ClientFrame(rows()))
    assert found.levelling is None
    assert found.pareto.equal == 1


def test_comparison_without_a_known_optimum_has_no_verdict():
    frame = ClientFrame(rows(test_lstar=[math.nan] * 4))
    assert frame.compare(frame).levelling is None


def test_comparison_leaves_out_clients_without_examples():
    frame = ClientFrame(rows(n_test=[40, 20, 20, 0], test_loss=[0.3, 0.4, 0.5, math.nan]))
    found = frame.compare(ClientFrame(rows()))
    assert found.clients == 3
    assert found.pareto.equal == 1


def test_other_clients_cannot_be_compared():
    other = ClientFrame(rows(client=["ant", "bee", "cat", "eel"]))
    with pytest.raises(InputError, match="'dog' is in one of the two"):
        ClientFrame(rows()).compare(other)
    with pytest.raises(InputError, match="unknown order of clients"):
        ClientFrame(rows()).compare(other, by="n")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"client": ["ant", "ant", "cat", "dog"]}, "client 'ant' has more than one row"),
        ({"test_accuracy": [0.9, 80.0, 0.7, 0.6]}, "test_accuracy of client 'bee' is 80: acc"),
        ({"n_test": [1, 1, -1, 1]}, "n_test of client 'cat' is -1"),
        ({"n_train": [1, 1, np.nan, 1]}, "n_train of client 'cat' is nan"),
    ],
)
def test_a_wrong_row_is_refused_by_the_name_of_its_client(columns, message):
    with pytest.raises(InputError, match=message):
        ClientFrame(rows(**columns))


def test_rounding_does_not_make_an_accuracy_too_high():
    frame = ClientFrame(rows(test_accuracy=[np.nextafter(np.float32(1), np.float32(2))] * 4))
    assert summary_value(frame, "mean_accuracy") == pytest.approx(100)


def test_a_frame_without_clients_or_sizes_is_refused():
    with pytest.raises(InputError, match="columns n_train, n_test"):
        ClientFrame(rows().drop(columns=["n_train", "n_test"]))
    with pytest.raises(InputError, match="at least one client"):
        ClientFrame(rows().head(0))
