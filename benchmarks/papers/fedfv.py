"""FedFV: its Tables 2, 3 and 4, as its authors ran them and with plain cross-entropy."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from study import Setting, Study, accuracies

import fedparity as fp
from fedparity.learning.seeds import generator

SEEDS = (0, 12, 37, 119, 568)
"""Those of the authors' result files."""
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""The channels' means and deviations in the authors' code; the true deviations are near 0.25."""


class SameShards:
    """Two shards a client, the same for every seed; only train, validation and test differ."""

    def assign(
        self,
        labels: npt.NDArray[np.int64],
        natural: npt.NDArray[np.int64] | None,
        clients: int | None,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        return fp.Shards(per_client=2).assign(labels, natural, clients, generator(0, "partition"))


@lru_cache(maxsize=1)
def clothes(seed: int) -> fp.Federation:
    """Return shirt, pullover and T-shirt, training and test images together."""
    data = fp.datasets.fashion_mnist(normalise="pixel", classes=(6, 2, 0))
    return data.split("by_class", seed=seed)


@lru_cache(maxsize=1)
def shards(seed: int) -> fp.Federation:
    """Return 100 clients with two of 200 shards of CIFAR-10's training images."""
    data = fp.datasets.cifar10(normalise=CIFAR10, part="train")
    return data.split(SameShards(), clients=100, seed=seed)


def three_clothes(seed: int, setting: Setting) -> fp.Federation:
    return clothes(seed)


def hundred_clients(seed: int, setting: Setting) -> fp.Federation:
    return shards(seed)


def three_columns(result: fp.Result) -> dict[str, float]:
    rounds = accuracies(result)
    last, last20 = rounds.iloc[-1], rounds.iloc[-20:]
    return {
        **dict(zip(("shirt", "pullover", "T-shirt"), last, strict=True)),
        "mean": last.mean(),
        "std": last.std(ddof=0),
        "mean (last 20)": float(last20.mean(axis=1).mean()),
        "std (last 20)": float(last20.std(axis=1, ddof=0).mean()),
    }


def hundred_columns(result: fp.Result) -> dict[str, float]:
    rounds = accuracies(result)
    last, late = rounds.iloc[-1].sort_values(), rounds.loc[rounds.index.max() - 100 :]
    return {
        "mean": last.mean(),
        "std": last.std(ddof=0),
        "worst 5 %": last.iloc[:5].mean(),
        "best 5 %": last.iloc[-5:].mean(),
        "mean (last 100)": float(late.mean(axis=1).mean()),
        "std (last 100)": float(late.std(axis=1, ddof=0).mean()),
    }


STEP = fp.Solver(lr=0.1, steps=1)
TABLE_3 = {
    "FedAvg": "uniform",
    "AFL(0.01)": "afl(eta=0.01, average=true)",
    "AFL(0.1)": "afl(eta=0.1, average=true)",
    "AFL(0.5)": "afl(eta=0.5, average=true)",
    "q-FedAvg(5)": "qffl(q=5, signal=post)",
    "q-FedAvg(15)": "qffl(q=15, signal=post)",
    "FedMGDA+(0.05)": "fedmgda_plus(eps=0.05)",
    "FedMGDA+(0.1)": "fedmgda_plus(eps=0.1)",
    "FedMGDA+(0.5)": "fedmgda_plus(eps=0.5)",
    "FedMGDA+(1)": "fedmgda_plus(eps=1)",
    "FedFV(0)": "fedfv(alpha=0, tau=0)",
    "FedFV(1/3)": "fedfv(alpha=1/3, tau=0)",
    "FedFV(2/3)": "fedfv(alpha=2/3, tau=0)",
}
FEDFV3 = Study(
    "FedFV, Table 3: Fashion-MNIST, clients shirt, pullover, T-shirt",
    201,
    three_clothes,
    "linear(softmax=true, zero_bias=true)",
    [Setting(label, text, STEP) for label, text in TABLE_3.items()],
    three_columns,
    {"evaluate_every": 1, "lstar": "none"},
    SEEDS,
)
FEDFV3_PLAIN = replace(
    FEDFV3, title=f"{FEDFV3.title}, plain cross-entropy", model="linear(zero_bias=true)"
)
FEDFV3_LAST = replace(
    FEDFV3,
    title=f"{FEDFV3.title}, AFL's last iterate and q-FedAvg's loss before the step",
    settings=[
        Setting("AFL(0.1), last iterate", "afl(eta=0.1)", STEP),
        Setting("q-FedAvg(5), loss before the step", "qffl(q=5)", STEP),
        Setting("q-FedAvg(15), loss before the step", "qffl(q=15)", STEP),
    ],
)

TABLE_2 = {
    "FedAvg": "uniform",
    "FedFV(0.1, 0)": "fedfv(alpha=0.1, tau=0)",
    "FedFV(0.1, 10)": "fedfv(alpha=0.1, tau=10)",
    "q-FedAvg(5)": "qffl(q=5, signal=post)",
    "q-FedAvg(1)": "qffl(q=1, signal=post)",
    "FedFV(0.1, 1)": "fedfv(alpha=0.1, tau=1)",
    "FedFV(0.1, 3)": "fedfv(alpha=0.1, tau=3)",
    "q-FedAvg(0.1)": "qffl(q=0.1, signal=post)",
    "FedFV(0.2, 0)": "fedfv(alpha=0.2, tau=0)",
    "FedFV(0.5, 0)": "fedfv(alpha=0.5, tau=0)",
}
FEDFV2 = Study(
    "FedFV, Table 2: CIFAR-10, 100 clients of two shards, 10 a round",
    501,
    hundred_clients,
    "mlp(softmax=true)",
    [Setting(label, text, STEP) for label, text in TABLE_2.items()],
    hundred_columns,
    {"evaluate_every": 10, "lstar": "none", "cohort": 10, "checkpoint_every": 500},
    SEEDS,
)
FEDFV2_PLAIN = replace(
    FEDFV2,
    title=f"{FEDFV2.title}, plain cross-entropy",
    model="mlp",
    settings=FEDFV2.settings[:3],
)

ORDERS = {"loss, ascending": "loss", "loss, descending": "reverse", "random": "random"}
FEDFV4 = Study(
    "FedFV, Table 4: order of the projections, CIFAR-10, 20 clients a round",
    1001,
    hundred_clients,
    "mlp(softmax=true)",
    [
        Setting(label, f"fedfv(alpha=0, tau=0, order={order})", fp.Solver(lr=0.01, steps=1))
        for label, order in ORDERS.items()
    ],
    hundred_columns,
    {"evaluate_every": 10, "lstar": "none", "cohort": 20, "checkpoint_every": 500},
    SEEDS,
)
FEDFV4_CLOTHES = replace(
    FEDFV3,
    title="FedFV, Table 4: order of the projections, Fashion-MNIST",
    settings=[
        Setting(label, f"fedfv(alpha=0, tau=0, order={order})", STEP)
        for label, order in ORDERS.items()
    ],
)
