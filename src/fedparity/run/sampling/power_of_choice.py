"""Power-of-choice: of some candidates, those of highest loss are asked to train."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from fedparity.engines.engine import Ids
from fedparity.errors import InputError
from fedparity.method.part import STRICT
from fedparity.run.sampling.plain import fastest
from fedparity.run.sampling.sampling import Losses, Population, Sampling, State


@dataclass(frozen=True, config=STRICT)
class PowerOfChoice(Sampling):
    r"""Draw candidates by size and take those of highest training loss.

    .. math:: A_t \sim \text{size}(d), \qquad
        S_t = \operatorname{argmax}_{S \subseteq A_t, |S| = m} \sum_{k \in S} F_k(x_t)

    Parameters
    ----------
    candidates
        How many clients are drawn as candidates, ``d``: from the cohort ``m``, which is sampling by
        size, to all.
    signal
        ``fresh`` asks every candidate for its loss at ``x_t`` before the cohort is chosen.
        ``stale`` goes by the loss that a client told when it was last asked to train; clients that
        never were come first. Only the cohort tells its loss then.

    Notes
    -----
    Sent: the model to all candidates (``stale``: to the cohort), who send back one number each. The
    server learns their training losses. A candidate that tells no loss is not asked to train.
    Candidates of equal loss come in the order in which they were drawn.
    The paper's variant with stale losses averages the loss over the local steps; here it is the
    loss at ``x_t``. The paper's variant that estimates losses on a batch is left out.

    Examples
    --------
    >>> who = Population(("a", "b", "c", "d"), np.asarray([9, 4, 1, 6]), cohort=2, seed=0)
    >>> tell = lambda clients: (clients, torch.tensor([0.1, 0.2, 0.3, 0.4])[clients])
    >>> PowerOfChoice(candidates=4).draw(1, {}, who, tell)[0].tolist()
    [2, 3]

    References
    ----------
    Cho, Wang, Joshi. Client selection in federated learning: convergence analysis and
    power-of-choice selection strategies. 2020, arXiv:2010.01243.
    """

    candidates: int = Field(ge=1, description="clients whose losses are compared")
    signal: Literal["fresh", "stale"] = Field(default="fresh", description="when losses are told")

    name = "power_of_choice"
    weighting = "uniform"
    ahead = False

    def check(self, who: Population) -> None:
        if not who.cohort <= self.candidates <= len(who):
            raise InputError(
                f"{self.name}: candidates is {self.candidates}: at least the cohort of "
                f"{who.cohort} and at most the {len(who)} clients"
            )

    def init(self, who: Population) -> State:
        if self.signal == "fresh":
            return {}
        return {"losses": torch.full((len(who),), torch.inf, dtype=torch.float64)}

    def draw(self, round: int, state: State, who: Population, losses: Losses) -> tuple[Ids, State]:
        drawn = fastest(self.candidates, round, who)
        if self.signal == "stale":
            cohort = np.sort(highest(drawn, state["losses"].numpy()[drawn], who.cohort))
            told, values = losses(cohort)
            known = state["losses"].clone()
            known[told] = values.to(known.dtype)
            return told, {"losses": known}
        if self.candidates == who.cohort:
            return np.sort(drawn), state
        told, values = losses(np.sort(drawn))
        answered = drawn[np.isin(drawn, told)]
        found = values.numpy()[np.searchsorted(told, answered)]
        return np.sort(highest(answered, found, who.cohort)), state


def highest(clients: Ids, losses: np.ndarray[tuple[int], np.dtype[np.floating]], most: int) -> Ids:
    """Return the clients of highest loss, the first of those that are equal."""
    return clients[np.argsort(-losses, kind="stable")[:most]]
