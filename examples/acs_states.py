"""Who is served worse: people of 51 states, by state and by sex, on a tenth of the census sample.

Needs ``acs-income/acs_income_2018.npz`` in $FEDPARITY_DATA; takes about a minute.
"""

import sys

import fedparity as fp

SHARE = 0.1


def compare(share: float = SHARE, rounds: int = 30) -> dict[str, fp.Result]:
    """Return FedAvg and AFL over the states, under the same conditions."""
    federation = fp.datasets.acs_income(share=share).split("natural")
    common = {"rounds": rounds, "solver": fp.Solver(lr=0.5, batch=None), "lstar": "none"}
    return {
        algorithm: fp.Experiment(federation, "linear", algorithm, **common).run()
        for algorithm in ("fedavg", "afl")
    }


def main() -> None:
    """Print the state served worst by each algorithm, and its accuracy for women and men."""
    try:
        results = compare()
    except fp.InputError as error:
        sys.exit(f"skipped: {error}")
    for algorithm, result in results.items():
        clients = result.clients.set_index("client")
        worst = clients["test_accuracy"].idxmin()
        print(f"{algorithm}: mean accuracy {clients['test_accuracy'].mean():.3f}, worst {worst}")
        table = result.by_group("sex", metrics=[], resamples=0)
        print(table[table["client"] == worst].to_string(index=False))


if __name__ == "__main__":
    main()
