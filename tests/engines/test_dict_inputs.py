"""Inputs that are a dict of tensors: a small transformer of ids and mask, through the whole run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedparity as fp
from fedparity.data.inputs import packed
from fedparity.errors import InputError
from fedparity.learning.unpacking import unpacked
from fedparity.records.export import shape_of, to_onnx, to_pt2
from fedparity.records.prediction import example_of
from fedparity.records.result import Result

WORDS, LENGTH = 12, 6


class Reader(nn.Module):
    """One layer of attention over words, of which padding is masked, and the mean of the rest."""

    def __init__(self, shape: dict[str, tuple[int, ...]], outputs: int) -> None:
        super().__init__()
        assert shape == {"ids": (LENGTH,), "mask": (LENGTH,)}
        self.embed = nn.Embedding(WORDS, 8)
        self.read, self.out = nn.Linear(8, 24), nn.Linear(8, outputs)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        there = x["mask"].to(self.out.weight.dtype)
        query, key, value = self.read(self.embed(x["ids"])).chunk(3, -1)
        looks = query @ key.mT / 8**0.5 + (1 - there)[..., None, :] * -1e4
        words = (looks.softmax(-1) @ value) * there[..., None]
        found: Tensor = self.out(words.sum(-2) / there.sum(-1, keepdim=True))
        return found


def texts(seed: int = 0, junk: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return texts padded with ``junk``, and whether word 1 stands in them."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, WORDS, (60, LENGTH))
    mask = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, (60, 1))
    y = ((ids == 1) & mask).any(1).astype(int)
    return {"ids": np.where(mask, ids, junk), "mask": mask}, y


def federation(junk: int = 0) -> fp.Federation:
    x, y = texts(junk=junk)
    return fp.Federation.from_arrays(x, y, np.repeat(["a", "b", "c"], 20), outputs=2)


def experiment(engine: str = "loop", algorithm: str = "fedavg", junk: int = 0) -> fp.Experiment:
    return fp.Experiment(
        federation(junk),
        Reader,
        algorithm,
        rounds=3,
        solver=fp.Solver(lr=0.5, steps=3, batch=5),
        lstar="best_validation(rounds=2)",
        engine=engine,
        dtype="float64",
    )


@pytest.mark.parametrize("algorithm", ["fedavg", "eagle", "fedfv", "ditto"])
def test_both_engines_carry_them_alike(algorithm):
    loop, stacks = (experiment(engine, algorithm).run() for engine in ("loop", "vmap"))
    for mine, theirs in zip(loop.model().parameters(), stacks.model().parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
    start = experiment().setup.module.embed.weight
    assert not torch.equal(loop.model().embed.weight, start)


def test_it_is_what_training_on_the_dict_itself_gives():
    made = experiment()
    solver = fp.Solver(lr=0.5, steps=1)
    result = fp.Experiment(
        made.federation, Reader, rounds=1, solver=solver, lstar="none", dtype="float64", cohort=1
    )
    module, client = result.setup.module, int(result.sample(1)[0])
    x, y = made.federation.train.client(client)
    given = {"ids": x[:, :LENGTH], "mask": x[:, LENGTH:]}
    nn.functional.cross_entropy(module(given), y).backward()
    wanted = {n: p.detach() - 0.5 * p.grad for n, p in module.named_parameters()}
    for name, found in result.run().model().named_parameters():
        torch.testing.assert_close(found, wanted[name], rtol=1e-9, atol=1e-12)


def test_what_the_mask_hides_changes_nothing():
    clean, junk = experiment().run(), experiment(junk=7).run()
    for mine, theirs in zip(clean.model().parameters(), junk.model().parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_prediction_takes_a_dict_also_from_the_run_directory(tmp_path, capsys):
    done = experiment().run(tmp_path / "run")
    x, _ = texts(seed=1)
    said = done.predict_proba(x)
    with torch.no_grad():
        given = {name: torch.from_numpy(values.astype(np.int64)) for name, values in x.items()}
        wanted = done.model()(given).softmax(-1).numpy()
    np.testing.assert_allclose(said.to_numpy(), wanted, rtol=1e-12)
    loaded = Result.load(tmp_path / "run")
    again = loaded.model(factory=Reader)
    with torch.no_grad():
        np.testing.assert_allclose(again(given).softmax(-1).numpy(), wanted, rtol=1e-12)
        given = {"ids": x["ids"], "mask": x["mask"].astype(np.float32)}
        np.testing.assert_allclose(again(given).softmax(-1).numpy(), wanted, rtol=1e-12)
    assert "data:" not in capsys.readouterr().err  # no advice on columns that a user never made
    backwards = {"mask": x["mask"], "ids": x["ids"]}
    np.testing.assert_array_equal(done.predict_proba(backwards), said)
    for wrong, why in (
        ({"ids": x["ids"]}, "'mask' is missing"),
        ({**x, "words": x["ids"]}, "words"),
        ({**x, "ids": x["ids"][:, :3]}, "has shape"),
        ({**x, "ids": x["ids"] + 0.5}, "holds fractions"),
    ):
        with pytest.raises(InputError, match=why):
            done.predict(wrong)
    with pytest.raises(InputError, match="give a dict of 'ids', 'mask'"):
        done.predict(x["ids"])


def test_an_exported_model_takes_the_dict(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    done = experiment().run(tmp_path / "run")
    x = {name: values.astype(np.int64) for name, values in texts(seed=1)[0].items()}
    tensors = {name: torch.from_numpy(values) for name, values in x.items()}
    with torch.no_grad():
        wanted = done.model()(tensors).numpy()
    example = example_of(done.settings["record"], done.model())
    to_onnx(done.model(), example, tmp_path / "model.onnx")
    (said,) = runtime.InferenceSession(tmp_path / "model.onnx").run(None, x)
    np.testing.assert_allclose(said, wanted, atol=1e-6)
    to_pt2(done.model(), example, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    np.testing.assert_allclose(program(tensors).detach().numpy(), wanted, atol=1e-12)
    assert shape_of(example) == {"ids": [LENGTH], "mask": [LENGTH]}


class Branching(Reader):
    """A model that looks at its inputs before it decides what to do."""

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        return super().forward(x) * (2 if bool(x["ids"].sum() > 0) else 1)


def test_a_model_that_torch_cannot_export_is_told_in_one_line(tmp_path):
    made, shape = torch.zeros(2, LENGTH, dtype=torch.int64), {"ids": (LENGTH,), "mask": (LENGTH,)}
    with pytest.raises(InputError, match=r"^torch cannot export this model") as caught:
        to_pt2(Branching(shape, 2), {"ids": made, "mask": made + 1}, tmp_path / "model.pt2")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_packing_is_undone_by_unpacking():
    x = {"ids": np.arange(6).reshape(3, 2), "size": np.asarray([0.5, 1.5, 2.5])}
    values, fields = packed(x)
    found = unpacked(torch.from_numpy(values), fields)
    assert found["ids"].dtype == torch.int64
    np.testing.assert_array_equal(found["ids"], x["ids"])
    np.testing.assert_array_equal(found["size"], x["size"][:, None])


@pytest.mark.parametrize(
    ("x", "why"),
    [
        ({}, "empty dict"),
        ({"a": np.zeros((3, 2)), "b": np.zeros((2, 2))}, "'a' has 3, 'b' has 2"),
        ({"a": np.full((3, 2), 1 << 24), "b": np.zeros((3, 2))}, "not exact"),
        ({"a": np.asarray([["x"], ["y"]])}, "input 'a'"),
    ],
)
def test_what_cannot_be_packed_is_refused(x, why):
    with pytest.raises(InputError, match=why):
        packed(x)
