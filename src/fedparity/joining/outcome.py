"""What coalitions tell: who is better off alone, who would leave together, who helps whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.arguments import named
from fedparity.certainty import UNTOLD
from fedparity.certainty.multiple import holm
from fedparity.errors import InputError
from fedparity.joining import game
from fedparity.joining.groups import EVERY, group_of, joining, members
from fedparity.joining.verdicts import below_zero, interval

Values = npt.NDArray[np.float64]


@named
@dataclass(frozen=True)
class Coalitions:
    """The losses of every client in every coalition that was trained.

    Attributes
    ----------
    names
        The clients.
    seeds
        The seeds, over which all intervals are.
    losses
        Of each seed, by group (bit k is client k), the losses of all clients; NaN for those who are
        not in the group.
    split
        The examples on which clients judge.
    confidence
        Of the intervals, each by itself; and of each word of a verdict, over all clients, or all
        groups, together (Holm). Clients share it between their two words; that some group would
        leave, and that some would stay, have it each, as have ``stable`` and ``not stable``.
    diverged
        Trainings that diverged. Their losses count where they are numbers.
    overlap
        Test examples for each one of training where the seeds split the same examples anew, which
        widens intervals: see :func:`fedparity.joining.verdicts.interval`. 0: seeds are independent.

    Notes
    -----
    A difference is taken seed by seed, on the same test examples, and its interval is Student's.
    """

    names: tuple[str, ...]
    seeds: tuple[int, ...]
    losses: tuple[game.Losses, ...] = field(repr=False)
    split: str = "test"
    confidence: float = 0.95
    diverged: int = 0
    overlap: float = 0.0

    @cached_property
    def groups(self) -> list[int]:
        """The groups that were trained on every seed, small ones first."""
        return [g for g in self.losses[0] if all(g in of_seed for of_seed in self.losses)]

    @property
    def complete(self) -> bool:
        """Whether every coalition was trained."""
        return len(self.groups) == (1 << len(self.names)) - 1

    @property
    def finite(self) -> bool:
        """Whether every loss is a number."""
        return not any(
            np.isnan(loss[list(members(group))]).any()
            for of_seed in self.losses
            for group, loss in of_seed.items()
        )

    def table(self) -> pd.DataFrame:
        """Return one row a seed, coalition and member: ``seed, coalition, size, client, loss``."""
        rows = [
            (seed, self.told(group), group.bit_count(), self.names[k], loss[k])
            for seed, of_seed in zip(self.seeds, self.losses, strict=True)
            for group, loss in of_seed.items()
            for k in members(group)
        ]
        return pd.DataFrame(rows, columns=["seed", "coalition", "size", "client", "loss"])

    def alone(self) -> pd.DataFrame:
        """Return a row a client: its loss alone and with all, what joining changes, a verdict.

        ``change`` is the loss with all minus the loss alone: below zero the client gains.
        """
        everyone = (1 << len(self.names)) - 1
        alone = np.stack([[of[1 << k][k] for k in range(len(self.names))] for of in self.losses])
        joined = np.stack([of[everyone] for of in self.losses])
        change, low, high = interval(joined - alone, self.confidence, self.overlap)
        level = (1 - self.confidence) / 2
        gains, pays = (
            holm(below_zero(s * (joined - alone), self.overlap)) <= level for s in (1, -1)
        )
        verdict = np.select([gains, pays], ["better off with all", "better off alone"], UNTOLD)
        return pd.DataFrame(
            {
                "client": list(self.names),
                "alone": alone.mean(axis=0),
                "with_all": joined.mean(axis=0),
                "change": change,
                "low": low,
                "high": high,
                "verdict": verdict,
            }
        )

    def leaving(self) -> pd.DataFrame:
        """Return a row a group that gains on average by leaving all others: would it leave?

        ``least`` is the change of the loss of the member that gains least, with its interval.
        ``would leave`` says that every member certainly gains; a group of which one member
        certainly loses ``would stay``; and of others nothing ``can be told``, as where a loss is
        no number. Groups that would stay are not listed.
        """
        proper = [g for g in self.groups if g.bit_count() < len(self.names)]
        changes = [self._leaving(group) for group in proper]
        worst = np.array([below_zero(change, self.overlap).max() for change in changes])
        goes = holm(worst) <= 1 - self.confidence
        least_willing = [
            below_zero(-change, self.overlap).min() * change.shape[1] for change in changes
        ]
        stays = holm(least_willing) <= 1 - self.confidence
        rows = []
        for group, change, leaves, remains in zip(proper, changes, goes, stays, strict=True):
            mean, low, high = interval(change, self.confidence, self.overlap)
            least = int(np.argmax(np.nan_to_num(mean, nan=np.inf)))
            if not leaves and (remains or mean[least] >= 0):  # NaN: nothing can be told
                continue
            what = "would leave" if leaves else UNTOLD
            numbers = (mean[least], low[least], high[least])
            rows.append((self.told(group), group.bit_count(), *numbers, what))
        found = pd.DataFrame(rows, columns=["group", "size", "least", "low", "high", "verdict"])
        return found.sort_values("least", ignore_index=True)

    def _leaving(self, group: int) -> Values:
        """Return by seed and member the loss in the group minus that with all."""
        inside, everyone = list(members(group)), (1 << len(self.names)) - 1
        return np.stack([of[group][inside] - of[everyone][inside] for of in self.losses])

    def shapley(self) -> pd.DataFrame:
        """Return what each client (``giver``) brings to the loss of each other, with intervals.

        A positive ``value`` lowers the loss of ``client``. Those of one client sum to what it gains
        from being with all: see :func:`fedparity.joining.game.shapley`. Where coalitions were
        sampled, each seed has an order of its own, and intervals cover that chance too.
        """
        count = len(self.names)
        if count <= EVERY:
            each = np.stack([game.shapley(of_seed, count) for of_seed in self.losses])
        else:
            pairs = zip(self.losses, self.seeds, strict=True)
            each = np.stack([game.sampled_shapley(of, joining(count, s)) for of, s in pairs])
        mean, low, high = interval(each, self.confidence, self.overlap)
        rows = [
            (self.names[k], self.names[j], mean[k, j], low[k, j], high[k, j])
            for k in range(count)
            for j in range(count)
            if j != k
        ]
        return pd.DataFrame(rows, columns=["client", "giver", "value", "low", "high"])

    def stable(self) -> list[tuple[tuple[str, ...], ...]]:
        """Return the partitions of the clients that no group would leave, by mean losses.

        There may be none, or several. Whether one certainly is so, :meth:`verdict` tells.
        """
        if not self.complete:
            raise InputError(f"stable partitions need every coalition: at most {EVERY} clients")
        if not self.finite:
            raise InputError("stable partitions need every loss, and some are no numbers")
        mean = {g: np.mean([of[g] for of in self.losses], axis=0) for g in self.groups}
        return [
            tuple(self._named(block) for block in blocks)
            for blocks in game.stable(mean, len(self.names))
        ]

    def verdict(self, partition: tuple[tuple[str, ...], ...]) -> str:
        """Return whether a partition is ``stable``, ``not stable``, or it cannot be told.

        It is stable if of every other group one member certainly would lose by forming it, and not
        stable if a group has only members that certainly would gain.
        """
        blocks = [group_of(tuple(self.names.index(name) for name in block)) for block in partition]
        own = {k: block for block in blocks for k in members(block)}
        if len(own) != len(self.names) or sum(map(int.bit_count, blocks)) != len(self.names):
            raise InputError("a partition has every client in one block")
        pulls, holds = [], []
        for group in self.groups:
            if group in blocks:
                continue
            inside = members(group)
            change = np.array(
                [[of[group][k] - of[own[k]][k] for k in inside] for of in self.losses]
            )
            pulls.append(below_zero(change, self.overlap).max())
            holds.append(min(1.0, below_zero(-change, self.overlap).min() * len(inside)))
        level = 1 - self.confidence
        if (holm(pulls) <= level).any():
            return "not stable"
        # that all hold needs no correction: it is said only if each by itself holds
        return "stable" if self.complete and max(holds) <= level else UNTOLD

    def told(self, group: int) -> str:
        """Return a group as its clients' names."""
        return "all" if group.bit_count() == len(self.names) else " + ".join(self._named(group))

    def _named(self, group: int) -> tuple[str, ...]:
        return tuple(self.names[k] for k in members(group))
