"""How often intervals cover and verdicts are false, on simulated federations.

    python benchmarks/certainty.py --write docs/certainty.md

Losses are those of logistic models: ``log(1 + exp(-m))`` with margins m that are normal, of unlike
spread under the shared model and the one trained alone (an overconfident model has few large
losses), and correlated by example. True losses are known by quadrature, so true gaps are exact.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from fedparity.certainty import FEW, GAINS, PAYS, change, client_certainty
from fedparity.certainty.metrics import bootstrap
from fedparity.contracts.levelling import word_on
from fedparity.metrics import METRICS

BEGIN, END = "<!-- drill: begin -->", "<!-- drill: end -->"
CLIENTS = 20
SMALLEST, LARGEST = 10, 400
"""Test examples of a client, uniform on a logarithmic scale."""
SPREADS = (0.5, 3.0)
"""Standard deviations of the margins."""
CORRELATION = 0.6
NODES, SHARES = np.polynomial.hermite_e.hermegauss(80)
SHARES = SHARES / SHARES.sum()


class Drill(NamedTuple):
    """What was found: one row a client, and one a federation."""

    clients: pd.DataFrame
    federations: pd.DataFrame


def loss_of(margin):
    """Return the logistic loss."""
    return np.logaddexp(0, -margin)


def centre(loss: float, spread: float) -> float:
    """Return the mean of the margins whose expected loss this is."""

    def off(middle: float) -> float:
        return float(SHARES @ loss_of(middle + spread * NODES)) - loss

    return float(optimize.brentq(off, -60, 200))


def client(draws: np.random.Generator, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Return losses under the shared model and alone, of which the expected difference is known."""
    n = int(np.exp(draws.uniform(np.log(SMALLEST), np.log(LARGEST))))
    own = draws.uniform(0.4, 1.0)
    shared, alone = draws.uniform(*SPREADS, size=2)
    one, two = draws.standard_normal((2, n))
    two = CORRELATION * one + np.sqrt(1 - CORRELATION**2) * two
    return (
        loss_of(centre(own + gap, shared) + shared * one),
        loss_of(centre(own, alone) + alone * two),
    )


def federation(draws: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Return predictions of a federation and true gaps: half of them are nothing."""
    none = draws.random(CLIENTS) < 0.5
    gaps = np.where(none, 0.0, draws.choice([-1, 1], CLIENTS) * draws.uniform(0.05, 0.3, CLIENTS))
    pairs = [client(draws, gap) for gap in gaps]
    sizes = [len(shared) for shared, _ in pairs]
    about = {
        "client": np.repeat([f"{k:02d}" for k in range(CLIENTS)], sizes),
        "split": "test",
        "index": np.concatenate([np.arange(n) for n in sizes]),
    }
    tables = [
        pd.DataFrame({**about, "model": model, "loss": np.concatenate(losses)})
        for model, losses in zip(("global", "alone"), zip(*pairs, strict=True), strict=True)
    ]
    return pd.concat(tables, ignore_index=True), gaps


def drill(federations: int, seed: int) -> Drill:
    """Judge so many federations."""
    clients, judged = [], []
    for number in range(federations):
        rows, gaps = federation(np.random.default_rng((seed, number)))
        found = client_certainty(rows)
        found["true"], found["federation"] = gaps, number
        said = found["verdict"]
        judged.append(
            {
                "false gains": bool(((said == GAINS) & (gaps >= 0)).any()),
                "false pays": bool(((said == PAYS) & (gaps <= 0)).any()),
            }
        )
        clients.append(found)
    return Drill(pd.concat(clients, ignore_index=True), pd.DataFrame(judged))


LEVELS = (
    "small gaps grow, nobody gains",
    "the same, but one gains what another pays",
    "all pay the same, gaps are as far apart",
)
WORDS = ("holds", "broken", "cannot be told")
FEWER, MORE = 10, (100, 2000)
"""Clients, and test examples of each, of a federation in which levelling down is judged."""


def pair(draws: np.random.Generator, kind: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return predictions before and after a change of this kind, with the expected losses known."""
    before = draws.uniform(0.5, 1.0, FEWER)
    after = np.maximum(before, np.median(before))
    worst = int(before.argmax())
    if kind == LEVELS[1]:
        after[worst] -= (after - before).max()
    if kind == LEVELS[2]:
        after = before + 0.1
    tables: tuple[list[pd.DataFrame], list[pd.DataFrame]] = ([], [])
    for k in range(FEWER):
        n = int(np.exp(draws.uniform(*np.log(MORE))))
        one, two = draws.standard_normal((2, n))
        two = CORRELATION * one + np.sqrt(1 - CORRELATION**2) * two
        for rows, loss, noise in zip(tables, (before[k], after[k]), (one, two), strict=True):
            spread = draws.uniform(*SPREADS)
            about = {"client": f"{k:02d}", "split": "test", "index": range(n), "model": "global"}
            margins = centre(loss, spread) + spread * noise
            rows.append(pd.DataFrame({**about, "loss": loss_of(margins)}))
    was, now = (pd.concat(rows, ignore_index=True) for rows in tables)
    return was, now


def levelling(federations: int, seed: int) -> pd.DataFrame:
    """Return how often each word falls on ``not levelled_down``, by kind of change."""
    said = {kind: dict.fromkeys(WORDS, 0.0) for kind in LEVELS}
    for kind, counts in said.items():
        for number in range(federations):
            before, now = pair(np.random.default_rng((seed, number, 3)), kind)
            counts[word_on(change(now, before))[0]] += 1 / federations
    return pd.DataFrame(said).T


def aucs(times: int, seed: int, resamples: int) -> float:
    """Return how often the interval of the area under the curve covers the true one."""
    covered = 0
    for number in range(times):
        draws = np.random.default_rng((seed, number, 1))
        n, apart = int(draws.integers(FEW, LARGEST)), draws.uniform(0.5, 2)
        target = (draws.random(n) < 0.4).astype(int)
        share = special.expit(draws.standard_normal(n) + apart * target)
        output = np.column_stack([1 - share, share])
        _, low, high = bootstrap(METRICS["auc"], target, output, 0.95, resamples, draws)
        covered += low <= stats.norm.cdf(apart / np.sqrt(2)) <= high
    return covered / times


def mean_bca(times: int, seed: int, resamples: int) -> tuple[float, float]:
    """Return how often t and BCa intervals of the gap cover, on the same clients."""
    hits = np.zeros(2)
    for number in range(times):
        draws, gaps = np.random.default_rng((seed, number, 2)), np.empty(0)
        while len(gaps) < FEW:
            gaps = np.subtract(*client(draws, 0.0))
        t = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
        bca = stats.bootstrap((gaps,), np.mean, n_resamples=resamples, rng=draws, method="BCa")
        hits += [each.low <= 0 <= each.high for each in (t, bca.confidence_interval)]
    return float(hits[0] / times), float(hits[1] / times)


def covers(clients: pd.DataFrame) -> pd.Series:
    """Tell of each client whether the interval of its gap holds the true gap."""
    return clients["true"].between(clients["gap_low"], clients["gap_high"])


def report(
    found: Drill, words: pd.DataFrame, metrics: float, means: tuple[float, float], times: int
) -> str:
    """Return the figures as a table."""
    clients = found.clients
    sizes = [(SMALLEST, FEW), (FEW, 50), (50, 100), (100, LARGEST + 1)]
    lines = ["| what | clients or federations | share |", "|---|---|---|"]
    for low, high in sizes:
        rows = clients[clients["n"].between(low, high - 1)]
        what = f"interval of the gap covers, {low} to {high - 1} examples"
        lines.append(f"| {what} | {len(rows):,} | {covers(rows).mean():.1%} |")
    rows = clients[clients["n"] >= FEW]
    lines.append(f"| the same, {FEW} or more | {len(rows):,} | {covers(rows).mean():.1%} |")
    lines.append(f"| t on clients without a gap | {times:,} | {means[0]:.1%} |")
    lines.append(f"| BCa on the same | {times:,} | {means[1]:.1%} |")
    lines.append(f"| BCa interval of the AUC covers | {times:,} | {metrics:.1%} |")
    for what in found.federations:
        share = found.federations[what].mean()
        lines.append(f"| federations with {what} | {len(found.federations):,} | {share:.1%} |")
    for word, sign in ((GAINS, -1), (PAYS, 1)):
        true = rows[np.sign(rows["true"]) == sign]
        share = (true["verdict"] == word).mean()
        lines.append(f"| of those who truly do, {word} | {len(true):,} | {share:.1%} |")
    lines += ["", f"| {len(found.federations):,} changes of a federation | {' | '.join(WORDS)} |"]
    lines.append("|---|---|---|---|")
    for kind, row in words.iterrows():
        lines.append(f"| {kind} | {' | '.join(f'{row[word]:.1%}' for word in WORDS)} |")
    return "\n".join(lines).replace("%", " %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--federations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--times", type=int, default=1000, help="bootstraps of each kind")
    parser.add_argument("--write", type=Path, help="a page with marks between which figures stand")
    given = parser.parse_args()
    found = drill(given.federations, given.seed)
    metrics = aucs(given.times, given.seed, given.resamples)
    means = mean_bca(given.times, given.seed, given.resamples)
    words = levelling(given.federations, given.seed)
    text = report(found, words, metrics, means, given.times)
    print(text)
    if given.write:
        page = given.write.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        after = rest.partition(END)[2]
        given.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
