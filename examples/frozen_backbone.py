"""A frozen backbone with a trained head: of a network only the last layer trains and travels.

With --pretrained FILE, or pretrained= in Python, the backbone starts from your own tensors; here it
stays at random, which is enough to show what is sent.
"""

from __future__ import annotations

import fedparity as fp


def main(rounds: int = 50, pretrained: str | None = None) -> fp.Result:
    """Train the last layer alone on digits, and print how many floats a client sends."""
    federation = fp.datasets.digits().split("dirichlet(alpha=0.3)", clients=10)
    experiment = fp.Experiment(
        federation,
        "cnn5(channels=8, hidden=64)",
        algorithm="eagle(lam=0.5)",
        rounds=rounds,
        trainable="out.*",
        pretrained=pretrained,
        solver=fp.Solver(lr=0.1, epochs=1, batch=20),
        lstar="best_validation(rounds=20)",
    )
    whole = sum(p.numel() for p in experiment.setup.module.parameters())
    print(f"{experiment.setup.layout.size} of {whole} parameters are trained and sent")
    result = experiment.run()
    print(result.summary()[["mean_accuracy", "worst_accuracy"]].round(1))
    return result


if __name__ == "__main__":
    main()
