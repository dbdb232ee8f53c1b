"""A frozen backbone with a trained head: of a network only the last layer trains and travels.

The backbone comes from a file of tensors: here of a network trained on 600 digits that are nobody's
secret, in practice of one that somebody has published (``pretrained=FILE``, or ``--pretrained``).
The clients then train the last layer alone, from its random start.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from safetensors.torch import save_file

import fedparity as fp
from fedparity.data import Dataset

MODEL = "cnn5(channels=8, hidden=64)"
PUBLIC = 600


def backbone(public: Dataset, rounds: int, seed: int, file: Path) -> None:
    """Train the whole network on public digits and write all of it but its last layer."""
    solver = fp.Solver(lr=0.05, epochs=2, batch=20, momentum=0.9)
    federation = public.split("iid", clients=1, seed=seed)
    whole = fp.Experiment(
        federation, MODEL, rounds=rounds, solver=solver, lstar="none", evaluate_every=rounds
    )
    tensors = whole.run().model().state_dict()
    save_file({n: t for n, t in tensors.items() if not n.startswith("out.")}, file)


def head(federation: fp.Federation, pretrained: Path | None, rounds: int, seed: int) -> fp.Result:
    """Train the last layer alone, and print how many floats a client sends and how well it does."""
    experiment = fp.Experiment(
        federation,
        MODEL,
        algorithm="eagle(lam=0.5)",
        rounds=rounds,
        trainable="out.*",
        pretrained=pretrained,
        solver=fp.Solver(lr=0.1, epochs=1, batch=20),
        lstar="best_validation(rounds=20)",
        evaluate_every=rounds,
        seed=seed,
    )
    whole = sum(p.numel() for p in experiment.setup.module.parameters())
    print(f"{experiment.setup.layout.size} of {whole} parameters are trained and sent")
    result = experiment.run()
    start = "random" if pretrained is None else "pre-trained"
    numbers = result.summary()[["mean_accuracy", "worst_accuracy"]].round(1)
    print(f"{start} backbone: {numbers.to_dict()}")
    return result


def main(rounds: int = 20, seed: int = 0, trained: int = 40) -> dict[str, fp.Result]:
    """Train the head on a random backbone, and on one pre-trained for ``trained`` rounds."""
    digits = fp.datasets.digits()
    public = Dataset.from_arrays(digits.x[:PUBLIC], digits.y[:PUBLIC])
    private = Dataset.from_arrays(digits.x[PUBLIC:], digits.y[PUBLIC:])
    federation = private.split("dirichlet(alpha=0.3)", clients=10, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "backbone.safetensors"
        backbone(public, trained, seed, file)
        return {
            "random": head(federation, None, rounds, seed),
            "pretrained": head(federation, file, rounds, seed),
        }


if __name__ == "__main__":
    main()
