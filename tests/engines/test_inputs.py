"""Integer inputs reach a model that takes them, through every engine and Flower alike."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedparity as fp
from fedparity.testing import Bench

TEXTS = {"a": "to be or not to be that is", "b": "the question whether tis nobler"}


class Letters(nn.Module):
    """Tells the next letter from the one before it."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(outputs, 4)
        self.out = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.embed(x))
        return found


def letters() -> fp.Federation:
    return fp.Federation.from_sequences(TEXTS, length=4)


def experiment(federation, model, engine="loop", algorithm="fedavg", **more) -> fp.Experiment:
    known = {"lstar": "none", "engine": engine, "rounds": 3, **more}
    return fp.Experiment(
        federation, model, algorithm, solver=fp.Solver(lr=0.5, steps=2, batch=3), **known
    )


@pytest.mark.parametrize("algorithm", ["eagle(lam=0.1)", "fedfv"])
def test_an_embedding_trains_alike_on_both_engines(algorithm):
    lstar = "best_validation(rounds=2)"
    loop, vmap = (
        Bench(experiment(letters(), Letters, engine, algorithm, dtype="float64", lstar=lstar))
        for engine in ("loop", "vmap")
    )
    start = loop.server.x
    for _ in range(3):
        loop.advance()
        vmap.advance()
    assert not torch.equal(loop.server.x, start)
    torch.testing.assert_close(loop.server.x, vmap.server.x, rtol=0, atol=1e-12)


def test_next_tokens_are_learned_and_the_run_is_read_again(tmp_path):
    made = experiment(letters(), Letters, rounds=40, evaluate_every=40)
    result = made.run(out=tmp_path / "run")
    untrained = math.log(len(set("".join(TEXTS.values()))))
    assert result.clients["train_loss"].mean() < untrained - 0.3
    assert result.settings["task"] == "next_token"
    again = fp.load_model(tmp_path / "run", factory=Letters)
    assert torch.equal(again.embed.weight, result.model().embed.weight)


def test_a_model_of_matrix_products_is_given_integers_as_numbers():
    x = np.random.default_rng(0).integers(0, 9, (12, 3))
    y, client = np.arange(12) % 2, np.repeat([0, 1], 6)
    whole = fp.Federation.from_arrays(x, y, client)
    assert whole.train.x.dtype == torch.int64
    numbers = fp.Federation.from_arrays(x.astype(np.float32), y, client)
    one, other = (experiment(f, "linear") for f in (whole, numbers))
    assert one.federation.train.x.dtype == torch.float32
    assert one.federation.fingerprint == other.federation.fingerprint


def test_a_token_beyond_the_embedding_is_told_in_one_line():
    federation = fp.Federation.from_sequences({"a": list(range(30))}, length=4)
    small = dataclasses.replace(federation, outputs=30)
    with pytest.raises(fp.InputError, match="the model does not fit inputs"):
        experiment(small, lambda shape, outputs: Letters(shape, 1))


def test_a_stand_in_of_sites_that_read_integers_has_integers():
    census = pytest.importorskip("fedparity.flower.census", reason="Flower is not installed")
    hello = census.Hello(
        "a", 9, 0, 0, (4,), (4,), 5, "tokens", (), (), "f", "m", 1, "3", {}, whole=True
    )
    split = experiment(census.stand_in([hello]), Letters).federation.train
    assert (split.x.dtype, split.y.dtype) == (torch.int64, torch.int64)
