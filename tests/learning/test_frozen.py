"""Frozen parameters stay in the module; what is not frozen trains, and alone travels."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fedparity as fp
from fedparity.engines.kernels.chain import Chain
from fedparity.learning.frozen import Still, freeze
from fedparity.testing import Bench


def normed(shape: tuple[int, ...], outputs: int) -> nn.Module:
    body = nn.Sequential(nn.Linear(shape[0], 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.ReLU())
    return nn.Sequential(body, nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, outputs))


def experiment(federation, model=normed, algorithm="fedavg", **more) -> fp.Experiment:
    known = {"trainable": "1.*, 3.*", "lstar": "none", "dtype": "float64", "rounds": 2, **more}
    solver = fp.Solver(lr=0.3, epochs=1, batch=3)
    return fp.Experiment(federation, model, algorithm, solver=solver, **known)


@pytest.mark.parametrize("algorithm", ["scaffold(option=1)", "fedpgvc(layers=1)", "fedfv"])
def test_the_engines_agree_on_what_is_left_to_train(unlike, algorithm):
    loop, vmap = (
        Bench(experiment(unlike, algorithm=algorithm, engine=engine)) for engine in ("loop", "vmap")
    )
    for made in (loop, vmap):
        made.advance()
        made.advance()
    assert len(loop.server.x) == 5 * 4 + 4 + 4 * 3 + 3
    assert len(loop.server.buffers) == 0
    torch.testing.assert_close(loop.server.x, vmap.server.x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_what_is_frozen_is_the_same_to_the_bit_after_a_run(unlike, engine, tmp_path):
    made = experiment(unlike, engine=engine)
    before = {name: t.clone() for name, t in made.setup.module.state_dict().items()}
    result = made.run(out=tmp_path / "run")
    after = result.model().state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"1.weight", "1.bias", "3.weight", "3.bias"}
    again = fp.load_model(tmp_path / "run", factory=normed).state_dict()
    assert all(torch.equal(again[name], after[name]) for name in after)
    assert result.settings["trainable"] == "1.*, 3.*"


def test_a_head_on_a_frozen_body_is_a_model_of_the_body_s_features(unlike):
    body, head = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).double(), nn.Linear(4, 3).double()
    frozen = experiment(unlike, nn.Sequential(body, head), trainable="1.*", engine="loop")
    assert Chain.of(frozen.setup) is None
    with torch.no_grad():
        splits = {
            name: replace(split, x=body(split.x))
            for name, split in (("train", unlike.train), ("test", unlike.test))
        }
    features = replace(unlike, validation=splits["train"], **splits)
    plain = experiment(features, head, trainable=None, engine="loop")
    ends = []
    for made in (Bench(frozen), Bench(plain)):
        made.advance()
        ends.append(made.server.x)
    torch.testing.assert_close(*ends, rtol=0, atol=1e-12)


def test_a_module_is_trained_from_the_parameters_that_it_has(unlike):
    module = normed(unlike.shape, 3)
    before = copy.deepcopy(module.state_dict())
    one, other = (experiment(unlike, module, seed=seed, trainable=None) for seed in (0, 1))
    for made in (one, other):
        found = made.setup.module.state_dict()
        assert all(torch.equal(found[name], before[name].to(found[name])) for name in before)
    experiment(unlike, module).run()
    assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)


def test_a_model_starts_with_the_tensors_of_a_file(unlike, tmp_path):
    source = normed(unlike.shape, 3)
    body = {name: t for name, t in source.state_dict().items() if name.startswith("0.")}
    save_file(body, tmp_path / "body.safetensors")
    made = experiment(unlike, pretrained=tmp_path / "body.safetensors")
    assert torch.equal(made.setup.module[0][0].weight, source[0][0].weight.double())
    assert made.describe()["pretrained"] == str(tmp_path / "body.safetensors")


def test_a_run_does_not_go_on_with_another_frozen_body(unlike, tmp_path):
    def body() -> dict[str, torch.Tensor]:
        made = normed(unlike.shape, 3).state_dict()
        return {name: t for name, t in made.items() if name.startswith("0.")}

    file = tmp_path / "body.safetensors"
    save_file(body(), file)
    experiment(unlike, pretrained=file).run(out=tmp_path / "run")
    assert experiment(unlike, pretrained=file, rounds=3).resume(tmp_path / "run").rounds == 3
    save_file(body(), file)
    with pytest.raises(fp.InputError, match="its digest of what is frozen is"):
        experiment(unlike, pretrained=file, rounds=4).resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"0.0.weigth": torch.zeros(5, 3)}, "did you mean '0.0.weight'"),
        ({"0.0.weight": torch.zeros(2, 2)}, "leave it out of the file"),
        ({"0.0.weight": torch.zeros(5, 3)}, "lacks '0.0.bias', which is not trained"),
        (None, "there is no file"),
    ],
)
def test_a_file_that_does_not_fit_is_told_in_one_line(unlike, tensors, message, tmp_path):
    if tensors is not None:
        save_file(tensors, tmp_path / "some.safetensors")
    with pytest.raises(fp.InputError, match=message):
        experiment(unlike, pretrained=tmp_path / "some.safetensors")


def test_a_pattern_that_names_nothing_is_told(unlike):
    with pytest.raises(fp.InputError, match=r"no parameter is called 'head\.\*'"):
        experiment(unlike, trainable="head.*")


def test_only_layers_that_are_wholly_frozen_stay_still():
    made = freeze(normed((3,), 2), "0.0.bias, 3.*").train()
    kinds = [type(layer).__name__ for layer in made[0]]
    assert kinds == ["Linear", "FrozenBatchNorm1d", "Dropout", "ReLU"]
    assert [layer.training for layer in made[0]] == [True, False, True, True]
    assert isinstance(copy.deepcopy(made)[0][1], Still)


def plain(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], outputs))


def test_a_pretrained_file_is_recorded_and_another_of_its_name_is_refused(unlike, tmp_path):
    file = tmp_path / "body.safetensors"
    body = {"0.weight": torch.ones(3, 3, dtype=torch.float64)}
    save_file(body, file)
    known = {"model": plain, "pretrained": file, "trainable": None, "engine": "loop"}
    result = experiment(unlike, **known).run(out=tmp_path / "run")
    assert result.record["pretrained"] == hashlib.sha256(file.read_bytes()).hexdigest()
    save_file({"0.weight": torch.zeros(3, 3, dtype=torch.float64)}, file)
    with pytest.raises(fp.InputError, match="sha256 of the pretrained file"):
        experiment(unlike, **{**known, "rounds": 3}).resume(tmp_path / "run")
    save_file(body, file)
    assert experiment(unlike, **{**known, "rounds": 3}).resume(tmp_path / "run").rounds == 3
