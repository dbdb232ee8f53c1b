"""Cohorts drawn by chance alone: uniformly, or in proportion to the clients' examples."""

from __future__ import annotations

import numpy as np
from pydantic.dataclasses import dataclass

from fedparity.engines.engine import Ids
from fedparity.method.part import STRICT
from fedparity.run.sampling.sampling import Losses, Population, Sampling, State


@dataclass(frozen=True, config=STRICT)
class Uniform(Sampling):
    """Draw every client with the same probability, without replacement.

    Examples
    --------
    >>> who = Population(("a", "b", "c", "d"), np.asarray([9, 4, 1, 6]), cohort=2, seed=0)
    >>> [Uniform().draw(t, {}, who, None)[0].tolist() for t in (1, 2, 3)]
    [[0, 3], [0, 2], [0, 1]]

    References
    ----------
    McMahan et al. Communication-efficient learning of deep networks from decentralized data.
    AISTATS 2017.
    """

    name = "uniform"
    chance = "uniform"

    def draw(self, round: int, state: State, who: Population, losses: Losses) -> tuple[Ids, State]:
        return places(len(who), round, who), state


@dataclass(frozen=True, config=STRICT)
class Size(Sampling):
    r"""Draw clients one after the other, with probability by examples, without replacement.

    Of the clients not yet drawn, client :math:`k` is the next with probability
    :math:`n_k / \sum_j n_j`. It goes with uniform weights, so that examples count once.

    Examples
    --------
    >>> who = Population(("a", "b", "c", "d"), np.asarray([9, 4, 1, 6]), cohort=2, seed=0)
    >>> [Size().draw(t, {}, who, None)[0].tolist() for t in (1, 2, 3)]
    [[0, 3], [0, 3], [0, 3]]

    References
    ----------
    Li et al. Federated optimization in heterogeneous networks. MLSys 2020.
    """

    name = "size"
    weighting = "uniform"

    def draw(self, round: int, state: State, who: Population, losses: Losses) -> tuple[Ids, State]:
        return np.sort(fastest(who.cohort, round, who)), state


@dataclass(frozen=True, config=STRICT)
class SizeReplaced(Sampling):
    r"""Draw clients one after the other, with probability by examples, with replacement.

    Each of the m draws takes client :math:`k` with probability :math:`n_k / \sum_j n_j`. A client
    that is drawn twice trains once, and counts as if it stood in the cohort twice: with uniform
    weights that is the plain mean over draws. Fewer than m clients may be asked.

    Examples
    --------
    >>> who = Population(("a", "b", "c", "d"), np.asarray([9, 4, 1, 6]), cohort=3, seed=0)
    >>> [SizeReplaced().draw(t, {}, who, None)[0].tolist() for t in (1, 2, 3)]
    [[0, 0, 3], [1, 3, 3], [0, 3, 3]]

    References
    ----------
    Li, Sanjabi, Beirami, Smith. Fair resource allocation in federated learning. ICLR 2020.
    Wang, Fan, Qi, Wen, Wang, Yu. Federated learning with fair averaging. IJCAI 2021.
    """

    name = "size_replaced"
    chance = "replaced"
    weighting = "uniform"
    absence = True

    def draw(self, round: int, state: State, who: Population, losses: Losses) -> tuple[Ids, State]:
        shares = who.sizes / who.sizes.sum()
        return np.sort(who.generator(round).choice(len(who), who.cohort, p=shares)), state


def places(number: int, round: int, who: Population) -> Ids:
    """Return the places of a cohort among so many clients, ascending; all if they are no more."""
    if number <= who.cohort:
        return np.arange(number)
    rng = who.generator(round)
    return np.sort(rng.choice(number, who.cohort, replace=False, shuffle=False))


def fastest(number: int, round: int, who: Population) -> Ids:
    """Return so many clients by size, in the order in which they are drawn.

    Each client runs for an exponential time of rate ``n_k``: who arrives first is drawn first.
    """
    if number == len(who) == who.cohort:
        return np.arange(number)
    races = who.generator(round).exponential(size=len(who)) / who.sizes
    first = np.argpartition(races, number - 1)[:number] if number < len(who) else np.arange(number)
    found: Ids = first[np.argsort(races[first])]
    return found
