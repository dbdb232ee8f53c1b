"""The examples of models run at small settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fedparity as fp

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_next_character_is_learned():
    texts = {f"role {k}": "to be or not to be " * 8 for k in range(3)}
    federation = fp.Federation.from_sequences(texts, length=10)
    result = example("next_character").main(federation, rounds=3, hidden=8)
    assert np.isfinite(result.clients["test_loss"]).all()


@pytest.mark.filterwarnings("ignore:eagle")
def test_only_the_head_is_sent(capsys):
    found = example("frozen_backbone").main(rounds=2, trained=10)
    # channels 8: 80 + 1,168 + 2,320 of convolutions, 16 x 64 + 64, and 64 x 10 + 10
    assert capsys.readouterr().out.count("650 of 5306 parameters") == 2
    random, pretrained = (found[name].summary()["mean_loss"] for name in ("random", "pretrained"))
    assert pretrained < random


@pytest.mark.filterwarnings("ignore:.* diverged")  # BatchNorm of three examples
def test_fedavg_and_fedbn_differ_on_resnet18():
    rng = np.random.default_rng(0)
    federation = fp.Federation.from_arrays(
        rng.standard_normal((8, 3, 8, 8)).astype(np.float32),
        np.tile([0, 1], 4),
        np.repeat([0, 1], 4),
        part=["train", "train", "train", "test"] * 2,
    )
    found = example("cifar100_fedbn").main(federation, rounds=2)
    losses = [result.clients["test_loss"].to_numpy() for result in found.values()]
    assert not np.allclose(*losses)


def test_equal_losses_harm_the_easy_client_and_equal_gaps_do_not(capsys):
    found = example("loss_gap_parity").main()
    assert "test_gap" in capsys.readouterr().out
    loss, gap = (
        {name.partition("(")[0]: result.clients[column] for name, result in found.items()}
        for column in ("test_loss", "test_gap")
    )
    spread = {name: np.ptp(values) for name, values in loss.items()}
    assert spread["afl"] < 0.5 * min(spread["fedavg"], spread["eagle"])
    assert gap["afl"][0] > 2 * max(gap["fedavg"][0], gap["eagle"].max())
    assert np.ptp(gap["eagle"]) < 0.5 * np.ptp(gap["afl"])
