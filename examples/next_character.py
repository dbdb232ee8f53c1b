"""The next character by role: a two-layer LSTM on what Shakespeare's roles say.

Reads tinyshakespeare/input.txt from $FEDPARITY_DATA; see fedparity.datasets.shakespeare.
"""

from __future__ import annotations

import fedparity as fp


def main(
    federation: fp.Federation | None = None, rounds: int = 100, hidden: int = 256, seed: int = 0
) -> fp.Result:
    """Train on 10 roles a round and print how well the worst-off are told."""
    if federation is None:
        federation = fp.datasets.shakespeare().split("natural", seed=seed)
    experiment = fp.Experiment(
        federation,
        f"char_lstm(hidden={hidden})",
        algorithm="fedavg",
        rounds=rounds,
        cohort=min(10, len(federation)),
        solver=fp.Solver(lr=1.0, epochs=1, batch=10, clip=5.0),
        lstar="none",
        seed=seed,
    )
    result = experiment.run()
    print(result.summary()[["mean_accuracy", "worst_accuracy", "mean_loss"]].round(2))
    return result


if __name__ == "__main__":
    main()
