"""The same experiment over Flower's messages gives the simulator's bits, replies in any order."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

pytest.importorskip("flwr", reason="Flower is not installed")

from inprocess import Deployment, spoiled, vector

import fedparity as fp
from fedparity.parts import PARTS

pytestmark = pytest.mark.filterwarnings("ignore:eagle. clients of small gaps")


def check(deployment: Deployment) -> fp.Result:
    """Claim that both ways give the same parameters, numbers and server state."""
    deployed, simulated = deployment.run(), deployment.simulate()
    assert torch.equal(vector(deployed), vector(simulated))
    pd.testing.assert_frame_equal(deployed.history, simulated.history, check_exact=True)
    pd.testing.assert_frame_equal(deployed.clients, simulated.clients, check_exact=True)
    found, wanted = deployment.checkpoint(), deployment.checkpoint("simulated")
    kept = [name for name in wanted if not name.startswith("client")]
    assert [name for name in found if name != "received"] == kept
    for name in kept:
        assert torch.equal(found[name], wanted[name]), name
    return deployed


def normed(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(math.prod(shape), 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, outputs)
    )


def dropping(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(math.prod(shape), 4), nn.Dropout(0.5), nn.Linear(4, outputs))


@pytest.mark.filterwarnings("ignore:.*gives no privacy")
@pytest.mark.parametrize("part", sorted(PARTS))
def test_every_part_gives_the_bits_of_the_simulator(part, tmp_path):
    known = PARTS[part]()
    cohort = None if "full_participation" in known.needs else max(3, known.fewest)
    lstar = "best_validation(rounds=2)" if "lstar" in known.reads else "none"
    text = f"{part}(seeded=True)" if hasattr(known, "seeded") else part
    settings = {"algorithm": text, "cohort": cohort, "lstar": lstar, "rounds": 2}
    check(Deployment(tmp_path, settings))


@pytest.mark.filterwarnings("ignore:.*gives no privacy")
@pytest.mark.parametrize(
    "text",
    [
        "scaffold+fedfv",
        "eagle(lam=0.5)+prox+momentum",
        "lsr+pgvc+fedeba_plus(alpha=0.9, theta=30)+nova",
        "term(t=2, inner=1.5)",
        "scaffold+dp_client(where=clients, noise=0.5, clip=0.3, seeded=true)",
    ],
)
def test_a_list_of_parts_gives_the_bits_of_the_simulator(text, tmp_path):
    check(Deployment(tmp_path, {"algorithm": text}))


class Masked(nn.Module):
    """The mean of the words that a mask leaves, and a weight of the text's length."""

    def __init__(self, shape: dict[str, tuple[int, ...]], outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.out = nn.Linear(4 + shape["length"][0], outputs)

    def forward(self, x: dict[str, torch.Tensor]) -> torch.Tensor:
        there = x["mask"].to(self.out.weight.dtype)[..., None]
        words = (self.embed(x["ids"]) * there).sum(-2) / there.sum(-2)
        found: torch.Tensor = self.out(torch.cat([words, x["length"]], -1))
        return found


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold+fedfv", "eagle"])
def test_inputs_of_several_tensors_give_the_bits_of_the_simulator(algorithm, tmp_path):
    rng = np.random.default_rng(0)
    mask = np.arange(5) < rng.integers(1, 6, (40, 1))
    x = {"ids": rng.integers(0, 9, (40, 5)), "mask": mask, "length": mask.mean(1)}
    clients = fp.Federation.from_arrays(x, mask[:, 2].astype(int), np.arange(40) % 3)
    task = fp.Classification(Masked)
    check(Deployment(tmp_path, {"algorithm": algorithm}, clients, task))


def test_losses_gaps_and_reports_are_there_as_in_the_simulator(tmp_path):
    result = check(Deployment(tmp_path, {"algorithm": "eagle", "dtype": "float32"}))
    assert result.clients["test_gap"].notna().sum() == 3  # the third client has no test example
    lstar = pd.read_parquet(tmp_path / "run" / "lstar.parquet")
    pd.testing.assert_frame_equal(lstar, pd.read_parquet(tmp_path / "simulated" / "lstar.parquet"))
    assert "<html" in (tmp_path / "run" / "report.html").read_text()


def test_metrics_of_the_models_trained_alone_are_those_of_the_simulator(tmp_path):
    result = check(Deployment(tmp_path, {"metrics": ["auc", "brier"]}))
    assert result.clients["test_alone_brier"].notna().sum() == 3
    assert (result.clients["test_alone_brier"] != result.clients["test_brier"]).any()


def test_a_model_alone_that_a_site_no_longer_has_leaves_its_numbers_missing(tmp_path):
    deployment = Deployment(tmp_path, {"metrics": ["brier"], "rounds": 1})
    deployment.run()
    for file in tmp_path.glob("sites/client-*/lstar/*.safetensors"):
        file.unlink()
    clients = deployment.run("again").clients
    assert clients["test_alone_brier"].isna().all()
    assert clients["test_brier"].notna().sum() == 3


def test_a_site_sends_one_number_a_metric(tmp_path):
    result = check(Deployment(tmp_path, {"metrics": ["auc", "brier"], "lstar": "none"}))
    assert result.clients["test_brier"].notna().sum() == 3
    assert result.frame.summary()["mean_brier"] > 0


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedbn"])
@pytest.mark.parametrize("buffers", ["average", "local"])
def test_buffers_are_averaged_or_stay_as_in_the_simulator(algorithm, buffers, tmp_path):
    clients = fp.testing.unlike_clients((8, 4, 6))
    task = fp.Classification(normed)
    settings = {"algorithm": algorithm, "buffers": buffers, "lstar": "none"}
    result = check(Deployment(tmp_path, settings, clients, task))
    personal = buffers == "local" or algorithm == "fedbn"
    assert ("personal" in set(result.history["model"])) == personal


def test_layers_that_draw_random_numbers_draw_those_of_the_simulator(tmp_path):
    check(Deployment(tmp_path, {"algorithm": "qffl"}, task=fp.Classification(dropping)))


def test_clients_drop_out_as_in_the_simulator(tmp_path):
    deployment = Deployment(tmp_path, {"algorithm": "scaffold", "drop": 0.4, "lstar": "none"})
    check(deployment)
    failed = [line["failed"] for line in deployment.log()]
    assert failed == [line["failed"] for line in deployment.log("simulated")]
    assert any(failed)


@pytest.mark.parametrize(
    "sampling",
    [
        "power_of_choice(candidates=3)",
        "power_of_choice(candidates=4, signal=stale)",
        "available(share=0.5, period=2)",
    ],
)
@pytest.mark.parametrize("evaluate_every", [1, 3])
def test_cohorts_are_drawn_as_in_the_simulator(sampling, evaluate_every, tmp_path):
    settings = {"sampling": sampling, "cohort": 2, "lstar": "none", "rounds": 4}
    deployment = Deployment(tmp_path, {**settings, "evaluate_every": evaluate_every})
    check(deployment)
    told = [(line["asked"], line["failed"]) for line in deployment.log()]
    assert told == [(line["asked"], line["failed"]) for line in deployment.log("simulated")]


def test_a_site_that_tells_no_loss_is_not_asked_to_train(tmp_path):
    settings = {"sampling": "power_of_choice(candidates=4)", "cohort": 3, "lstar": "none"}
    deployment = Deployment(tmp_path, settings)
    deployment.run(fault=spoiled("1", "query.losses", "reports", "/losses", None))
    assert ("train", "0") in deployment.grid.sent
    assert ("train", "1") not in deployment.grid.sent
    rounds = [line for line in deployment.log() if "asked" in line]
    assert all("its reply is rejected" in line["failed"]["1"] for line in rounds)
    assert [line["answered"] for line in rounds] == [3] * 3


def test_real_targets_give_the_bits_of_the_simulator(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    clients = fp.Federation.from_arrays(x, x.sum(1) + 0.5, np.arange(40) % 3)
    check(Deployment(tmp_path, {"algorithm": "qffl", "model": "linear"}, clients))


@pytest.mark.parametrize("algorithm", ["fedavg", "eagle(lam=1)"])
def test_full_batches_of_odd_rows_give_the_bits_of_the_simulator(algorithm, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((920, 13)).astype(np.float32)  # 52 bytes a row: begins anywhere
    client = rng.choice(4, 920, p=[0.33, 0.32, 0.13, 0.22])
    clients = fp.Federation.from_arrays(
        x, (x.sum(1) > 0).astype(np.int64), client, fractions=(0.6, 0.2, 0.2)
    )
    settings = {"model": "linear", "dtype": "float32", "solver": {"lr": 0.1, "steps": 5}}
    check(Deployment(tmp_path, {"algorithm": algorithm, **settings}, clients))


def test_the_best_model_is_kept_as_in_the_simulator(tmp_path):
    settings = {"keep": "worst_loss", "stop": {"metric": "mean_loss", "patience": 1}, "rounds": 4}
    check(Deployment(tmp_path, {"algorithm": "fedavg", **settings, "server_lr": 9.0}))


def test_a_round_is_one_exchange_and_two_where_a_part_measures(tmp_path):
    one = Deployment(tmp_path / "one", {"algorithm": "scaffold", "rounds": 1})
    two = Deployment(tmp_path / "two", {"algorithm": "fedeba_plus(alpha=0.5)", "rounds": 1})
    for deployment in (one, two):
        deployment.run()
    first, later = (("query.hello", "evaluate"), ("train", "evaluate", "query.groups"))
    kinds = list(dict.fromkeys(kind for kind, _ in one.grid.sent))
    assert kinds == [*first, "train", "query.groups"]
    assert len(one.grid.sent) == 4 * len((*first, *later))
    assert len(two.grid.sent) == 4 * len((*first, "query.probe", *later))


def test_what_a_site_keeps_does_not_travel(tmp_path):
    clients = fp.testing.unlike_clients((8, 4, 6))
    settings = {"algorithm": "scaffold", "buffers": "local", "lstar": "none", "rounds": 1}
    deployment = Deployment(tmp_path, settings, clients, fp.Classification(normed))
    seen = []

    def watch(client, asked, reply):
        seen.append((asked.metadata.message_type, reply.content))
        return reply

    deployment.run(fault=watch)
    for kind, content in seen:
        names = {name for record in content.array_records.values() for name in record}
        assert names == ({"delta", "buffers", "scaffold/dc"} if kind == "train" else set())
        if kind == "train":
            assert content["vectors"]["buffers"].shape == (0,)
