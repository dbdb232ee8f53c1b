"""FedFV: three clients of one cloth each (its Table 3)."""

from __future__ import annotations

from study import Setting, Study, test_accuracies

import fedparity as fp


def three_clothes(seed: int, setting: Setting) -> fp.Federation:
    data = fp.datasets.fashion_mnist(normalise=setting.data == "normalised")
    scheme = fp.ByClass(classes=(6, 2, 0))
    return data.split(scheme, seed=seed, fractions=(1.0, 0.0, 0.0), official=True)


def fedfv_columns(result: fp.Result) -> dict[str, float]:
    last20, last = test_accuracies(result).iloc[-20:], test_accuracies(result).iloc[-1]
    names = ("shirt", "pullover", "T-shirt")
    mean20 = last20.mean(axis=0)
    return {
        **dict(zip(names, last, strict=True)),
        "mean": last.mean(),
        "std": last.std(ddof=0),
        "mean (last 20)": mean20.mean(),
        "std (last 20)": float(last20.std(axis=1, ddof=0).mean()),
    }


FULL = fp.Solver(lr=0.1, steps=1)
B400 = fp.Solver(lr=0.1, epochs=1, batch=400)
FEDFV_ROWS = {
    "FedAvg": "uniform",
    "AFL(0.1)": "afl(eta=0.1)",
    "q-FFL(5)": "qffl(q=5)",
    "FedFV(0)": "fedfv(alpha=0, tau=0)",
    "FedFV(1/3)": "fedfv(alpha=1/3, tau=0)",
    "FedFV(2/3)": "fedfv(alpha=2/3, tau=0)",
}
FEDFV = Study(
    "FedFV, Table 3: Fashion-MNIST, clients shirt, pullover, T-shirt",
    200,
    three_clothes,
    "mlp",
    [Setting(label, text, FULL) for label, text in FEDFV_ROWS.items()],
    fedfv_columns,
    {"evaluate_every": 1, "lstar": "none"},
)
FEDFV_BATCHES = Study(
    "FedFV, Table 3 with batches of 400, one epoch a round",
    50,
    three_clothes,
    "mlp",
    [Setting(label, text, B400) for label, text in FEDFV_ROWS.items()],
    fedfv_columns,
    {"evaluate_every": 1, "lstar": "none"},
)
