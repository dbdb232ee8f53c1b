"""CIFAR-100 with ResNet-18: FedAvg against FedBN, which keeps BatchNorm on the clients.

Reads CIFAR-100 from $FEDPARITY_DATA; see fedparity.datasets.cifar100. A round of 10 clients takes
minutes on a CPU.
"""

from __future__ import annotations

import fedparity as fp


def main(
    federation: fp.Federation | None = None, rounds: int = 5, seed: int = 0
) -> dict[str, fp.Result]:
    """Train a few rounds with both and print mean and worst accuracy."""
    if federation is None:
        data = fp.datasets.cifar100(normalise=True)
        federation = data.split("dirichlet(alpha=0.5)", clients=10, seed=seed)
    found = {}
    for algorithm in ("fedavg", "fedbn"):
        experiment = fp.Experiment(
            federation,
            "resnet18",
            algorithm,
            rounds=rounds,
            solver=fp.Solver(lr=0.05, epochs=1, batch=50),
            lstar="none",
            evaluate_every=rounds,
            seed=seed,
        )
        found[algorithm] = experiment.run()
        numbers = found[algorithm].summary()[["mean_accuracy", "worst_accuracy"]].round(1)
        print(algorithm, numbers.to_dict())
    return found


if __name__ == "__main__":
    main()
