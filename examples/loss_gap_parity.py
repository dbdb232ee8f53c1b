"""Why equal losses are not fair to unlike clients: one has an easy task, the other a hard one.

AFL makes losses equal, as far as it can, and so trains for the hard client alone; EAGLE makes loss
gaps equal: what each loses against the model that it would train by itself. (FedAvg happens to be
near that here, because the two pull at right angles.)
"""

from __future__ import annotations

import fedparity as fp

ALGORITHMS = ("fedavg", "afl(eta=1)", "eagle(lam=2)")


def main(seed: int = 0, rounds: int = 120) -> dict[str, fp.Result]:
    """Train with each and print every client's loss, its loss alone, and the gap between them."""
    data = fp.datasets.easy_and_hard(seed=seed)
    federation = data.split("natural", seed=seed, fractions=(0.4, 0.3, 0.3))
    found = {}
    for algorithm in ALGORITHMS:
        experiment = fp.Experiment(
            federation,
            "linear",
            algorithm,
            rounds=rounds,
            solver=fp.Solver(lr=0.5, steps=1),
            seed=seed,
        )
        found[algorithm] = experiment.run()
        clients = found[algorithm].clients.set_index("client")
        print(algorithm)
        print(clients[["test_loss", "test_lstar", "test_gap"]].round(3).to_string())
    return found


if __name__ == "__main__":
    main()
