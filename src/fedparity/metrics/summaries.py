"""The summaries of a federation: one number from one number a client, with its definition.

:data:`SUMMARIES` is the one table of them. Reports print the definitions from it, and whoever has
to choose a model by a summary learns from it which direction is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedparity.metrics import gaps, spread
from fedparity.metrics.metric import Meaning
from fedparity.metrics.vectors import Direction, FloatArray

Column = str
"""Which number of a client: accuracy, loss, gap, lstar, n, or the name of a metric."""
Split = Literal["train", "validation", "test"]
Statistic = Callable[[FloatArray, FloatArray], float]


@dataclass(frozen=True)
class Summary:
    """A summary: what it means, which direction is better, and how it is computed.

    Attributes
    ----------
    definition
        One line, with the unit.
    better
        ``"higher"``, ``"lower"``, or None for what is only counted.
    column
        Which number of the clients it summarises.
    statistic
        From these numbers (accuracies in percent) and the numbers of examples of the clients.
    split
        The only split it is a summary of, if there is one.
    joining
        Whether it tells what clients have of joining, and so nothing where each trains alone.
    of
        The split whose numbers it takes whatever split is summarised, if there is one.
    """

    definition: str
    better: Direction | None
    column: Column
    statistic: Statistic
    split: Split | None = None
    joining: bool = False
    of: Split | None = None


def _plain(function: Callable[[FloatArray], float]) -> Statistic:
    return lambda values, _: function(values)


def _row(
    column: Column, better: Direction, statistic: Callable[[FloatArray], float], definition: str
) -> Summary:
    return Summary(definition, better, column, _plain(statistic))


SUMMARIES: dict[str, Summary] = {
    "mean_accuracy": _row(
        "accuracy", "higher", spread.client_mean, "mean of the clients' accuracies, %"
    ),
    "pooled_accuracy": Summary(
        "share of all examples that are right, %", "higher", "accuracy", spread.pooled
    ),
    "worst_accuracy": _row(
        "accuracy", "higher", spread.worst_client, "accuracy of the worst client, %"
    ),
    "worst5_accuracy": _row(
        "accuracy",
        "higher",
        lambda a: spread.worst_share(a, 0.05),
        "mean accuracy of the worst 5% of the clients, at least one, %",
    ),
    "worst10_accuracy": _row(
        "accuracy",
        "higher",
        lambda a: spread.worst_share(a, 0.1),
        "mean accuracy of the worst 10% of the clients, at least one, %",
    ),
    "best5_accuracy": _row(
        "accuracy",
        "higher",
        lambda a: spread.best_share(a, 0.05),
        "mean accuracy of the best 5% of the clients, at least one, %",
    ),
    "best10_accuracy": _row(
        "accuracy",
        "higher",
        lambda a: spread.best_share(a, 0.1),
        "mean accuracy of the best 10% of the clients, at least one, %",
    ),
    "accuracy_variance": _row(
        "accuracy",
        "lower",
        spread.variance,
        "population variance (divisor K) of the clients' accuracies, each counting once, %^2",
    ),
    "accuracy_weighted_variance": Summary(
        "variance of the clients' accuracies weighted by their numbers of examples, %^2",
        "lower",
        "accuracy",
        spread.weighted_variance,
    ),
    "accuracy_std": _row(
        "accuracy",
        "lower",
        spread.std,
        "population standard deviation of the clients' accuracies, %",
    ),
    "accuracy_cv": _row(
        "accuracy",
        "lower",
        spread.coefficient_of_variation,
        "population standard deviation of the accuracies over their mean",
    ),
    "accuracy_angle": _row(
        "accuracy",
        "lower",
        spread.angle_to_uniform,
        "angle between the vector of accuracies and (1, ..., 1), degrees",
    ),
    "accuracy_kl": _row(
        "accuracy",
        "lower",
        spread.kl_to_uniform,
        "Kullback-Leibler divergence of the normalised accuracies from uniform, nats",
    ),
    "accuracy_jain": _row(
        "accuracy", "higher", spread.jain, "Jain's index of the accuracies, 1 when all are equal"
    ),
    "accuracy_gini": _row(
        "accuracy", "lower", spread.gini, "Gini index of the accuracies, 0 when all are equal"
    ),
    "accuracy_parity_gap": _row(
        "accuracy",
        "lower",
        spread.parity_gap,
        "mean accuracy of the best 10% minus that of the worst 10% of the clients, %",
    ),
    "mean_loss": _row("loss", "lower", spread.client_mean, "mean of the clients' losses"),
    "pooled_loss": Summary(
        "mean loss over all examples of all clients", "lower", "loss", spread.pooled
    ),
    "worst_loss": _row(
        "loss",
        "lower",
        lambda loss: spread.worst_client(loss, better="lower"),
        "loss of the worst client",
    ),
    "loss_variance": _row(
        "loss", "lower", spread.variance, "population variance (divisor K) of the clients' losses"
    ),
    "loss_variance_sample": _row(
        "loss",
        "lower",
        spread.sample_variance,
        "sample variance (divisor K-1) of the clients' losses",
    ),
    "mean_gap": _row(
        "gap",
        "lower",
        spread.client_mean,
        "mean loss gap: loss minus L*, the best loss that the client reaches by training alone",
    ),
    "gap_variance": _row(
        "gap", "lower", gaps.gap_variance, "sample variance (divisor K-1) of the loss gaps"
    ),
    "gap_variance_pop": _row(
        "gap", "lower", gaps.gap_variance_pop, "population variance (divisor K) of the loss gaps"
    ),
    "max_gap": _row("gap", "lower", gaps.max_gap, "loss gap of the worst client"),
    "min_gap": _row("gap", "lower", gaps.min_gap, "loss gap of the best client"),
    "faa": _row("gap", "lower", gaps.gap_range, "largest minus smallest loss gap"),
    "gain_share": Summary(
        "share of the clients whose loss gap is negative: who gain from joining, in [0, 1]",
        "higher",
        "gap",
        _plain(gaps.participation_rate),
        joining=True,
    ),
    "mean_benefit": Summary(
        "mean over all clients of max(0, -loss gap): what joining gains them",
        "higher",
        "gap",
        _plain(gaps.mean_benefit),
        joining=True,
    ),
    "clients": Summary("number of clients", None, "n", lambda n, _: float(n.size)),
    "clients_without_validation": Summary(
        "clients without validation examples, left out of the summaries on validation; a method "
        "that goes by loss gaps takes theirs on training examples",
        None,
        "n",
        lambda n, _: float((n == 0).sum()),
        of="validation",
    ),
    "clients_without_test": Summary(
        "clients without test examples, left out of the summaries above",
        None,
        "n",
        lambda n, _: float((n == 0).sum()),
        split="test",
    ),
    "clients_without_lstar": Summary(
        "clients with examples whose L* is not known, left out of the summaries of gaps",
        None,
        "lstar",
        lambda lstar, _: float(np.isnan(lstar).sum()),
    ),
}


def summaries(metrics: Mapping[str, Meaning]) -> dict[str, Summary]:
    """Return all summaries of clients that have these metrics beside loss and accuracy."""
    found = dict(SUMMARIES)
    for name, meaning in metrics.items():
        found |= _of_metric(name, meaning)
    return found


def _of_metric(name: str, meaning: Meaning) -> dict[str, Summary]:
    better = meaning.better
    what = f"{name} ({meaning.definition})"
    shown = f"clients' {name}, {better} is better"
    return {
        f"mean_{name}": _row(name, better, spread.client_mean, f"mean of the clients' {what}"),
        f"worst_{name}": _row(
            name,
            better,
            lambda values: spread.worst_client(values, better=better),
            f"{name} of the worst client, {better} is better",
        ),
        f"worst10_{name}": _row(
            name,
            better,
            lambda values: spread.worst_share(values, 0.1, better=better),
            f"mean over the worst 10% of the {shown}",
        ),
        f"best10_{name}": _row(
            name,
            better,
            lambda values: spread.best_share(values, 0.1, better=better),
            f"mean over the best 10% of the {shown}",
        ),
        f"{name}_std": _row(
            name, "lower", spread.std, f"population standard deviation of the clients' {name}"
        ),
        f"clients_without_{name}": Summary(
            f"clients with examples that have no {name}, because {meaning.undefined}; left out of "
            "its summaries",
            None,
            f"undefined {name}",
            lambda missing, _: float(missing.sum()),
        ),
    }
