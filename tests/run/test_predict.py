"""A trained model put to use: predictions for new rows, and files for other programs."""

import numpy as np
import pandas as pd
import pytest
import torch

import fedparity as fp


def patients(rows=120):
    rng = np.random.default_rng(5)
    age, sex = rng.normal(60, 10, rows), rng.choice(["f", "m"], rows)
    ill = (age + 5 * (sex == "m") + rng.normal(size=rows) * 5) > 62
    frame = pd.DataFrame({"age": age, "sex": sex, "ill": np.where(ill, "yes", "no")})
    frame.loc[::10, "age"] = np.nan
    return frame.assign(hospital=np.repeat(["a", "b", "c"], rows // 3))


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    data = fp.Federation.from_frame(patients(), client="hospital", target="ill")
    made = fp.Experiment(data, "linear", rounds=30, solver=fp.Solver(lr=0.5), lstar="none")
    return made.run(tmp_path_factory.mktemp("predict") / "run")


def test_a_table_is_prepared_as_in_training_and_classes_have_their_names(table_run):
    rows = patients()
    said = table_run.predict_proba(rows[["sex", "age"]])  # columns in another order
    assert list(said.columns) == ["no", "yes"]
    np.testing.assert_allclose(said.sum(axis=1), 1)
    guesses = table_run.predict(rows)
    assert list(guesses) == list(said.idxmax(axis=1))
    assert np.mean(guesses == rows["ill"]) > 0.8


def test_a_run_that_is_read_back_predicts_the_same(table_run):
    read = fp.Result.load(table_run.path)
    pd.testing.assert_frame_equal(
        read.predict_proba(patients()), table_run.predict_proba(patients())
    )


def test_predictions_of_rows_agree_with_those_that_the_run_kept(table_run):
    data = fp.Federation.from_frame(patients(), client="hospital", target="ill")
    kept = table_run.predictions[table_run.predictions["split"] == "test"]
    said = table_run.predict_proba(data.test.x)
    np.testing.assert_allclose(kept[["output_0", "output_1"]], said, atol=1e-6)


def test_the_model_takes_what_the_federation_gave_and_numpy(table_run):
    x = np.zeros((3, 2))  # float64, where the model has float32
    with torch.no_grad():
        one = table_run.model()(torch.from_numpy(x))
        two = table_run.model()(x)
        three = fp.Result.load(table_run.path).model()(x.astype(np.float32))
    assert torch.equal(one, two)
    assert torch.equal(one, three)


def test_a_regression_predicts_values_and_has_no_probabilities():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    data = fp.Federation.from_arrays(x, x @ [2.0, -1.0], np.arange(90) % 3)
    found = fp.Experiment(data, "linear", rounds=80, solver=fp.Solver(lr=0.2), lstar="none").run()
    unit = [[1.0, 0.0], [0.0, 1.0]]
    for each in (unit, pd.DataFrame(unit), torch.tensor(unit)):  # a frame's array is read-only
        np.testing.assert_allclose(found.predict(each), [2, -1], atol=0.05)
    with pytest.raises(fp.InputError, match="no probabilities of classes"):
        found.predict_proba(x)


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.zeros((2, 5)), r"inputs of shape \(5,\), where the model was trained with \(2,\)"),
        (np.full((2, 2), np.nan), "an input is not finite"),
        (pd.DataFrame({"age": [50.0]}), "no column 'sex'"),
        (np.zeros((0, 2)), "no inputs to predict from"),
    ],
)
def test_inputs_that_do_not_fit_are_told_in_one_line(table_run, x, told):
    with pytest.raises(fp.InputError, match=told):
        table_run.predict(x)


def test_who_trained_alone_has_no_shared_model():
    data = fp.Federation.from_frame(patients(), client="hospital", target="ill")
    found = fp.Experiment(data, "linear", "local", rounds=1, lstar="none").run()
    with pytest.raises(fp.InputError, match="no shared model"):
        found.predict(patients())


def test_exported_models_give_the_outputs_of_torch(table_run, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    from fedparity.records.export import to_onnx, to_pt2
    from fedparity.records.model import load_model

    module, x = load_model(table_run.path), torch.randn(7, 2)
    with torch.no_grad():
        expected = module(x).numpy()
    to_onnx(module, torch.zeros(2, 2), tmp_path / "model.onnx")
    (said,) = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x.numpy()})
    np.testing.assert_allclose(said, expected, atol=1e-5)
    to_pt2(module, torch.zeros(2, 2), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    np.testing.assert_allclose(program(x).detach().numpy(), expected, atol=1e-6)
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "model.pt2"}


@pytest.mark.parametrize("algorithm", ["ditto(lam=0.1)", "finetune(steps=3)", "local"])
def test_a_client_has_its_own_model_which_predicts_as_it_was_judged(algorithm, tmp_path):
    data = fp.Federation.from_frame(patients(), client="hospital", target="ill")
    made = fp.Experiment(
        data, "linear", algorithm, rounds=5, solver=fp.Solver(lr=0.5), lstar="none"
    )
    memory, read = made.run(tmp_path / "run"), fp.Result.load(tmp_path / "run")
    kept = memory.predictions.query("split == 'test' and model == 'personal'")
    weights = []
    for place, client in enumerate(data.names):
        x, _ = data.test.client(place)
        expected = kept.loc[kept["client"] == client, ["output_0", "output_1"]]
        for result in (memory, read):
            np.testing.assert_allclose(result.predict_proba(x, client=client), expected, atol=1e-6)
        weights.append(read.model(client).state_dict()["out.weight"])
    assert not torch.equal(weights[0], weights[1])


def test_a_model_of_a_client_that_is_not_there_is_refused_with_the_reason(table_run, tmp_path):
    with pytest.raises(fp.InputError, match="no models of clients: clients have none here"):
        table_run.model("a")
    data = fp.Federation.from_frame(patients(), client="hospital", target="ill")
    made = fp.Experiment(data, "linear", "ditto", rounds=1, lstar="none")
    run = made.run(tmp_path / "run")
    with pytest.raises(fp.InputError, match="unknown client 'd'"):
        run.model("d")
    file = tmp_path / "run" / "personal.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(fp.InputError, match="damaged"):
        fp.Result.load(tmp_path / "run").model("a")


def test_models_of_clients_are_left_out_on_wish(tmp_path):
    data = fp.Federation.from_frame(patients(), client="hospital", target="ill")
    settings = {"rounds": 1, "lstar": "none", "personal": False}
    fp.Experiment(data, "linear", "ditto", **settings).run(tmp_path / "run")
    assert not (tmp_path / "run" / "personal.safetensors").exists()
